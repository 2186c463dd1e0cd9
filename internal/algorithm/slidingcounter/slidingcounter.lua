-- The sliding counter in Redis: the Lua twin of slidingcounter.go. redisstore/script.go
-- says how twins are joined into a script.
--
-- A string key holds '4' or '8', then in numbers of 8 bytes the index of the newest slice,
-- the length of a slice (µs) and the sum of the counts, and then the counts, 4 or 8 bytes
-- each: that of slice i at i mod their number.

---- kind counter
---- args cost limit slice slices tick
---- read
local raw_, size_, places_ = redis.call('GET', key_), 4, slices_ + 1
local slice_at_, total_, gap_ = math.floor(now / slice_), 0, places_
local elapsed_ = math.floor((now - slice_at_ * slice_) / tick_)
if raw_ then
  size_ = raw_:byte() - 48
  if #raw_ < 29 or size_ ~= 4 and size_ ~= 8 then FOREIGN end
  local newest, width, total = struct.unpack('<i8i8i8', raw_, 2)
  local count = (#raw_ - 25) / size_
  if count % 1 ~= 0 or width < 1 then FOREIGN end
  if width ~= slice_ + 0 or count ~= places_ then
    -- Other numbers wrote it: see Convert in slidingcounter.go.
    local counts, last = {}, math.floor(((newest + 1) * width - 1) / slice_)
    for i = newest - count + 1, newest do
      local n = struct.unpack(size_ == 4 and '<I4' or '<i8', raw_, 26 + i % count * size_)
      if n > 0 then
        local into = last - math.floor(math.max(0, newest - 1 - i) * width / slice_)
        counts[into] = (counts[into] or 0) + n
      end
    end
    local packed = {}
    newest, total = last, 0
    for i = last - places_ + 1, last do
      packed[i % places_ + 1] = struct.pack('<i8', counts[i] or 0)
      total = total + (counts[i] or 0)
    end
    size_ = 8
    raw_ = '8' .. struct.pack('<i8i8i8', newest, slice_, total) .. table.concat(packed)
  end
  gap_ = slice_at_ - newest
  if gap_ < 0 then slice_at_, elapsed_, gap_ = newest, 0, 0 end
  if gap_ < places_ then
    total_ = total
    for i = newest + 1, slice_at_ do -- the slices that no longer count
      total_ = total_ - struct.unpack(size_ == 4 and '<I4' or '<i8', raw_, 26 + i % places_ * size_)
    end
  end
end
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
---- charge
if cost_ ~= '0' then
  if gap_ >= places_ then
    raw_, total_ = ('0'):rep(25) .. ('\0'):rep(places_ * size_), 0
  else
    for i = slice_at_ - gap_ + 1, slice_at_ do
      local at = 25 + i % places_ * size_
      raw_ = raw_:sub(1, at) .. ('\0'):rep(size_) .. raw_:sub(at + size_ + 1)
    end
  end
  local n = math.min(granted * cost_, 4503599627370496 - total_)
  local at = 25 + slice_at_ % places_ * size_
  local count = struct.unpack(size_ == 4 and '<I4' or '<i8', raw_, at + 1) + n
  if size_ == 4 and count >= 4294967296 then
    local wide = {}
    for i = 1, places_ do
      wide[i] = struct.pack('<i8', struct.unpack('<I4', raw_, 22 + i * 4))
    end
    raw_, size_, at = raw_:sub(1, 25) .. table.concat(wide), 8, 25 + slice_at_ % places_ * 8
  end
  total_, gap_ = total_ + n, 0
  raw_ = size_ .. struct.pack('<i8i8i8', slice_at_, slice_, total_) .. raw_:sub(26, at)
    .. struct.pack(size_ == 4 and '<I4' or '<i8', count) .. raw_:sub(at + size_ + 1)
  redis.call('SET', key_, raw_, 'PXAT', 2 * math.ceil((slice_at_ + places_) * slice_ / 2000) + 1)
end
---- refund
if gap_ < places_ then
  local into, newest = math.floor(taken / slice_), slice_at_ - gap_
  if into > slice_at_ - places_ and into <= newest then
    local at = 25 + into % places_ * size_
    local count = struct.unpack(size_ == 4 and '<I4' or '<i8', raw_, at + 1)
    local back, sum = math.min(count, cost_ + 0), struct.unpack('<i8', raw_, 18)
    total_ = total_ - back
    if back > 0 and back == sum then
      redis.call('DEL', key_)
      raw_ = nil
    elseif back > 0 then
      raw_ = raw_:sub(1, 17) .. struct.pack('<i8', sum - back) .. raw_:sub(26, at)
        .. struct.pack(size_ == 4 and '<I4' or '<i8', count - back) .. raw_:sub(at + size_ + 1)
      redis.call('SET', key_, raw_, 'KEEPTTL')
    end
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
