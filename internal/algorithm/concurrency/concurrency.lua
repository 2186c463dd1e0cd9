-- Concurrency in Redis: the Lua twin of concurrency.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A sorted set holds, for each lease, 'l' id by the instant (µs) at which it expires; for
-- one of n > 1 units also 'u' id by −(n − 1), and '+' by the sum of all such.

---- kind leases
---- args cost limit ttl id renew
---- read
local expires_ = tonumber(redis.call('ZSCORE', key_, 'l' .. id_) or nil)
local live_ = expires_ and expires_ > now
local extra_ = -(redis.call('ZSCORE', key_, '+') or 0)
local held_ = redis.call('ZCOUNT', key_, '(' .. string.format('%.0f', now), '+inf') + extra_
local gone_ = redis.call('ZRANGEBYSCORE', key_, 1, string.format('%.0f', now))
for i = 1, #gone_ do
  if gone_[i]:byte() ~= 108 then FOREIGN end
  if extra_ > 0 then held_ = held_ + (redis.call('ZSCORE', key_, 'u' .. gone_[i]:sub(2)) or 0) end
end
-- forget_ takes out a lease, and purge_ those that expired: whatever writes does.
local function forget_(member)
  redis.call('ZREM', key_, member)
  local units = extra_ > 0 and tonumber(redis.call('ZSCORE', key_, 'u' .. member:sub(2)) or nil)
  if units then
    redis.call('ZREM', key_, 'u' .. member:sub(2))
    extra_ = extra_ + units
  end
end
local function purge_()
  for i = 1, #gone_ do forget_(gone_[i]) end
  if extra_ > 0 then redis.call('ZADD', key_, -extra_, '+') else redis.call('ZREM', key_, '+') end
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
purge_()
if not live_ and cost_ + 0 > 1 then redis.call('ZADD', key_, 1 - cost_, 'u' .. id_) end
redis.call('ZADD', key_, now + ttl_, 'l' .. id_)
do
  local last = redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', key_, 2 * math.ceil(last[2] / 2000) + 1)
end
---- refund
if live_ then
  local before = extra_
  forget_('l' .. id_)
  held_ = held_ - 1 - (before - extra_)
  purge_()
end
---- restore
-- A renewal is taken back: the lease expires when it would have.
if live_ then redis.call('ZADD', key_, taken, 'l' .. id_) end
---- after
live_ = live_ and expires_ or 0
-- last_ is when the last lease expires, wait_ when enough of them have for one more.
local last_, wait_, excess_ = 0, 0, held_ + cost_ - limit_
do
  local top = redis.call('ZRANGE', key_, -1, -1, 'WITHSCORES')
  if top[2] and tonumber(top[2]) > now then last_ = tonumber(top[2]) end
  local first = 0
  while excess_ > 0 and cost_ + 0 <= limit_ + 0 do
    local page = redis.call('ZRANGEBYSCORE', key_, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', first, 64)
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
