-- Reads all rules and the last revision at one moment.
-- ARGV, after those of ledgerstate.lua: most rules, most bytes
-- Returns the revision ('' without one), names and values or how many are too many, the time, when
-- the last change was made ('': unknown), and the last revision that is known to be lost, or 0.
local revision = last > 0 and decimal(last) or ''
local now = redis.call('TIME')
if entries > tonumber(ARGV[6]) then return {revision, entries, now, lastAt, decimal(lost)} end
local all = redis.call('HGETALL', KEYS[1])
local bytes = 0
for i = 1, #all do bytes = bytes + #all[i] end
if bytes > tonumber(ARGV[7]) then return {revision, bytes, now, lastAt, decimal(lost)} end
return {revision, all, now, lastAt, decimal(lost)}
