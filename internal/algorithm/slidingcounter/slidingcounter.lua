-- The sliding counter in Redis: the Lua twin of slidingcounter.go. redisstore/script.go
-- says how twins are joined into a script.
--
-- A string key holds '4' or '8', then in numbers of 8 bytes the index of the newest slice,
-- the length of a slice (µs) and the sum of the counts, and then the counts, 4 or 8 bytes
-- each: that of slice i at i mod their number.

---- kind counter
---- args cost limit slice slices tick
---- shared
local counter_pack, counter_unpack, counter_floor = struct.pack, struct.unpack, math.floor
-- counter_open is the size of a count, the index of the newest slice, its length, the sum and the number of counts.
local function counter_open(raw)
  local size, newest, width, total = raw:byte() - 48, counter_unpack('<i8i8i8', raw, 2)
  return size, newest, width, total, (#raw - 25) / size
end
local function counter_get(raw, size, place)
  return (counter_unpack(size == 4 and '<I4' or '<i8', raw, 26 + place * size))
end
local function counter_set(raw, size, place, n)
  local at = 25 + place * size
  return raw:sub(1, at) .. counter_pack(size == 4 and '<I4' or '<i8', n) .. raw:sub(at + size + 1)
end
-- counter_pick is a counter whose slice last is the newest, of what count says of each.
local function counter_pick(last, slice, places, count)
  local packed, total = {}, 0
  for i = last - places + 1, last do
    local n = count(i)
    packed[i % places + 1] = counter_pack('<i8', n)
    total = total + n
  end
  if total > 0 then return '8' .. counter_pack('<i8i8i8', last, slice, total) .. table.concat(packed) end
end
-- counter_adopt is a state of other numbers: see Adopt in slidingcounter.go, and AdoptCharged, which has a now.
local function counter_adopt(raw, slice, places, now)
  local size, newest, width, _, count = counter_open(raw)
  local last = counter_floor(math.min((newest + 1) * width - 1, math.max(now, newest * width)) / slice)
  local counts = {}
  for i = newest - count + 1, newest do
    local into = last - counter_floor(math.max(0, newest - 1 - i) * width / slice)
    counts[into] = (counts[into] or 0) + counter_get(raw, size, i % count)
  end
  return counter_pick(last, slice, places, function(i) return counts[i] or 0 end)
end
-- counter_view is the slice that counts as now's, how many later it is than the newest, and the units that count then.
local function counter_view(raw, slice, places, now)
  local at, gap, total = counter_floor(now / slice), places, 0
  if raw then
    local size, newest, _, sum = counter_open(raw)
    gap = at - newest
    if gap < 0 then at, gap = newest, 0 end
    if gap < places then
      total = sum
      for i = newest + 1, at do total = total - counter_get(raw, size, i % places) end
    end
  end
  return at, gap, total
end
-- counter_charge counts n units in slice at.
local function counter_charge(raw, at, slice, places, n)
  local size, newest, total = 4, at - places, 0
  if raw then
    local _
    size, newest, _, total = counter_open(raw)
  end
  if at - newest >= places then
    raw, total = ('0'):rep(25) .. ('\0'):rep(places * size), 0
  else
    for i = newest + 1, at do
      total = total - counter_get(raw, size, i % places)
      raw = counter_set(raw, size, i % places, 0)
    end
  end
  n = math.min(n, 4503599627370496 - total)
  local count = counter_get(raw, size, at % places) + n
  if size == 4 and count >= 4294967296 then
    local wide = {}
    for i = 1, places do wide[i] = counter_pack('<i8', counter_get(raw, 4, i - 1)) end
    raw, size = raw:sub(1, 25) .. table.concat(wide), 8
  end
  raw = counter_set(raw, size, at % places, count)
  return size .. counter_pack('<i8i8i8', at, slice, total + n) .. raw:sub(26)
end
---- read
-- kept_ is what is stored; raw_ is that in the limit's own slices, brought back if a clock that was ahead wrote it.
local kept_, places_, ahead_, settled_ = redis.call('GET', key_), slices_ + 1, false, false
local raw_ = kept_
if raw_ then
  local size, newest, width, _, count = raw_:byte() - 48, nil, nil, nil, nil
  if #raw_ < 29 or size ~= 4 and size ~= 8 then FOREIGN end
  size, newest, width, _, count = counter_open(raw_)
  if count % 1 ~= 0 or width < 1 then FOREIGN end
  local last = math.floor(now / slice_)
  ahead_ = newest * width > now and newest * width > now - now % tick_ + slices_ * slice_
  if width ~= slice_ + 0 or count ~= places_ then raw_ = counter_adopt(raw_, slice_ + 0, places_, math.huge) end
  ahead_ = ahead_ and raw_
  if ahead_ then
    local moved = raw_
    size, newest = counter_open(raw_)
    local by = newest - last
    raw_ = counter_pick(last, slice_, places_, function(i) return counter_get(moved, size, (i + by) % places_) end)
  end
end
local slice_at_, gap_, total_ = counter_view(raw_, slice_ + 0, places_, now)
local size_, elapsed_ = raw_ and raw_:byte() - 48, math.max(0, math.floor((now - slice_at_ * slice_) / tick_))
---- fit
do
  local oldest = 0
  if gap_ < places_ then
    oldest = struct.unpack(size_ == 4 and '<I4' or '<i8', raw_, 26 + (slice_at_ + 1) % places_ * size_)
  end
  local left, ticks = limit_ - (total_ - oldest), slice_ / tick_
  if left >= 0 then left = math.floor((left * ticks - oldest * (ticks - elapsed_)) / ticks) end
  if left < granted * cost_ then
    granted = cost_ ~= '0' and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- back
if ahead_ and cost_ ~= '0' then
  redis.call('SET', key_, raw_, 'PXAT', 2 * math.ceil((slice_at_ + places_) * slice_ / 2000) + 1)
  kept_ = raw_
end
---- settle
-- Counts under other numbers whose window is longer stay in their slices.
if cost_ ~= '0' and kept_ and kept_ ~= raw_ then
  local _, newest, width, _, count = counter_open(kept_)
  settled_ = (count - 1) * width > slices_ * slice_
  if settled_ then
    local at = math.max(newest, math.floor(now / width))
    kept_ = counter_charge(kept_, at, width, count, cost_ + 0)
    redis.call('SET', key_, kept_, 'PXAT', 2 * math.ceil((at + count) * width / 2000) + 1)
    raw_ = counter_adopt(kept_, slice_ + 0, places_, math.huge)
  end
end
---- charge
if cost_ ~= '0' then
  if not settled_ then
    if kept_ ~= raw_ then raw_ = counter_adopt(kept_, slice_ + 0, places_, now) end
    local at = counter_view(raw_, slice_ + 0, places_, now)
    raw_ = counter_charge(raw_, at, slice_ + 0, places_, granted * cost_)
    redis.call('SET', key_, raw_, 'PXAT', 2 * math.ceil((at + places_) * slice_ / 2000) + 1)
  end
  slice_at_, gap_, total_ = counter_view(raw_, slice_ + 0, places_, now)
  size_ = raw_ and raw_:byte() - 48
end
---- refund
if kept_ then
  local size, newest, width, sum, count = counter_open(kept_)
  local into, others = math.floor(taken / width), kept_ ~= raw_
  if into <= newest and into > newest - count and (others or into > slice_at_ - places_) then
    local units = counter_get(kept_, size, into % count)
    local back = math.min(units, cost_ + 0)
    if back > 0 and back == sum then
      redis.call('DEL', key_)
      raw_ = nil
    elseif back > 0 then
      kept_ = kept_:sub(1, 17) .. struct.pack('<i8', sum - back) .. kept_:sub(26)
      kept_ = counter_set(kept_, size, into % count, units - back)
      redis.call('SET', key_, kept_, 'KEEPTTL')
      raw_ = others and counter_adopt(kept_, slice_ + 0, places_, math.huge) or kept_
    end
    if raw_ then slice_at_, gap_, total_ = counter_view(raw_, slice_ + 0, places_, now) end
    size_ = raw_ and raw_:byte() - 48
  end
end
---- after
-- The fields of Summary in summary.go, of the state after the step.
local full_, fading_, last_, frees_, frees_full_, frees_fading_ = 0, 0, 0, slice_at_, 0, 0
if raw_ and gap_ < places_ then
  local form, newest = size_ == 4 and '<I4' or '<i8', slice_at_ - gap_
  local function units(i)
    if i > newest or i <= newest - places_ then return 0 end
    return (struct.unpack(form, raw_, 26 + i % places_ * size_))
  end
  fading_, last_ = units(slice_at_ - slices_), newest
  full_ = total_ - fading_
  frees_full_, frees_fading_ = full_, fading_
  if total_ > 0 then
    while last_ > newest - places_ and units(last_) == 0 do last_ = last_ - 1 end
  end
  local room = limit_ - cost_
  while room >= 0 and frees_full_ > room do
    frees_ = frees_ + 1
    frees_fading_ = units(frees_ - slices_)
    frees_full_ = frees_full_ - frees_fading_
  end
end
---- reply slice_at_ full_ fading_ last_ frees_ frees_full_ frees_fading_
