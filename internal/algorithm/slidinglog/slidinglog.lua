-- The sliding log in Redis: the Lua twin of slidinglog.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A list key holds, in this order:
--   sums     the units of each full group, and then of each full block of the last group
--   entries  oldest first, one for each instant: the instant (µs), or 'u' instant units where units
--            is not 1. 64 are a block, 32 blocks a group; behind a full group stand the units of
--            its blocks
--   head     'l' used first open cut window
-- in numbers of 8 bytes. Entries are counted from 0. The first `first` of them are dropped, and the
-- first `cut` of those taken out of the list; used is the units of the others, and open those of
-- the last block; window (µs) is that of the last charge. A head without it, of an earlier weir, has 0. With the sums no operation reads more than some blocks, however long the log is.
-- A refund leaves an entry without units: to take it out of the middle would move all that follow.
-- The newest has units.

---- kind log
---- args cost limit period
---- shared
local log_number, log_pack, log_unpack, log_floor = tonumber, struct.pack, struct.unpack, math.floor
local function log_entry(element)
  local at = log_number(element)
  if at then return at, 1 end
  if element and #element == 17 and element:byte() == 117 then return log_unpack('<i8i8', element, 2) end
end
local function log_element(at, units)
  return units == 1 and at or log_pack('<c0i8i8', 'u', at, units)
end
local function log_head(used, first, open, cut, window)
  return log_pack('<c0i8i8i8i8i8', 'l', used, first, open, cut, window)
end
-- log_at is the index of entry i in the list; log_newest is the newest entry of a list with
-- length elements between sums and head.
local function log_at(cut, i) return i + log_floor(i / 2048) - cut + 1 end
local function log_newest(cut, length)
  local at = length - 1 + cut
  return at - log_floor(at / 2049)
end
local function log_number_at(numbers, i) return log_unpack('<i8', numbers, 8 * i + 1) end
local function log_with(numbers, i, n)
  return numbers:sub(1, 8 * i) .. log_pack('<i8', n) .. numbers:sub(8 * i + 9)
end
-- log_find is the last of low to high, counted in steps of step entries, whose entry is not later
-- than an instant; low itself is not read.
local function log_find(key, cut, low, high, step, instant)
  while low < high do
    local middle = math.ceil((low + high) / 2)
    local at = log_entry(redis.call('LINDEX', key, log_at(cut, step * middle)))
    if not at then return end
    if at > instant then high = middle - 1 else low = middle end
  end
  return low
end
-- log_blocks passes full blocks from entry i on, while they end before stop and do not have
-- enough units.
local function log_blocks(key, cut, i, stop, enough)
  local sums, newest, units = redis.call('LINDEX', key, '0'), log_newest(cut, redis.call('LLEN', key) - 2), 0
  local groups, blocks, of = log_floor(newest / 2048), nil, nil
  while true do
    local group, step, n = log_floor(i / 2048), 2048, nil
    if i % 2048 == 0 and group < groups and i + 2048 <= stop then
      n = log_number_at(sums, group)
      if units + n >= enough then n = nil end
    end
    if not n and i + 64 <= stop and i + 64 <= newest then
      if group == groups then
        n = log_number_at(sums, groups + i % 2048 / 64)
      else
        if of ~= group then blocks, of = redis.call('LINDEX', key, log_at(cut, 2048 * group + 2047) + 1), group end
        n = log_number_at(blocks, i % 2048 / 64)
      end
      step = 64
      if units + n >= enough then n = nil end
    end
    if not n then return i, units end
    i, units = i + step, units + n
  end
