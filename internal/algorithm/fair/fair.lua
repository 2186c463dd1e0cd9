-- Fair limits in Redis: the Lua twins of this folder. Each is the twin of the shared limit, and more steps:
-- redisstore/script.go says how twins are joined into a script.
--
-- The field h of a hash holds, in numbers of 8 bytes, the sum of the weights, the number of members and the units of the
-- members beyond keys, and then the state of the shared limit. A field of two bytes has the members with that number: for
-- each, 8 bytes of its own, its weight in 2 bytes, and its units in 8. So a hash of 10,000 members has 513 fields, and
-- Redis deletes it in a moment.

---- kind fair_window
-- Its steps follow those of window.
---- like window
-- fair is the limit, above, keys, and the member's weight and 8 bytes; place the field that has it.
---- args 'fair' 'place'
---- shared
-- fair_find is the place of a member among others.
local function fair_find(set, member)
  local at = set:find(member, 1, true)
  while at and at % 18 ~= 1 do at = set:find(member, at + 1, true) end
  return at
end
-- fair_of is a member's place, its units, its weight, and the sum of the weights of all members with this one. A member
-- that is not told apart has the weight 1, and rest is true.
local function fair_of(sum, members, others, set, member, weight, keys)
  local at = fair_find(set, member)
  if at then
    local had, own = struct.unpack('<I2i8', set, at + 8)
    return at, own, weight, sum - had + weight
  end
  if members < keys then return nil, 0, weight, sum + weight end
  return nil, others, 1, others > 0 and sum or sum + 1, true
end
---- before
local got_, head_, expires_, gone_ = redis.call('HMGET', key_, 'h', place_), false, false, false
local whole_, above_, keys_, weight_, member_ = struct.unpack('<i8i8i4I2c8', fair_)
local text_ = got_[1]
if text_ then
  if #text_ < 25 then FOREIGN end
  got_[1] = text_:sub(25)
end
---- read
local sum_, members_, others_, set_ = 0, 0, 0, ''
if count_ > 0 then
  sum_, members_, others_ = struct.unpack('<i8i8i8', text_)
  set_ = got_[2] or ''
end
local at_, own_, mine_, all_, rest_ = fair_of(sum_, members_, others_, set_, member_, weight_, keys_)
---- fit
do
  local open = 100
  if start_ == from_ then open = math.min(100, math.floor(100 * math.max(0, now - from_) / (to_ - from_))) end
  open = math.max(above_, math.ceil(whole_ * open / 100))
  local left = math.max(open - count_, math.floor(whole_ * mine_ / all_) - own_)
  if left < 0 or left < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- prepare
-- The members of a window that is over go with it.
if cost_ > 0 and raw_ and not settled_ and count_ == 0 then
  redis.call('UNLINK', key_)
  kept_stop_ = 0
end
---- charge
if cost_ > 0 then
  if settled_ and sum_ == 0 then -- the window counts under other numbers only
    sum_, members_, others_ = struct.unpack('<i8i8i8', text_)
    set_ = got_[2] or ''
    at_, own_, mine_, all_, rest_ = fair_of(sum_, members_, others_, set_, member_, weight_, keys_)
  end
  local units = math.min(own_ + granted * cost_, 4503599627370496)
  if at_ then
    set_ = set_:sub(1, at_ + 7) .. struct.pack('<I2i8', weight_, units) .. set_:sub(at_ + 18)
    sum_ = all_
  elseif members_ < keys_ then
    set_ = set_ .. member_ .. struct.pack('<I2i8', weight_, units)
    sum_, members_ = all_, members_ + 1
  else
    others_, sum_ = units, all_
  end
  own_ = units
end
---- refund
if head_ or gone_ then
  local at, own, had = fair_find(set_, member_), 0, 0
  if at then
    had, own = struct.unpack('<I2i8', set_, at + 8)
    if own > cost_ then
      set_ = set_:sub(1, at + 9) .. struct.pack('<i8', own - cost_) .. set_:sub(at + 18)
    else
      set_ = set_:sub(1, at - 1) .. set_:sub(at + 18)
      sum_, members_ = sum_ - had, members_ - 1
    end
  elseif others_ > 0 then
    others_ = math.max(0, others_ - cost_)
    if others_ == 0 then sum_ = sum_ - 1 end
  end
  if gone_ then sum_, members_, others_, set_ = 0, 0, 0, '' end
  at_, own_, mine_, all_, rest_ = fair_of(sum_, members_, others_, set_, member_, weight_, keys_)
end
---- store
if gone_ then
  redis.call('UNLINK', key_)
elseif head_ then
  redis.call('HSET', key_, 'h', struct.pack('<i8i8i8', sum_, members_, others_) .. head_, place_, set_)
  if expires_ then redis.call('PEXPIREAT', key_, 2 * math.ceil(expires_ / 2000) + 1) end
end
head_, expires_, gone_ = false, false, false
---- after
-- all_ is negative if the member is not told apart.
if count_ == 0 then
  own_, all_ = 0, weight_
elseif rest_ then
  all_ = -all_
end
---- reply own_ all_

