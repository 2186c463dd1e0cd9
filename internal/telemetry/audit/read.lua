-- Reads entries of a stream: XRANGE or XREVRANGE, as one list of ids and fields in a fixed order.
-- KEYS: the stream. ARGV: the command, both ends, the most entries, the names of the fields.
local reply = {}
for _, entry in ipairs(redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])) do
	local fields = {}
	for i = 1, #entry[2], 2 do
		fields[entry[2][i]] = entry[2][i + 1]
	end
	reply[#reply + 1] = entry[1]
	for i = 5, #ARGV do
		reply[#reply + 1] = fields[ARGV[i]] or ''
	end
end
return reply
