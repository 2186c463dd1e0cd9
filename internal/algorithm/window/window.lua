-- The fixed window and the calendar in Redis: the Lua twin of window.go.
-- redisstore/script.go says how twins are joined into a script.
--
-- A string key holds 'w' start end count, in numbers of 8 bytes. The end is stored for nodes
-- with other numbers.

---- kind window
-- grid is 'first'; or 'epoch', windows at multiples of period; or else the bounds of
-- calendar periods round the caller's now, in order, 8 bytes each: the script picks.
---- args cost limit period 'grid'
---- read
-- from_ and to_ are the window that a charge is written to. The units charged already began to
-- count at start_; until_ is the instant at which they end, if that is not to_. kept_start_, kept_stop_ and
-- kept_count_ are what is stored. ahead_ is set if a clock that was wrong opened the window.
local from_, to_, raw_ = now, now + period_, redis.call('GET', key_)
local latest_, ahead_, settled_ = to_, false, false
if grid_ == 'epoch' then
  from_ = now - now % period_
  to_ = from_ + period_
elseif grid_ ~= 'first' then
  to_ = nil
  for i = 1, #grid_ - 8, 8 do
    local a, b = struct.unpack('<i8i8', grid_, i)
    if now >= a and now < b then
      from_, to_ = a, b
      latest_ = i < #grid_ - 16 and struct.unpack('<i8', grid_, i + 16) or nil
    end
  end
  if not to_ then return {-1, now} end -- the caller's clock is far off: it will send others
end
local start_, count_, until_ = from_, 0, 0
local kept_start_, kept_stop_, kept_count_ = 0, 0, 0
if raw_ then
  if #raw_ ~= 25 or raw_:byte() ~= 119 then FOREIGN end
  local start, stop, count = struct.unpack('<i8i8i8', raw_, 2)
  if start > now and not latest_ then return {-1, now} end
  ahead_ = start > now and start > latest_
  if ahead_ then start, stop = from_, to_ end
  kept_start_, kept_stop_, kept_count_ = start, stop, count
  local ends = start + period_
  if grid_ == 'first' then
    stop = ends
  elseif grid_ == 'epoch' then
    start = start - start % period_
    ends = start + period_
  else
    ends = 0
    for i = 1, #grid_ - 8, 8 do
      local a, b = struct.unpack('<i8i8', grid_, i)
      if start >= a and start < b then start, ends = a, b end
    end
  end
  if now < math.max(stop, ends) then
    start_, count_ = start, count
    if stop > ends then until_ = stop end
    if start > now and stop > ends and ends == 0 then ends = stop end -- a calendar's, beyond the bounds
    if start > now or until_ == 0 then from_, to_ = start, ends end
  end
end
---- fit
do
  local left = limit_ - count_
  if left < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- back
if ahead_ and cost_ > 0 then
  redis.call('SET', key_, struct.pack('<c0i8i8i8', 'w', from_, to_, count_), 'PXAT', 2 * math.ceil(to_ / 2000) + 1)
end
---- settle
-- See Settle in window.go.
if cost_ > 0 and kept_count_ > 0 and now < kept_stop_ and (count_ == 0 or kept_stop_ >= to_) then
  kept_count_, settled_ = math.min(kept_count_ + cost_, 4503599627370496), true
  redis.call('SET', key_, struct.pack('<c0i8i8i8', 'w', kept_start_, kept_stop_, kept_count_), 'KEEPTTL')
  if count_ > 0 then count_ = kept_count_ end
end
---- charge
-- A key expires at its window's end, so in the same window it keeps its time.
if cost_ > 0 and not settled_ then
  start_, count_, until_ = from_, math.min(count_ + granted * cost_, 4503599627370496), 0
  if kept_stop_ == to_ then
    redis.call('SET', key_, struct.pack('<c0i8i8i8', 'w', from_, to_, count_), 'KEEPTTL')
  else
    redis.call('SET', key_, struct.pack('<c0i8i8i8', 'w', from_, to_, count_), 'PXAT', 2 * math.ceil(to_ / 2000) + 1)
  end
end
---- refund
if count_ > 0 and cost_ > 0 and taken >= start_ and taken < math.max(to_, until_) then
  count_ = math.max(0, count_ - cost_)
  if count_ > 0 then
    redis.call('SET', key_, struct.pack('<c0i8i8i8', 'w', kept_start_, kept_stop_, count_), 'KEEPTTL')
  else
    redis.call('DEL', key_)
  end
end
---- reply start_ count_ until_