---- kind fair_leases
-- The id of a lease begins with the 8 bytes of its member, or with zeros if it is of the members beyond keys. For each of
-- them the sorted set has 'm' by −(its units) and 'w' by −(its weight), and '=' by −(the sum of the weights), '#' by
-- −(the number of members).
---- like leases
---- args 'fair'
---- shared
local fair_rest = ('\0'):rep(8)
-- fair_tally is how many units leases have of each member, and the members.
local function fair_tally(key, leases, several)
  local there, units = redis.call('ZMSCORE', key, unpack(leases)), several and unitsof(key, leases) or {}
  local tally, names = {}, {}
  for i = 1, #leases do
    local member = leases[i]:sub(2, 9)
    if there[i] and not tally[member] then
      tally[member] = 0
      names[#names + 1] = 'm' .. member
      names[#names + 1] = 'w' .. member
    end
    if there[i] then tally[member] = tally[member] + 1 + (units[i] or 0) end
  end
  return tally, names
end
-- fair_forget is forget, and takes the leases' units from their members.
local function fair_forget(key, leases, several)
  if #leases == 0 then return 0 end
  local tally, names = fair_tally(key, leases, several)
  if #names > 0 then
    local held = redis.call('ZMSCORE', key, '=', '#', unpack(names))
    local sum, members = -(held[1] or 0), -(held[2] or 0)
    local sets, gone = {}, {}
    for i = 1, #names, 2 do
      local member = names[i]:sub(2)
      local left = -(held[i + 2] or 0) - tally[member]
      if left > 0 then
        sets[#sets + 1] = -left
        sets[#sets + 1] = names[i]
      else
        gone[#gone + 1] = names[i]
        gone[#gone + 1] = names[i + 1]
        sum = sum + (held[i + 3] or 0)
        if member ~= fair_rest then members = members - 1 end
      end
    end
    if sum > 0 then
      sets[#sets + 1] = -sum
      sets[#sets + 1] = '='
    else
      gone[#gone + 1] = '='
    end
    if members > 0 then
      sets[#sets + 1] = -members
      sets[#sets + 1] = '#'
    else
      gone[#gone + 1] = '#'
    end
    if #sets > 0 then redis.call('ZADD', key, unpack(sets)) end
    if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
  end
  return forget(key, leases, several)
end
-- fair_standing is a member's units, its weight, the sum of all weights with it, and whose units it takes, without the
-- leases that expired: of more than 32 the later ones count until they are deleted.
local function fair_standing(key, dead, several, member, weight, keys)
  local held = redis.call('ZMSCORE', key, 'm' .. member, 'w' .. member, '=', '#', 'm' .. fair_rest)
  local own, had, sum, members, rest = -(held[1] or 0), -(held[2] or 0), -(held[3] or 0), -(held[4] or 0), -(held[5] or 0)
  if #dead > 0 then
    local tally, names = fair_tally(key, dead, several)
    local all = #names > 0 and redis.call('ZMSCORE', key, unpack(names)) or {}
    for i = 1, #names, 2 do
      local name = names[i]:sub(2)
      local left = -(all[i] or 0) - tally[name]
      if left <= 0 then
        sum = sum + (all[i + 1] or 0)
        if name ~= fair_rest then members = members - 1 end
      end
      if name == member then own = left end
      if name == fair_rest then rest = left end
    end
  end
  if own > 0 then return own, weight, sum - had + weight, member end
  if members < keys then return 0, weight, sum + weight, member end
  return rest, 1, rest > 0 and sum or sum + 1, fair_rest
end
---- before
local whole_, above_, keys_, weight_, member_ = struct.unpack('<i8i8i4I2c8', fair_)
local bare_ = id_
id_ = member_ .. bare_
if redis.call('ZSCORE', key_, 'l' .. fair_rest .. bare_) then id_ = fair_rest .. bare_ end
---- read
local dead_ = gone_
if #gone_ == most_ then dead_ = redis.call('ZRANGEBYSCORE', key_, 1, from_, 'LIMIT', 0, 32) end
local own_, mine_, all_, part_ = fair_standing(key_, dead_, extra_ > 0, member_, weight_, keys_)
if not live_ then id_ = part_ .. bare_ end
---- fit
if renew_ ~= '1' and not live_ then
  local left = math.max(above_ - held_, math.floor(whole_ * mine_ / all_) - own_)
  if left < 0 or left < granted * cost_ then granted = 0 end
end
---- charge
if cost_ > 0 and not live_ then
  local held = redis.call('ZMSCORE', key_, 'm' .. part_, 'w' .. part_, '=', '#')
  local units, sum, members = -(held[1] or 0), -(held[3] or 0) + (held[2] or 0) + mine_, -(held[4] or 0)
  if units == 0 and part_ ~= fair_rest then members = members + 1 end
  redis.call('ZADD', key_, -units - cost_, 'm' .. part_, -mine_, 'w' .. part_, -sum, '=')
  if members > 0 then redis.call('ZADD', key_, -members, '#') end
  own_ = own_ + cost_
end
---- refund
if live_ then
  dead_ = redis.call('ZRANGEBYSCORE', key_, 1, from_, 'LIMIT', 0, 32)
  own_, mine_, all_, part_ = fair_standing(key_, dead_, extra_ > 0, member_, weight_, keys_)
end
---- standing
-- all_ is negative if the member is not told apart.
mine_ = math.floor(whole_ * mine_ / all_)
if math.max(above_ - held_, mine_ - own_) < cost_ then limit_ = math.min(limit_, math.max(above_, cost_)) end
if part_ == fair_rest then all_ = -all_ end
---- reply own_ all_