end
-- log_walk passes entries from i on until it is at entry stop, or has passed enough units: it
-- returns its position, the units, and in the second case the instant of the last entry.
local function log_walk(key, cut, i, stop, enough)
  local units, size = 0, enough > 64 and 64 or math.min(enough, 4)
  while i < stop do
    if i % 64 == 0 and enough > 4 then
      local passed, n = log_blocks(key, cut, i, stop, enough - units)
      i, units = passed, units + n
    end
    local last = math.min(stop, i - i % 64 + 64, i + size)
    local page = i < last and redis.call('LRANGE', key, log_at(cut, i), log_at(cut, last - 1)) or {}
    for j = 1, #page do
      local instant, n = log_entry(page[j])
      if not instant then return end
      i, units = i + 1, units + n
      if units >= enough then return i, units, instant end
    end
    if #page == 0 and i < stop then return end
    size = 64
  end
  return i, units
end
-- log_skip passes the entries that are not later than horizon; the newest is later. After some it
-- looks for the block in which they end.
local function log_skip(key, cut, i, horizon)
  local units, size = 0, 2
  while true do
    local last = math.min(i - i % 64 + 64, i + size)
    local page = redis.call('LRANGE', key, log_at(cut, i), log_at(cut, last - 1))
    if #page == 0 then return end
    for j = 1, #page do
      local instant, n = log_entry(page[j])
      if not instant then return end
      if instant > horizon then return i, units end
      i, units = i + 1, units + n
    end
    if size == 16 then
      local newest = log_newest(cut, redis.call('LLEN', key) - 2)
      local block = log_find(key, cut, log_floor(i / 64), log_floor(newest / 64), 64, horizon)
      if not block then return end
      local passed, more = log_walk(key, cut, i, 64 * block, math.huge)
      if not passed then return end
      i, units = passed, units + more
    end
    size = size == 2 and 16 or 64
  end
end
-- log_since is the units later than horizon and the first of their entries, or -1.
local function log_since(key, cut, first, used, newest, horizon)
  if newest <= horizon then return 0, -1 end
  local i, units = log_skip(key, cut, first, horizon)
  if i then return used - units, i end
