-- Changes one rule, if it is at the revision that its author has seen, or notes what was done.
-- KEYS: rules by name, the last revision, the history
-- ARGV: name, revision seen (0: there is none), what it is now, whether that is deleted,
--       most rules, entries kept in the history, channel
-- Returns 1 and the new revision, 0 and the revision it is at, or -1 if there are too many.
local held = redis.call('HGET', KEYS[1], ARGV[1])
local at = '0'
if held then
	at = string.match(held, '^%d+ ')
	if not at then return redis.error_reply('FOREIGN ' .. KEYS[1] .. ' holds what no ledger wrote') end
	at = string.sub(at, 1, -2)
end
if at ~= ARGV[2] then return {0, at} end
local note = not held and ARGV[4] == '1' -- for the history alone: nothing is another
if not held and not note and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then return {-1, '0'} end

local revision = redis.call('INCR', KEYS[2])
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
if newest then -- the counter may have been lost alone
	local last = tonumber(string.match(newest[1], '^%d+'))
	if last >= revision then
		revision = last + 1
		redis.call('SET', KEYS[2], string.format('%.0f', revision))
	end
end
local id = string.format('%.0f', revision)
local time = redis.call('TIME')
local value = id .. ' ' .. time[1] .. string.format('%06d', tonumber(time[2])) .. ' ' .. ARGV[3]
if ARGV[4] == '1' then
	redis.call('HDEL', KEYS[1], ARGV[1])
else
	redis.call('HSET', KEYS[1], ARGV[1], value)
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], id .. '-0', 'name', ARGV[1], 'is', value)
if not note then redis.call('PUBLISH', ARGV[7], id) end
return {1, id}
