-- Tells which alerts fire on a node, and learns which fire on any.
-- KEYS: a hash with "alert ID" -> JSON of each alert that fires and "node ID NODE" -> end of the node's word, in ms.
-- ARGV: the node, how long its word holds (ms), then ID and JSON of each alert that fires there. IDs have no spaces.
-- Reply: raised, resolved (both as "+ID" or "-ID" and JSON), then all that fire ("=ID" and JSON).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local node, hold = ARGV[1], tonumber(ARGV[2])
local reply, mine, live = {}, {}, {}
local function add(word, id, text)
	reply[#reply + 1] = word .. id
	reply[#reply + 1] = text
end
for i = 3, #ARGV, 2 do
	local id, text = ARGV[i], ARGV[i + 1]
	mine[id] = true
	local before = redis.call('HGET', KEYS[1], 'alert ' .. id)
	if not before then
		add('+', id, text)
	else -- the newest figures, and when it began
		local since = string.match(before, '"since":"[^"]*"')
		text = since and string.gsub(text, '"since":"[^"]*"', since, 1) or text
	end
	redis.call('HSET', KEYS[1], 'alert ' .. id, text)
	redis.call('HSET', KEYS[1], 'node ' .. id .. ' ' .. node, string.format('%.0f', now + hold))
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
	local id, by = string.match(all[i], '^node (%S+) (%S+)$')
	if id and (by == node and not mine[id] or tonumber(all[i + 1]) < now) then
		redis.call('HDEL', KEYS[1], all[i])
	elseif id then
		live[id] = true
	end
end
for i = 1, #all, 2 do
	local id = string.match(all[i], '^alert (%S+)$')
	if id and live[id] then
		add('=', id, all[i + 1])
	elseif id then
		redis.call('HDEL', KEYS[1], all[i])
		add('-', id, all[i + 1])
	end
end
if #all > 0 then
	redis.call('PEXPIRE', KEYS[1], 2 * hold)
end
return reply
