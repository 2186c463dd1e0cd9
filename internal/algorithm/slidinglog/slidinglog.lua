-- The sliding log in Redis: the Lua twin of slidinglog.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A list key holds, oldest first, the instant (µs) of each charge; a charge of n > 1 units
-- is its instant and then −(n − 1). The last element is the sum of all units.

---- kind log
---- args cost limit period
---- read
-- used_ is what the window that ends now holds; before it lie dead_ elements.
local used_, dead_, newest_ = 0, 0, nil
do
  local tail = redis.call('LRANGE', key_, -3, -1)
  if tail[1] then
    used_, newest_ = tonumber(tail[#tail]), tonumber(tail[#tail - 1])
    if newest_ and newest_ < 0 then newest_ = tonumber(tail[#tail - 2]) end
    if not used_ or not newest_ then FOREIGN end
    local horizon = math.max(now, newest_) - period_
    local size = 4
    if newest_ <= horizon then
      used_, dead_ = 0, -1
      size = 0
    end
    while size > 0 do
      local page = redis.call('LRANGE', key_, dead_, dead_ + size - 1)
      for i = 1, #page do
        local at = tonumber(page[i])
        if not at then FOREIGN end
        if at > horizon then
          size = 0
          break
        end
        used_ = used_ - (at < 0 and -at or 1)
        dead_ = dead_ + 1
      end
      size = math.min(size * 4, 1024)
    end
  end
end
---- fit
do
  local left = limit_ - used_
  if left < granted * cost_ then
    granted = cost_ ~= '0' and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- charge
do
  local n = math.min(granted * cost_, 4503599627370496 - used_)
  if n > 0 then
    local at = math.max(now, newest_ or now)
    if dead_ < 0 then
      redis.call('DEL', key_)
    elseif dead_ > 0 then
      redis.call('LPOP', key_, dead_)
    end
    used_ = used_ + n
    if newest_ and dead_ >= 0 then redis.call('LSET', key_, -1, at) else redis.call('RPUSH', key_, at) end
    if n > 1 then redis.call('RPUSH', key_, 1 - n, used_) else redis.call('RPUSH', key_, used_) end
    redis.call('PEXPIREAT', key_, 2 * math.ceil((at + period_) / 2000) + 1)
    dead_, newest_ = 0, at
  end
end
---- refund
-- What no window will see again is dropped, even where there is nothing to give back.
if cost_ ~= '0' then
  if dead_ < 0 then
    redis.call('DEL', key_)
    newest_ = nil
  elseif dead_ > 0 then
    redis.call('LPOP', key_, dead_)
    redis.call('LSET', key_, -1, used_)
  end
  dead_ = 0
end
if used_ > 0 and cost_ ~= '0' then
  local all = redis.call('LRANGE', key_, 0, -2)
  local left, kept, i = cost_ + 0, {}, #all
  local before = used_
  while i > 0 do -- newest first
    local at, units = tonumber(all[i]), 1
    if at < 0 then
      units, i = 1 - at, i - 1
      at = tonumber(all[i])
    end
    i = i - 1
    if at == taken then
      local back = math.min(left, units)
      left, units, used_ = left - back, units - back, used_ - back
    end
    if units > 1 then kept[#kept + 1] = 1 - units end
    if units > 0 then kept[#kept + 1] = at end
  end
  if used_ < before then
    redis.call('DEL', key_)
    newest_ = nil
    for j = #kept, 1, -1 do
      redis.call('RPUSH', key_, kept[j])
      if kept[j] >= 0 then newest_ = kept[j] end
    end
    if newest_ then
      redis.call('RPUSH', key_, used_)
      redis.call('PEXPIREAT', key_, 2 * math.ceil((newest_ + period_) / 2000) + 1)
    end
  end
end
---- after
-- wait_ is the charge whose end makes room for one more request.
local wait_, excess_ = 0, used_ + cost_ - limit_
if excess_ > 0 and cost_ + 0 <= limit_ + 0 then
  local first, size = math.max(dead_, 0), 4
  while excess_ > 0 do
    local page = redis.call('LRANGE', key_, first, first + size - 1)
    for i = 1, #page do
      local at = tonumber(page[i])
      if at >= 0 and excess_ <= 0 then break end
      if at >= 0 then wait_ = at end
      excess_ = excess_ - (at < 0 and -at or 1)
    end
    if #page == 0 then FOREIGN end
    first, size = first + size, math.min(size * 4, 1024)
  end
end
if used_ == 0 then newest_ = 0 end
---- reply used_ newest_ wait_
