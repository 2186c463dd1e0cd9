-- Concurrency in Redis: the Lua twin of concurrency.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A sorted set holds, for each lease, 'l' id by the instant (µs) at which it expires; for
-- one of n > 1 units also 'u' id by −(n − 1), and '+' by the sum of all such. If more leases have
-- expired than a call deletes, '-' stands by −(the instant): leases that expired by then are gone,
-- also for a clock that steps back.

---- kind leases
---- args cost limit ttl id renew
---- read
local expires_, extra_, mark_ = nil, 0, 0
do
  local scores = redis.call('ZMSCORE', key_, 'l' .. id_, '+', '-')
  expires_, extra_, mark_ = tonumber(scores[1] or nil), -(scores[2] or 0), -(scores[3] or 0)
end
local from_, more_, last_ = math.max(now, mark_), extra_, nil
local live_ = expires_ and expires_ > from_
local from_text_ = string.format('%.0f', from_)
local held_ = redis.call('ZCOUNT', key_, '(' .. from_text_, '+inf') + extra_
-- Leases of one unit each need not be read: a call deletes 64.
local gone_ = redis.call('ZRANGEBYSCORE', key_, 1, from_text_, 'LIMIT', 0, extra_ > 0 and -1 or 64)
for i = 1, #gone_ do
  if gone_[i]:byte() ~= 108 then FOREIGN end
  if extra_ > 0 then held_ = held_ + (redis.call('ZSCORE', key_, 'u' .. gone_[i]:sub(2)) or 0) end
end
-- forget_ deletes a lease. purge_ deletes the expired ones, in each step that writes.
local function forget_(member)
  redis.call('ZREM', key_, member)
  local units = extra_ > 0 and tonumber(redis.call('ZSCORE', key_, 'u' .. member:sub(2)) or nil)
  if units then
    redis.call('ZREM', key_, 'u' .. member:sub(2))
    extra_ = extra_ + units
  end
end
local function purge_()
  if more_ > 0 then
    for i = 1, #gone_ do forget_(gone_[i]) end
  elseif #gone_ > 0 then
    redis.call('ZREM', key_, unpack(gone_))
  end
  if extra_ > 0 then redis.call('ZADD', key_, -extra_, '+') elseif more_ > 0 then redis.call('ZREM', key_, '+') end
  if more_ == 0 and #gone_ == 64 then
    redis.call('ZADD', key_, -from_, '-')
  elseif mark_ > 0 then
    redis.call('ZREM', key_, '-')
  end
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
if not live_ then
  held_ = held_ + cost_
  if cost_ + 0 > 1 then extra_ = extra_ + cost_ - 1 end
end
if mark_ > 0 and now + ttl_ <= mark_ then -- the clock has stepped back, and this lease would be gone
  redis.call('ZREMRANGEBYSCORE', key_, 1, mark_)
  gone_ = {}
end
purge_()
if not live_ and cost_ + 0 > 1 then redis.call('ZADD', key_, 1 - cost_, 'u' .. id_) end
redis.call('ZADD', key_, now + ttl_, 'l' .. id_)
do
  local last = redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')
  last_ = tonumber(last[2])
  redis.call('PEXPIREAT', key_, 2 * math.ceil(last_ / 2000) + 1)
end
---- refund
if live_ then
  local before = extra_
  forget_('l' .. id_)
  held_ = held_ - 1 - (before - extra_)
  purge_()
end
---- restore
-- A renewal is undone: the lease expires at its earlier instant.
if live_ then redis.call('ZADD', key_, taken, 'l' .. id_) end
---- after
live_ = live_ and expires_ or 0
-- last_ is the instant at which the last lease expires, wait_ the one at which one more fits.
local wait_, excess_ = 0, held_ + cost_ - limit_
do
  if not last_ then last_ = tonumber(redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')[2]) end
  if not last_ or last_ <= from_ then last_ = 0 end
  local first = 0
  while excess_ > 0 and cost_ + 0 <= limit_ + 0 do
    local page = redis.call('ZRANGEBYSCORE', key_, '(' .. from_text_, '+inf', 'WITHSCORES', 'LIMIT', first, 64)
    for i = 1, #page, 2 do
      if excess_ <= 0 then break end
      wait_ = tonumber(page[i + 1])
      excess_ = excess_ - 1 + (extra_ > 0 and redis.call('ZSCORE', key_, 'u' .. page[i]:sub(2)) or 0)
    end
    if #page == 0 then break end
    first = first + 64
  end
end
---- reply live_ held_ last_ wait_
