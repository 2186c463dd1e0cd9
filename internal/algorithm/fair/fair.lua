-- Fair limits in Redis: the Lua twins of this folder. Each is the twin of the shared limit, and more steps:
-- redisstore/script.go says how twins are joined into a script.
--
-- The field h of a hash holds the state of the shared limit, and then, in numbers of 8 bytes, the sum of the weights, the
-- number of members and the units of the members beyond keys. A field of two bytes has the members with that number: for
-- each, 8 bytes of its own, its weight in 2 bytes, and its units in 8. So a hash of 10,000 members has 513 fields, and
-- Redis deletes it in a moment.
--
-- x - x % 1 is x rounded down, and x + -x % 1 rounded up: a call of math.floor takes longer.

---- kind fair_window
-- Its steps follow those of window.
---- like window
-- fair is the limit, above, keys, and the member's weight, 8 bytes and field.
---- args 'fair'
---- shared
-- fair_of is the place of a member among others, its units, its share, and the sum of the weights of all members with
-- this one. A member that is not told apart has the weight 1, and rest is true.
local function fair_of(whole, sum, members, others, set, member, weight, keys)
  local at, own, share, rest = set:find(member, 1, true), others, nil, nil
  while at and at % 18 ~= 1 do at = set:find(member, at + 1, true) end
  if at then
    local had, units = struct.unpack('<I2i8', set, at + 8)
    own, sum = units, sum - had + weight
  elseif members < keys then
    own, sum = 0, sum + weight
  else
    weight, rest = 1, true
    if others == 0 then sum = sum + 1 end
  end
  share = whole * weight / sum
  return at, own, share - share % 1, sum, rest
