-- Changes one rule, if it is at the revision that its author has seen, or notes what was done.
-- ARGV, after those of ledgerstate.lua: name, revision seen (0: there is none), what it is now,
--       whether that is deleted, most rules, entries kept in the history, channel
-- Returns 1 and the new revision, 0 and the revision it is at, -1 if there are too many, or -2
-- and the last revision that is known to be lost.
if lost > 0 then return {-2, decimal(lost)} end
local held = redis.call('HGET', KEYS[1], ARGV[6])
local at = '0'
if held then
	at = string.match(held, '^%d+ ')
	if not at then return redis.error_reply('FOREIGN ' .. KEYS[1] .. ' holds what no ledger wrote') end
	at = string.sub(at, 1, -2)
end
if at ~= ARGV[7] then return {0, at} end
local note = not held and ARGV[9] == '1' -- for the history alone: nothing is another
if not held and not note and entries >= tonumber(ARGV[10]) then return {-1, '0'} end

local id = decimal(floor + 1)
redis.call('SET', KEYS[2], id)
local time = redis.call('TIME')
local value = id .. ' ' .. time[1] .. string.format('%06d', tonumber(time[2])) .. ' ' .. ARGV[8]
if ARGV[9] == '1' then
	redis.call('HDEL', KEYS[1], ARGV[6])
else
	redis.call('HSET', KEYS[1], ARGV[6], value)
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[11], id .. '-0', 'name', ARGV[6], 'is', value)
if not note then redis.call('PUBLISH', ARGV[12], id) end
return {1, id}
