-- Appends a batch of records to a stream, once.
-- KEYS: the stream, the last batch of this writer. ARGV: the batch, the most entries, ten fields of each record.
if redis.call('GET', KEYS[2]) == ARGV[1] then
	return {0}
end
for i = 3, #ARGV, 10 do
	redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'at', ARGV[i], 'wait_ns', ARGV[i + 1],
		'node', ARGV[i + 2], 'outcome', ARGV[i + 3], 'reason', ARGV[i + 4], 'rule', ARGV[i + 5], 'key', ARGV[i + 6],
		'request_id', ARGV[i + 7], 'actor', ARGV[i + 8], 'text', ARGV[i + 9])
end
redis.call('SET', KEYS[2], ARGV[1], 'EX', 86400)
return {1}
