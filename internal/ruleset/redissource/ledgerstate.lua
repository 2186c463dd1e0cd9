-- What is known of the ledger before anything is read or changed. It stands before each script.
-- KEYS: rules by name, the last revision, the history, notes about the ledger
-- ARGV: what the caller knows: the revision that it has read (-1: it believes everything), the
--       time of that change ('': unknown), how many entries there were then, the last revision
--       that it made itself; and whose the ledger must be: '' anybody's, 'own' this store's, 'look'
--       this store's without a mark being set, 'take' anybody's, which then is this store's
local notes = {}
local noted = redis.call('HGETALL', KEYS[4])
for i = 1, #noted, 2 do notes[noted[i]] = noted[i + 1] end

local entries = redis.call('HLEN', KEYS[1])
local function decimal(n) return string.format('%.0f', n) end
local function changedAt(entry) return string.match(entry[2][4], '^%d+ (%d+) ') or '' end
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
local last, lastAt = tonumber(redis.call('GET', KEYS[2]) or '0') or 0, ''
if newest then -- the counter may have been lost alone
	local id = tonumber(string.match(newest[1], '^%d+'))
	if id >= last then last, lastAt = id, changedAt(newest) end
end

local seen, made = tonumber(ARGV[1]), tonumber(ARGV[4])
if last < math.max(seen, made) then -- counter and history may be lost, and no rule
	local all = redis.call('HGETALL', KEYS[1])
	for i = 2, #all, 2 do last = math.max(last, tonumber(string.match(all[i], '^%d+ ') or '0')) end
end
if ARGV[5] ~= '' and not notes.store then
	if ARGV[5] ~= 'take' and seen <= 0 and (last > 0 or entries > 0) then
		return redis.error_reply('FOREIGN the ledger was not made for this store')
	end
	if ARGV[5] ~= 'look' then redis.call('HSET', KEYS[4], 'store', '1') end
end

-- A change that somebody has seen and that is not there any more is lost: the keys were deleted
-- or evicted, or a replica took over that had not received it. Up to notes.base that is settled.
local base, lost = tonumber(notes.base or '0'), tonumber(notes.lost or '0')
if seen < 0 then
	lost = 0
elseif math.max(seen, made) > base then
	local gone = last < math.max(seen, made)
	if seen > base and not gone then
		gone = entries < tonumber(ARGV[3]) - (last - seen) -- a change deletes one entry at most
		local entry = redis.call('XREVRANGE', KEYS[3], ARGV[1] .. '-0', ARGV[1] .. '-0')[1]
		gone = gone or entry and ARGV[2] ~= '' and changedAt(entry) ~= ARGV[2]
	end
	if gone then
		lost = math.max(lost, last, seen, made)
		redis.pcall('HSET', KEYS[4], 'lost', decimal(lost)) -- for those that have seen nothing yet
	end
end
local floor = math.max(last, lost, base, seen, made) -- no number is given twice