end
---- before
local whole_, above_, keys_, weight_, member_, place_ = struct.unpack('<i8i8i4I2c8c2', fair_)
local got_, head_, stop_, number_, expires_, gone_ = redis.call('HMGET', key_, 'h', place_), false, 0, 0, false, false
local sum_, members_, others_, set_ = 0, 0, 0, got_[2] or ''
---- read
if not raw_ and redis.call('EXISTS', key_) == 1 then FOREIGN end
if count_ == 0 then sum_, members_, others_, set_ = 0, 0, 0, '' end
local at_, own_, share_, all_, rest_ = fair_of(whole_, sum_, members_, others_, set_, member_, weight_, keys_)
---- fit
do
  local open, rest = whole_, share_ - own_
  if start_ == from_ then
    local passed = now > from_ and 100 * (now - from_) / (to_ - from_) or 0
    if passed < 100 then open = whole_ * (passed - passed % 1) / 100 end
    open = open + -open % 1
    if open < above_ then open = above_ end
  end
  if rest < open - count_ then rest = open - count_ end
  if rest < 0 or rest < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(rest / cost_)) or 0
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
  if settled_ and count_ == 0 then -- the window counts under other numbers only
    sum_, members_, others_ = struct.unpack('<i8i8i8', raw_, 26)
    set_ = got_[2] or ''
    at_, own_, share_, all_, rest_ = fair_of(whole_, sum_, members_, others_, set_, member_, weight_, keys_)
  end
  own_, sum_ = own_ + granted * cost_, all_
  if own_ > 4503599627370496 then own_ = 4503599627370496 end
  if at_ or members_ < keys_ then
    local part = struct.pack('<c0I2i8', member_, weight_, own_)
    if at_ then
      local first = at_ > 1 and set_:sub(1, at_ - 1) or ''
      set_ = first .. part .. (at_ + 17 < #set_ and set_:sub(at_ + 18) or '')
    else
      set_, members_ = set_ .. part, members_ + 1
    end
  else
    others_ = own_
  end
end
---- refund
if head_ or gone_ then
  if at_ then
    local had, own = struct.unpack('<I2i8', set_, at_ + 8)
    if own > cost_ then
      set_ = set_:sub(1, at_ + 9) .. struct.pack('<i8', own - cost_) .. set_:sub(at_ + 18)
    else
      set_ = set_:sub(1, at_ - 1) .. set_:sub(at_ + 18)
      sum_, members_ = sum_ - had, members_ - 1
    end
  elseif others_ > 0 then
    others_ = math.max(0, others_ - cost_)
    if others_ == 0 then sum_ = sum_ - 1 end
  end
  if gone_ then sum_, members_, others_, set_ = 0, 0, 0, '' end
  at_, own_, share_, all_, rest_ = fair_of(whole_, sum_, members_, others_, set_, member_, weight_, keys_)
end
---- store
if gone_ then
  redis.call('UNLINK', key_)
elseif head_ then
  local head = struct.pack('<c0i8i8i8i8i8i8', 'w', head_, stop_, number_, sum_, members_, others_)
  redis.call('HSET', key_, 'h', head, place_, set_)
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
-- The id of a lease begins with the 8 bytes of its member, and before them zeros if it is one beyond keys. For each of
-- them the sorted set has 'm' by −(its units) and 'w' by −(its weight), and '=' by −(the sum of the weights), '#' by
-- −(the number of members).
---- like leases
---- args 'fair'
---- shared
local fair_rest = ('\0'):rep(8)
-- fair_tally is how many units the leases, as far as they are there, have of each member; and in numbers the sum of the
-- weights, the number of members, and from its place on what each member has and weighs.
local function fair_tally(key, leases, several)
  local names, places, tally = {'=', '#'}, {}, {}
  for i = 1, #leases do
    local member = leases[i]:sub(2, 9)
    if not places[member] then
      places[member] = #names + 1
      names[#names + 1] = 'm' .. member
      names[#names + 1] = 'w' .. member
    end
  end
  local first = #names
  for i = 1, #leases do names[first + i] = leases[i] end
  local numbers, units = redis.call('ZMSCORE', key, unpack(names)), several and unitsof(key, leases) or {}
  for i = 1, #leases do
    local member = leases[i]:sub(2, 9)
    if numbers[first + i] then tally[member] = (tally[member] or 0) + 1 + (units[i] or 0) end
  end
  return tally, places, numbers
end
-- fair_forget is forget, and takes the leases' units from their members.
local function fair_forget(key, leases, several)
  if #leases == 0 then return 0 end
  local tally, places, numbers = fair_tally(key, leases, several)
  local sum, members, sets, gone = -(numbers[1] or 0), -(numbers[2] or 0), {}, {}
  local function set(name, n)
    if n > 0 then
      sets[#sets + 1] = -n
      sets[#sets + 1] = name
    else
      gone[#gone + 1] = name
    end
  end
  for member, units in pairs(tally) do
    local place = places[member]
    local left = -(numbers[place] or 0) - units
    set('m' .. member, left)
    if left <= 0 then
      gone[#gone + 1] = 'w' .. member
      sum = sum + (numbers[place + 1] or 0)
      if member ~= fair_rest then members = members - 1 end
    end
  end
  if #gone > 0 then
    set('=', sum)
    set('#', members)
  end
  if #sets > 0 then redis.call('ZADD', key, unpack(sets)) end
  if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
  return forget(key, leases, several)
end
-- fair_standing is a member's units, its weight, the sum of all weights with it, and whose units it takes, by its
-- numbers and without the leases that expired: of more than 32 the later ones count until they are deleted.
local function fair_standing(key, numbers, dead, several, member, weight, keys)
  local own, had, sum, members, rest = -(numbers[1] or 0), -(numbers[2] or 0), -(numbers[3] or 0), -(numbers[4] or 0),
    -(numbers[5] or 0)
  if #dead > 0 then
    local tally, places, all = fair_tally(key, dead, several)
    for name, units in pairs(tally) do
      local place = places[name]
      local left = -(all[place] or 0) - units
      if left <= 0 then
        sum = sum + (all[place + 1] or 0)
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
local dead_ = nil
id_ = member_ .. id_
local numbers_ = redis.call('ZMSCORE', key_, 'm' .. member_, 'w' .. member_, '=', '#', 'm' .. fair_rest,
  'l' .. fair_rest .. id_, 'l' .. id_)
-- Of two leases of the member with this id, one of each name, at most the one that expires last is held.
local beyond_ = tonumber(numbers_[6] or 0) > tonumber(numbers_[7] or 0)
if beyond_ then id_ = fair_rest .. id_ end
---- read
dead_ = gone_
if #gone_ == most_ then dead_ = redis.call('ZRANGEBYSCORE', key_, 1, from_, 'LIMIT', 0, 32) end
local own_, mine_, all_, part_ = fair_standing(key_, numbers_, dead_, extra_ > 0, member_, weight_, keys_)
if not live_ then
  if beyond_ then id_ = id_:sub(9) end
  if part_ == fair_rest then id_ = fair_rest .. id_ end
end
---- fit
if renew_ ~= '1' and not live_ then
  local left = math.max(above_ - held_, math.floor(whole_ * mine_ / all_) - own_)
  if left < 0 or left < granted * cost_ then granted = 0 end
end
---- charge
if cost_ > 0 and not live_ then
  if expires_ or mark_ > 0 or #gone_ > 0 or part_ ~= member_ then -- leases were deleted
    numbers_ = redis.call('ZMSCORE', key_, 'm' .. part_, 'w' .. part_, '=', '#')
  end
  local units, had, members = -(numbers_[1] or 0), -(numbers_[2] or 0), -(numbers_[4] or 0)
  if units > 0 and had == mine_ then
    redis.call('ZADD', key_, -units - cost_, 'm' .. part_)
  else
    if units == 0 and part_ ~= fair_rest then members = members + 1 end
    local sum = -(numbers_[3] or 0) - had + mine_
    redis.call('ZADD', key_, -units - cost_, 'm' .. part_, -mine_, 'w' .. part_, -sum, '=')
    if members > 0 then redis.call('ZADD', key_, -members, '#') end
  end
  own_ = own_ + cost_
end
---- refund
if live_ then
  numbers_ = redis.call('ZMSCORE', key_, 'm' .. member_, 'w' .. member_, '=', '#', 'm' .. fair_rest)
  dead_ = #gone_ == most_ and redis.call('ZRANGEBYSCORE', key_, 1, from_, 'LIMIT', 0, 32) or {}
  own_, mine_, all_, part_ = fair_standing(key_, numbers_, dead_, extra_ > 0, member_, weight_, keys_)
end
---- standing
-- all_ is negative if the member is not told apart.
mine_ = math.floor(whole_ * mine_ / all_)
if math.max(above_ - held_, mine_ - own_) < cost_ then limit_ = math.min(limit_, math.max(above_, cost_)) end
if part_ == fair_rest then all_ = -all_ end
---- reply own_ all_
