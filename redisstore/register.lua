-- A register: a hash of notes, each with the millisecond at which it ends before it.
-- KEYS: the register
-- ARGV: a name ('': list all), its note, for how many milliseconds (0: it is taken out), most entries
-- Returns names and notes by turns, or nothing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' and ARGV[3] == '0' then
	redis.call('HDEL', KEYS[1], ARGV[1])
	return {}
end
if ARGV[1] ~= '' then
	local ends = now + tonumber(ARGV[3])
	redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends) .. ' ' .. ARGV[2])
	if redis.call('PTTL', KEYS[1]) < ends - now then
		redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends))
	end
	if redis.call('HLEN', KEYS[1]) <= tonumber(ARGV[4]) then return {} end
end

local all, live = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
	local ends = tonumber(string.match(all[i + 1], '^%d+ ') or '0')
	if ends > now then
		live[#live + 1] = {all[i], ends, string.match(all[i + 1], '^%d+ (.*)$')}
	else
		redis.call('HDEL', KEYS[1], all[i])
	end
end
local reply = {}
if ARGV[1] == '' then
	for i = 1, #live do
		reply[2 * i - 1], reply[2 * i] = live[i][1], live[i][3]
	end
	return reply
end
-- A tenth goes at once, so that a full register is not looked through for each entry.
local most = tonumber(ARGV[4])
if #live > most then
	table.sort(live, function(a, b) return a[2] < b[2] end)
	for i = 1, #live - most + math.floor(most / 10) do redis.call('HDEL', KEYS[1], live[i][1]) end
end
return reply
