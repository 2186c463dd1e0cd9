-- Reads all rules and the last revision at one moment.
-- KEYS: rules by name, the last revision
-- ARGV: most rules, most bytes
-- Returns the revision ('' without one), and names and values; or how many are too many.
local many = redis.call('HLEN', KEYS[1])
if many > tonumber(ARGV[1]) then return {'', many} end
local all = redis.call('HGETALL', KEYS[1])
local bytes = 0
for i = 1, #all do bytes = bytes + #all[i] end
if bytes > tonumber(ARGV[2]) then return {'', bytes} end
return {redis.call('GET', KEYS[2]) or '', all}
