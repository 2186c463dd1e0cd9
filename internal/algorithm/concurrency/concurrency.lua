-- Concurrency in Redis: the Lua twin of concurrency.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A sorted set holds, for each lease, 'l' id by the instant (µs) at which it expires. For a lease of n > 1 units also
-- 'u' id by −(n − 1); for each binary digit of n − 1 a member 'd', digit, id by −(the instant + 2^29) × a power of two
-- that is the digit's own, so that ZCOUNT sums units by instants; and '+' by the sum of all n − 1. If more leases have
-- expired than a call deletes, '-' stands by −(the instant): leases that expired by then are gone, also for a clock
-- that steps back.

---- kind leases
---- args cost limit ttl 'id' 'renew'
---- shared
-- Instants and 2^29 are from 2^29 to 2^53: each digit's scores have a range of their own, beside −2^53 to 2^53.
local function digitplace(k) return 2 ^ (k < 26 and -24 * (k + 3) or 24 * (k - 25)) end
local function digitscore(instant, k) return -(instant + 2 ^ 29) * digitplace(k) end
-- digits are the members for the digits of a lease's units beyond the first, and the digits.
local function digits(id, more)
  local members, places, k = {}, {}, 0
  while more > 0 do
    if more % 2 == 1 then
      members[#members + 1] = 'd' .. string.char(64 + k) .. id
      places[#places + 1] = k
    end
    more, k = math.floor(more / 2), k + 1
  end
  return members, places
end
-- setunits gives a lease its units beyond the first, until an instant.
local function setunits(key, id, more, expires)
  local members, places = digits(id, more)
  local words = {-more, 'u' .. id}
  for i = 1, #members do
    words[2 * i + 1], words[2 * i + 2] = digitscore(expires, places[i]), members[i]
  end
  redis.call('ZADD', key, unpack(words))
end
-- unitsof are the units, beyond the first, of leases.
local function unitsof(key, leases)
  local names = {}
  for i = 1, #leases do names[i] = 'u' .. leases[i]:sub(2) end
  if #names == 0 then return names end
  local units = redis.call('ZMSCORE', key, unpack(names))
  for i = 1, #names do units[i] = -(units[i] or 0) end
  return units
end
-- forget deletes leases, and returns the sum of their units beyond the first, if any have several.
local function forget(key, leases, several)
  local names, sum = {unpack(leases)}, 0
  if #names == 0 then return 0 end
  local units = several and unitsof(key, leases) or {}
  for i = 1, #units do
    local id = leases[i]:sub(2)
    local members = units[i] > 0 and digits(id, units[i]) or {}
    for j = 1, #members do names[#names + 1] = members[j] end
    names[#names + 1] = 'u' .. id
    sum = sum + units[i]
  end
  redis.call('ZREM', key, unpack(names))
  return sum
end
-- goneunits are the units, beyond the first, of the leases that expired by an instant: gone are the soonest of them,
-- and all if they are fewer than most.
local function goneunits(key, gone, most, from, extra)
  local sum, k = 0, 0
  if #gone < most then
    for _, units in ipairs(unitsof(key, gone)) do sum = sum + units end
    return sum
  end
  while 2 ^ k <= extra do
    sum = sum + 2 ^ k * redis.call('ZCOUNT', key, digitscore(from, k), digitscore(0, k))
    k = k + 1
  end
  return sum
end
---- read
-- last_ is the instant at which the last lease expires; most_ is how many expired leases a call that writes deletes.
local last_ = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2])
local expires_, extra_, mark_, held_, from_, most_, gone_ = nil, 0, 0, 0, now, 64, {}
if last_ then
  local scores = redis.call('ZMSCORE', key_, 'l' .. id_, '+', '-')
  expires_, extra_, mark_ = tonumber(scores[1] or nil), -(scores[2] or 0), -(scores[3] or 0)
  if extra_ > 0 then most_ = 4 end
  if mark_ > now then from_ = mark_ end
  gone_ = redis.call('ZRANGEBYSCORE', key_, 1, from_, 'LIMIT', 0, most_)
  for i = 1, #gone_ do
    if gone_[i]:byte() ~= 108 then FOREIGN end
  end
  held_ = redis.call('ZCARD', key_)
  if extra_ > 0 then
    held_ = held_ - redis.call('ZCOUNT', key_, '-inf', from_) + extra_ - goneunits(key_, gone_, most_, from_, extra_)
  elseif mark_ > 0 or #gone_ == most_ then
    held_ = held_ - redis.call('ZCOUNT', key_, '-inf', from_)
  else
    held_ = held_ - #gone_
  end
end
local live_, more_ = expires_ and expires_ > from_, extra_
local function purge_()
  extra_ = extra_ - forget(key_, gone_, more_ > 0)
  if extra_ > 0 then redis.call('ZADD', key_, -extra_, '+') elseif more_ > 0 then redis.call('ZREM', key_, '+') end
  if #gone_ == most_ then
    redis.call('ZADD', key_, -from_, '-')
  elseif mark_ > 0 then
    redis.call('ZREM', key_, '-')
  end
end
---- capped
do
  local latest, page = string.format('%.0f', now + ttl_), nil
  for _ = 1, 16 do
    page = redis.call('ZRANGEBYSCORE', key_, '(' .. latest, '+inf', 'LIMIT', 0, 64)
    for i = 1, #page do redis.call('ZADD', key_, 'XX', latest, page[i]) end
    if #page < 64 then break end
  end
  last_ = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2])
