-- Writes entries back into a ledger that has lost changes, each as a change of its own, and ends
-- that state.
-- ARGV, after those of ledgerstate.lua: '1' to end it, entries kept in the history, channel, and of
--       each entry its name, the revision it is at ('0': it is not there), what it is now
-- Returns the last revision.
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', tonumber(time[2]))
for i = 9, #ARGV, 3 do
	local held = redis.call('HGET', KEYS[1], ARGV[i])
	local at = held and string.match(held, '^%d+') or '0'
	if at == ARGV[i + 1] then
		floor = floor + 1
		local id = decimal(floor)
		local value = id .. ' ' .. now .. ' ' .. ARGV[i + 2]
		redis.call('HSET', KEYS[1], ARGV[i], value)
		redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], id .. '-0', 'name', ARGV[i], 'is', value)
	end
end
if ARGV[6] == '1' then
	floor = floor + 1 -- what has one number is not read twice
	redis.call('HDEL', KEYS[4], 'lost')
	redis.call('HSET', KEYS[4], 'base', decimal(floor))
	redis.call('PUBLISH', ARGV[8], decimal(floor))
end
redis.call('SET', KEYS[2], decimal(floor))
return decimal(floor)
