-- Appends a batch of records to their streams, once.
-- KEYS: the last batch of this writer, the streams. ARGV: the batch, the most entries of a stream; of each record the
-- number of its stream among the keys, and fourteen fields.
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return {0}
end
for i = 3, #ARGV, 15 do
	redis.call('XADD', KEYS[tonumber(ARGV[i])], 'MAXLEN', '~', ARGV[2], '*', 'at', ARGV[i + 1], 'wait_ns', ARGV[i + 2],
		'node', ARGV[i + 3], 'outcome', ARGV[i + 4], 'reason', ARGV[i + 5], 'rule', ARGV[i + 6], 'key', ARGV[i + 7],
		'request_id', ARGV[i + 8], 'method', ARGV[i + 9], 'path', ARGV[i + 10], 'client', ARGV[i + 11],
		'actor', ARGV[i + 12], 'text', ARGV[i + 13], 'class', ARGV[i + 14])
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', 86400)
return {1}