end
---- fit
if renew_ == '1' then
  if not live_ then granted = 0 end
elseif not live_ and limit_ - held_ < granted * cost_ then
  granted = 0
end
---- must
if renew_ == '1' and not live_ then granted = 0 end
---- charge
if cost_ > 0 or renew_ == '1' then
  local units, ends = cost_ - 1, now + ttl_
  if live_ then
    units = extra_ > 0 and unitsof(key_, {'l' .. id_})[1] or 0
  else
    held_ = held_ + cost_
    extra_ = extra_ + units - (expires_ and forget(key_, {'l' .. id_}, more_ > 0) or 0)
  end
  if ends <= mark_ then -- the clock has stepped back, and this lease would be gone
    repeat
      gone_ = redis.call('ZRANGEBYSCORE', key_, 1, mark_, 'LIMIT', 0, 64)
      extra_ = extra_ - forget(key_, gone_, more_ > 0)
    until #gone_ == 0
    from_ = now
  end
  purge_()
  if units > 0 then setunits(key_, id_, units, ends) end
  redis.call('ZADD', key_, ends, 'l' .. id_)
  if last_ and ends < last_ and (live_ or ends <= mark_) then
    ends = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2])
    last_ = nil
  end
  if not last_ or ends > last_ then
    last_ = ends
    redis.call('PEXPIREAT', key_, 2 * math.ceil(last_ / 2000) + 1)
  end
end
---- refund
if live_ then
  local units = forget(key_, {'l' .. id_}, extra_ > 0)
  held_, extra_ = held_ - 1 - units, extra_ - units
  purge_()
  last_ = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2])
end
---- restore
-- A renewal is undone: the lease expires at its earlier instant.
if live_ then
  local units = extra_ > 0 and unitsof(key_, {'l' .. id_})[1] or 0
  if units > 0 then setunits(key_, id_, units, taken) end
  redis.call('ZADD', key_, taken, 'l' .. id_)
  last_ = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2])
end
---- after
live_ = live_ and expires_ or 0
if not last_ or last_ <= from_ then last_ = 0 end
-- wait_ is the instant at which enough leases have expired: by the units of the 32 that expire first, and as if each
-- further one were of one unit.
local wait_, excess_ = 0, held_ + cost_ - limit_
if excess_ > 0 and cost_ <= limit_ then
  local first, counted = redis.call('ZCOUNT', key_, '-inf', from_), 0
  if extra_ > 0 then
    local leases = redis.call('ZRANGE', key_, first, first + 31)
    local units = unitsof(key_, leases)
    while counted < #leases and excess_ > 0 do
      counted = counted + 1
      excess_ = excess_ - 1 - units[counted]
    end
    excess_ = math.min(math.max(excess_, 0), redis.call('ZCARD', key_) - first - counted)
  end
  local place = first + counted + excess_ - 1
  wait_ = tonumber(redis.call('ZRANGE', key_, place, place, 'WITHSCORES')[2])
end
---- reply live_ held_ last_ wait_