end
-- log_back moves all entries back by a time. It turns the whole list, so that each keeps its place.
local function log_back(key, cut, time)
  local length, at = redis.call('LLEN', key), 0
  while at < length do
    local page = redis.call('LRANGE', key, '0', math.min(1023, length - 1 - at))
    for j = 1, #page do
      local place = at + j - 2 + cut
      if at + j > 1 and at + j < length and place % 2049 ~= 2048 then
        local instant, units = log_entry(page[j])
        page[j] = log_element(instant - time, units)
      end
    end
    redis.call('LTRIM', key, #page, '-1')
    redis.call('RPUSH', key, unpack(page))
    at = at + #page
  end
end
-- log_trim takes dropped entries out of the list, 8,192 at most: half of a short one, or 256. It
-- then writes head.
local function log_trim(key, used, first, open, cut, length, window)
  local gone = math.min(first - cut, 8192)
  if gone < 8 or gone < 256 and 2 * gone < length then return first, open, cut end
  local sums, newest = redis.call('LINDEX', key, '0'), log_newest(cut, length)
  redis.call('LTRIM', key, log_at(cut, cut + gone) - 1, '-1')
  cut = cut + gone
  local groups = log_floor(cut / 2048)
  if cut == first and newest - first < 64 and groups == log_floor(newest / 2048) then
    sums, first, open, cut = '', 0, used, 0
  else
    sums, first, cut = sums:sub(1 + 8 * groups), first - 2048 * groups, cut - 2048 * groups
  end
  redis.call('LSET', key, '0', sums)
  redis.call('LSET', key, '-1', log_head(used, first, open, cut, window))
  return first, open, cut
end
-- log_push adds an entry. The units of a full block go to the sums when the next begins, and those
-- of the blocks of a full group behind it.
local function log_push(key, instant, n, used, first, open, cut, window)
  local element = log_element(instant, n)
  redis.call('LSET', key, '-1', element)
  local length = redis.call('RPUSH', key, log_head(used, first, open + n, cut, window)) - 2
  local newest = log_newest(cut, length)
  if newest % 64 == 0 then
    local sums = redis.call('LINDEX', key, '0') .. log_pack('<i8', open)
    if newest % 2048 == 0 then
      local units, blocks = 0, sums:sub(-256)
      for block = 0, 31 do units = units + log_number_at(blocks, block) end
      sums = sums:sub(1, -257) .. log_pack('<i8', units)
      redis.call('LSET', key, '-2', blocks)
      redis.call('LSET', key, '-1', element)
      length = redis.call('RPUSH', key, '') - 2
    end
    open = 0
    redis.call('LSET', key, '0', sums)
    redis.call('LSET', key, '-1', log_head(used, first, n, cut, window))
  end
  return log_trim(key, used, first, open + n, cut, length, window)
end
-- log_less takes units from a full block, and its group.
local function log_less(key, cut, newest, block, back)
  local group, groups, sums = log_floor(block / 32), log_floor(newest / 2048), redis.call('LINDEX', key, '0')
  local i = groups + block % 32
  if group < groups then
    local at = log_at(cut, 2048 * group + 2047) + 1
    local blocks = redis.call('LINDEX', key, at)
    redis.call('LSET', key, at, log_with(blocks, block % 32, log_number_at(blocks, block % 32) - back))
    i = group
  end
  redis.call('LSET', key, '0', log_with(sums, i, log_number_at(sums, i) - back))
end
-- log_pop takes out the newest entry and those before it that have no units.
local function log_pop(key, used, first, open, cut, newest, window)
  local sums, groups = redis.call('LINDEX', key, '0'), log_floor(newest / 2048)
  local blocks, block, left, last, instant = sums:sub(1 + 8 * groups), log_floor(newest / 64), open, newest - 1, nil
  while not instant do
    if last < block * 64 then
      block = block - 1
      if block % 32 == 31 then blocks = redis.call('LINDEX', key, log_at(cut, last) + 1) end
      left = log_number_at(blocks, block % 32)
    end
    local from = math.max(block * 64, first)
    local page = left > 0 and redis.call('LRANGE', key, log_at(cut, from), log_at(cut, last)) or {}
    local j = #page
    while j > 0 and not instant do
      local at, n = log_entry(page[j])
      if n > 0 then instant = at else j = j - 1 end
    end
    last = instant and from + j - 1 or block * 64 - 1
  end
  redis.call('LTRIM', key, '0', log_at(cut, last))
  redis.call('LSET', key, '0', sums:sub(1, 8 * log_floor(block / 32)) .. blocks:sub(1, 8 * (block % 32)))
  local length = redis.call('RPUSH', key, log_head(used, first, left, cut, window)) - 2
  return instant, left, length
end
-- log_place is the entry of an instant, and its units.
local function log_place(key, first, cut, newest, instant)
  local i = math.max(first, newest - newest % 2048, newest - 7)
  local page = redis.call('LRANGE', key, log_at(cut, i), '-2')
  if i > first and log_entry(page[1]) > instant then
    i = log_find(key, cut, first, i - 1, 1, instant)
    page = {redis.call('LINDEX', key, log_at(cut, i))}
  end
  for j = 1, #page do
    local other, n = log_entry(page[j])
    if other == instant then return i + j - 1, n end
  end
end
---- read
-- used_ is the units in the window that ends now, and first_ its first entry, -1 if it holds none. kept_ and from_ are
-- those that a write keeps: as stored at first. ahead_ is set if a clock that was wrong wrote the newest.
local used_, first_, open_, cut_, newest_, last_, head_ = 0, 0, 0, 0, nil, 0, nil
local kept_, from_, window_, ahead_ = 0, 0, 0, 0
do
  local tail = redis.call('LRANGE', key_, '-2', '-1')
  if tail[1] then
    head_ = tail[2]
    if head_ and #head_ == 33 then head_ = head_ .. ('\0'):rep(8) end
    if not head_ or #head_ ~= 41 or head_:byte() ~= 108 then FOREIGN end
    kept_, from_, open_, cut_, window_ = struct.unpack('<i8i8i8i8i8', head_, 2)
    newest_, last_ = log_entry(tail[1])
    if not newest_ then FOREIGN end
    used_, first_ = log_since(key_, cut_, from_, kept_, newest_, math.max(now, newest_) - period_)
    if not used_ then FOREIGN end
    if newest_ > now + period_ then ahead_ = newest_ - now end
  end
end
---- fit
do
  local left = limit_ - used_
  if left < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- back
if ahead_ > 0 and cost_ > 0 then
  log_back(key_, cut_, ahead_)
  redis.call('PEXPIREAT', key_, 2 * math.ceil((now + period_) / 2000) + 1)
  newest_, ahead_ = now, 0
end
---- drop
kept_, from_, window_ = used_, first_, period_
---- keep
-- What is no charge of its own drops only what its window and that of the last charge do not count.
if window_ <= period_ then
  kept_, from_ = used_, first_
else
  kept_, from_ = log_since(key_, cut_, from_, kept_, newest_, math.max(now, newest_) - window_)
end
---- charge
do
  local n = math.min(granted * cost_, 4503599627370496 - kept_)
  if n > 0 then
    local at, window = math.max(now, newest_ or now), math.max(window_, period_)
    kept_ = kept_ + n
    if not newest_ or from_ < 0 then
      if newest_ then redis.call('DEL', key_) end
      from_, open_, cut_ = 0, n, 0
      redis.call('RPUSH', key_, '', log_element(at, n), log_head(n, 0, n, 0, window))
    elseif at == newest_ then
      open_ = open_ + n
      redis.call('LSET', key_, '-2', log_element(at, last_ + n))
      redis.call('LSET', key_, '-1', log_head(kept_, from_, open_, cut_, window))
    else
      from_, open_, cut_ = log_push(key_, at, n, kept_, from_, open_, cut_, window)
    end
    redis.call('PEXPIREAT', key_, 2 * math.ceil((at + window) / 2000) + 1)
    newest_, used_, first_ = at, kept_, from_
    if window_ > period_ then used_, first_ = log_since(key_, cut_, from_, kept_, at, at - period_) end
  end
end
---- refund
if cost_ > 0 and newest_ then
  local length = redis.call('LLEN', key_) - 2
  local newest, i, units = log_newest(cut_, length), nil, 0
  if from_ >= 0 then i, units = log_place(key_, from_, cut_, newest, taken) end
  local back = i and math.min(cost_, units) or 0
  kept_ = kept_ - back
  if kept_ == 0 then
    redis.call('DEL', key_)
    newest_, used_ = nil, 0
  else
    if back > 0 and math.floor(i / 64) == math.floor(newest / 64) then
      open_ = open_ - back
    elseif back > 0 then
      log_less(key_, cut_, newest, math.floor(i / 64), back)
    end
    if back > 0 and back == units and i == newest then
      newest_, open_, length = log_pop(key_, kept_, from_, open_, cut_, newest, window_)
      redis.call('PEXPIREAT', key_, 2 * math.ceil((newest_ + math.max(window_, period_)) / 2000) + 1)
    elseif back > 0 then
      redis.call('LSET', key_, log_at(cut_, i), log_element(taken, units - back))
    end
    local head = log_head(kept_, from_, open_, cut_, window_)
    if head ~= head_ then
      redis.call('LSET', key_, '-1', head)
      from_, open_, cut_ = log_trim(key_, kept_, from_, open_, cut_, length, window_)
    end
    used_, first_ = kept_, from_
    if window_ > period_ then
      used_, first_ = log_since(key_, cut_, from_, kept_, newest_, math.max(now, newest_) - period_)
    end
  end
end
---- after
-- wait_ is the charge whose expiry makes room for one more request.
local wait_, excess_ = 0, used_ + cost_ - limit_
if excess_ > 0 and cost_ <= limit_ then
  local i, units
  i, units, wait_ = log_walk(key_, cut_, first_, math.huge, excess_)
  if not wait_ then FOREIGN end
end
if used_ == 0 then newest_ = 0 end
if ahead_ > 0 then newest_, wait_ = newest_ - ahead_, wait_ - ahead_ end
---- reply used_ newest_ wait_
