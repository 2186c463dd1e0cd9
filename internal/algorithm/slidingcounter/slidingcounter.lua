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
-- counter_view is the slice that counts as now's, how many later it is than the newest, and the units that count then;
-- size, newest and sum are those of counter_open, where the caller knows them.
local function counter_view(raw, slice, places, now, size, newest, sum)
  local at, gap, total, _ = counter_floor(now / slice), places, 0, nil
  if raw then
    if not size then size, newest, _, sum = counter_open(raw) end
    gap = at - newest
    if gap < 0 then at, gap = newest, 0 end
    if gap < places then
      total = sum
      for i = newest + 1, at do total = total - counter_get(raw, size, i % places) end
    end
  end
  return at, gap, total
end
-- counter_charge counts n units in slice at, gap later than the newest, where total units count. It returns the
-- state, the size of its counts and the units that count.
local function counter_charge(raw, size, slice, places, at, gap, total, n)
  if gap >= places then
    raw = ('0'):rep(25) .. ('\0'):rep(places * size)
  else
    for i = at - gap + 1, at do raw = counter_set(raw, size, i % places, 0) end
  end
  n = math.min(n, 4503599627370496 - total)
  local place = at % places
  local count = counter_get(raw, size, place) + n
  if size == 4 and count >= 4294967296 then
    local wide = {}
    for i = 1, places do wide[i] = counter_pack('<i8', counter_get(raw, 4, i - 1)) end
    raw, size = raw:sub(1, 25) .. table.concat(wide), 8
  end
  total, place = total + n, 25 + place * size
  local head, form = '4', '<c0i8i8i8c0I4c0'
  if size == 8 then head, form = '8', '<c0i8i8i8c0i8c0' end
  return counter_pack(form, head, at, slice, total, raw:sub(26, place), count, raw:sub(place + size + 1)), size, total
end
---- read
-- kept_ is what is stored; raw_ is that in the limit's own slices, brought back if a clock that was ahead wrote it.
local kept_, places_, ahead_, settled_ = redis.call('GET', key_), slices_ + 1, false, false
local raw_, size_, newest_, sum_ = kept_, nil, nil, nil
if raw_ then
  if #raw_ < 29 then FOREIGN end
  local width, count
  size_, newest_, width, sum_, count = counter_open(raw_)
  if size_ ~= 4 and size_ ~= 8 or count % 1 ~= 0 or width < 1 then FOREIGN end
  ahead_ = newest_ * width > now and newest_ * width > now - now % tick_ + slices_ * slice_
  if width ~= slice_ or count ~= places_ then raw_, size_ = counter_adopt(raw_, slice_, places_, math.huge), nil end
  ahead_ = ahead_ and raw_
  if ahead_ then
    local moved, last, size, newest = raw_, math.floor(now / slice_), counter_open(raw_)
    local by = newest - last
    raw_ = counter_pick(last, slice_, places_, function(i) return counter_get(moved, size, (i + by) % places_) end)
    size_ = nil
  end
end
local slice_at_, gap_, total_ = counter_view(raw_, slice_, places_, now, size_, newest_, sum_)
size_ = not raw_ and 4 or size_ or raw_:byte() - 48
-- fading_ is the units of the slice that fades out.
local fading_ = gap_ < places_ and counter_get(raw_, size_, (slice_at_ + 1) % places_) or 0
---- fit
do
  local left, ticks = limit_ - (total_ - fading_), slice_ / tick_
  if left >= 0 then
    local elapsed = math.max(0, math.floor((now - slice_at_ * slice_) / tick_))
    left = math.floor((left * ticks - fading_ * (ticks - elapsed)) / ticks)
  end
  if left < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- back
if ahead_ and cost_ > 0 then
  redis.call('SET', key_, raw_, 'PXAT', 2 * math.ceil((slice_at_ + places_) * slice_ / 2000) + 1)
  kept_ = raw_
end
---- settle
-- Counts under other numbers whose window is longer stay in their slices.
if cost_ > 0 and kept_ and kept_ ~= raw_ then
  local size, _, width, _, count = counter_open(kept_)
  settled_ = (count - 1) * width > slices_ * slice_
  if settled_ then
    local at, gap, total = counter_view(kept_, width, count, now)
    kept_ = counter_charge(kept_, size, width, count, at, gap, total, cost_)
    redis.call('SET', key_, kept_, 'PXAT', 2 * math.ceil((at + count) * width / 2000) + 1)
    raw_ = counter_adopt(kept_, slice_, places_, math.huge)
    slice_at_, gap_, total_ = counter_view(raw_, slice_, places_, now)
  end
end
---- charge
-- A key expires by its newest slice, so in the same slice it keeps its time.
if cost_ > 0 and not settled_ then
  local other = kept_ ~= raw_
  if other then
    raw_ = counter_adopt(kept_, slice_, places_, now)
    slice_at_, gap_, total_ = counter_view(raw_, slice_, places_, now)
    size_ = raw_ and raw_:byte() - 48 or 4
  end
  local same = kept_ and not other and gap_ == 0
  raw_, size_, total_ = counter_charge(raw_, size_, slice_, places_, slice_at_, gap_, total_, granted * cost_)
  if same then
    redis.call('SET', key_, raw_, 'KEEPTTL')
  else
    redis.call('SET', key_, raw_, 'PXAT', 2 * math.ceil((slice_at_ + places_) * slice_ / 2000) + 1)
  end
  gap_ = 0
end
---- refund
if kept_ then
  local size, newest, width, sum, count = counter_open(kept_)
  local into, others = math.floor(taken / width), kept_ ~= raw_
  if into <= newest and into > newest - count and (others or into > slice_at_ - places_) then
    local units = counter_get(kept_, size, into % count)
    local back = math.min(units, cost_)
    if back > 0 and back == sum then
      redis.call('DEL', key_)
      raw_ = nil
    elseif back > 0 then
      kept_ = kept_:sub(1, 17) .. struct.pack('<i8', sum - back) .. kept_:sub(26)
      kept_ = counter_set(kept_, size, into % count, units - back)
      redis.call('SET', key_, kept_, 'KEEPTTL')
      raw_ = kept_
      if others then raw_ = counter_adopt(kept_, slice_, places_, math.huge) end -- nil if its slices have no units
    end
    if raw_ then slice_at_, gap_, total_ = counter_view(raw_, slice_, places_, now) end
  end
end
---- after
-- The fields of Summary in summary.go, of the state after the step.
local full_, last_, frees_, frees_full_, frees_fading_ = 0, 0, slice_at_, 0, 0
if raw_ and gap_ < places_ then
  local size, newest, room = raw_:byte() - 48, slice_at_ - gap_, limit_ - cost_
  local lowest, form = newest - places_, size == 4 and '<I4' or '<i8'
  fading_, last_ = counter_get(raw_, size, (slice_at_ + 1) % places_), newest
  full_ = total_ - fading_
  frees_full_, frees_fading_ = full_, fading_
  while total_ > 0 and last_ > lowest and counter_get(raw_, size, last_ % places_) == 0 do last_ = last_ - 1 end
  local place = (slice_at_ + 1) % places_
  while room >= 0 and frees_full_ > room do
    frees_, place, frees_fading_ = frees_ + 1, place + 1, 0
    if place == places_ then place = 0 end
    if frees_ - slices_ <= newest then frees_fading_ = counter_unpack(form, raw_, 26 + place * size) end
    frees_full_ = frees_full_ - frees_fading_
  end
else
  fading_ = 0
end
---- reply slice_at_ full_ fading_ last_ frees_ frees_full_ frees_fading_
