-- Tells what a node has counted, and one of the nodes what all have.
-- KEYS: a hash of nodes with the end of their word, in ms, and JSON; "adds" has the end and the node that adds up.
-- ARGV: the node, how long its word holds (ms), JSON. Nodes have no spaces.
-- Reply: to the node that adds up itself and its JSON, then the others with theirs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local node = ARGV[1]
local fresh = string.format('%.0f', now + ARGV[2]) .. ' '
redis.call('HSET', KEYS[1], 'node ' .. node, fresh .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local till, adds = string.match(redis.call('HGET', KEYS[1], 'adds') or '', '^(%d+) (%S+)$')
if till and adds ~= node and tonumber(till) >= now then
	return {}
end
redis.call('HSET', KEYS[1], 'adds', fresh .. node)
local reply, all = {node, ARGV[3]}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
	local other = string.match(all[i], '^node (%S+)$')
	local ends, text = string.match(all[i + 1], '^(%d+) (.*)$')
	if other and (not ends or tonumber(ends) < now) then
		redis.call('HDEL', KEYS[1], all[i])
	elseif other and other ~= node then
		reply[#reply + 1] = other
		reply[#reply + 1] = text
	end
end
return reply
