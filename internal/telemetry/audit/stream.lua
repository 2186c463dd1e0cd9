-- Appends a batch of records to their streams, once.
-- KEYS: the last batch of this writer, the streams. ARGV: the batch, the most entries of a stream; of each record the
-- number of its stream among the keys, and seventeen fields.
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return {0}
end
for i = 3, #ARGV, 18 do
	redis.call('XADD', KEYS[tonumber(ARGV[i])], 'MAXLEN', '~', ARGV[2], '*', 'at', ARGV[i + 1], 'wait_ns', ARGV[i + 2],
		'estimate', ARGV[i + 3], 'cost', ARGV[i + 4], 'node', ARGV[i + 5], 'outcome', ARGV[i + 6], 'reason', ARGV[i + 7],
		'rule', ARGV[i + 8], 'key', ARGV[i + 9], 'request_id', ARGV[i + 10], 'method', ARGV[i + 11], 'path', ARGV[i + 12],
		'client', ARGV[i + 13], 'unit', ARGV[i + 14], 'actor', ARGV[i + 15], 'text', ARGV[i + 16], 'class', ARGV[i + 17])
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', 86400)
return {1}
