-- The token bucket in Redis: the Lua twin of bucket.go. redisstore/script.go says how
-- twins are joined into a script.
--
-- A string key holds one of
--   -F                   continuous, F whole: the bucket is full at F µs
--   'c' F part den       continuous, full at F + part/den µs
--   's' mark missing     step: units missing at the mark
-- in numbers of 8 bytes. The minus sign tells F from a counter that somebody else keeps.

---- kind plain
-- One request, continuous, a unit refills in a whole number of µs, and the state was written
-- by such a limit: nearly every decision. Another state is left to kind bucket.
-- unit is the time by which the request moves the full instant.
---- args unit span
---- read
local full_ = redis.call('GET', key_)
if full_ then
  full_ = -(tonumber(full_) or 1)
  if full_ < 0 or full_ % 1 ~= 0 then return {-2, now} end
end
if not full_ or full_ < now then full_ = now end
local after_ = full_ + unit_
---- fit
if after_ - now > span_ then granted = 0 end
---- charge
if after_ > full_ then
  full_ = after_
  redis.call('SET', key_, -full_, 'PXAT', 2 * math.ceil(full_ / 2000) + 1)
end
---- reply full_
---- batch
-- A request for each key, no key twice, of costs that a full bucket grants. ARGV is as in
-- assembleBatch. The reply is packed: now; for each key how far ahead it is full, d, or -1 - d
-- if nothing was granted, or 2^53 if its state is not a plain one; and the grants of each
-- request that asks several times.
-- MGET is nil also for a key of another type: such a key is written with NX.
local keys, values, reply, n, ceil = KEYS, redis.call('MGET', unpack(KEYS)), {now}, #KEYS, math.ceil
local unit, span = ARGV[multi + 3] + 0, ARGV[multi + 4] + 0
-- Before 7.2 passing numbers to call is slow; from 7.2 on formatting them is.
local format = (redis.REDIS_VERSION_NUM or 0) < 0x070200 and string.format
for i = 1, n do
  local raw, full, granted, d = values[i], now, 0, 9007199254740992
  if raw then full = -(tonumber(raw) or 1) end
  if full >= 0 and full % 1 == 0 and full < 9007199254740992 then
    if full < now then full = now end
    if stride > 0 then unit, span = ARGV[multi + 2 * i + 1] + 0, ARGV[multi + 2 * i + 2] + 0 end
    local left = span - (full - now)
    if left >= unit then
      granted = 1
      if i <= multi then granted = math.min(math.floor(left / unit), ARGV[i + 2] + 0) end
      full = full + granted * unit
      local text, at = -full, 2 * ceil(full / 2000) + 1
      if format then
        text = format('-%d', full)
        at = text:sub(2, -4) -- the key is there to its end
      end
      if raw then
        redis.call('SET', keys[i], text, 'PXAT', at)
        d = full - now
      elseif redis.call('SET', keys[i], text, 'PXAT', at, 'NX') then
        d = full - now
      end
    else
      d = now - full - 1
    end
  end
  reply[i + 1] = d
  if i <= multi then reply[n + i + 1] = granted end
end
n = n + multi + 1
return {struct.pack('<' .. ('i8'):rep(n), unpack(reply, 1, n))}

---- kind bucket
-- Continuous, and a unit refills in a whole number of µs.
---- args cost interval span
---- capargs most
---- shared
-- Before 7.2 passing numbers to call is slow; from 7.2 on formatting them is. A key is there to the end of the
-- millisecond of PXAT.
local bucket_format = (redis.REDIS_VERSION_NUM or 0) < 0x070200 and string.format
local function bucket_set(key, full)
  if bucket_format then
    local text = bucket_format('-%d', full)
    redis.call('SET', key, text, 'PXAT', text:sub(2, -4))
  else
    redis.call('SET', key, -full, 'PXAT', 2 * math.ceil(full / 2000) + 1)
  end
end
---- read
local full_, raw_ = now, redis.call('GET', key_)
if raw_ then
  local at = tonumber(raw_)
  if at then
    at = -at
    if at < 0 or at % 1 ~= 0 then FOREIGN end
  elseif #raw_ == 25 and raw_:byte() == 99 then
    local whole, part = struct.unpack('<i8i8', raw_, 2)
    at = part > 0 and whole + 1 or whole
  elseif #raw_ == 17 and raw_:byte() == 115 then
    local mark, missing = struct.unpack('<i8i8', raw_, 2)
    at = mark + math.min(missing * interval_, 4503599627370496)
  else
    FOREIGN
  end
  if at > now then full_ = at end
end
local unit_ = cost_ * interval_
---- cap
local capped_ = full_ > now + most_
if capped_ then full_ = now + most_ end
---- capped
if capped_ and unit_ > 0 then bucket_set(key_, full_) end
---- fit
local left_ = span_ - (full_ - now)
if left_ < granted * unit_ then
  granted = unit_ > 0 and math.max(0, math.floor(math.floor(left_ / interval_) / cost_)) or 0
end
---- charge
if unit_ > 0 then
  local before = full_
  full_ = full_ + granted * unit_
  if full_ > now + 4503599627370496 then full_ = math.max(before, now + 4503599627370496) end
  bucket_set(key_, full_)
end
---- cancel
if due_ > now then
  local after = math.ceil(math.max(0, full_ - due_ - room_) / interval_)
  unit_ = math.max(0, back_ - after) * interval_
end
---- refund
if raw_ and unit_ > 0 then
  full_ = full_ - unit_
  if full_ >= now then
    bucket_set(key_, full_)
  else
    full_ = now
    redis.call('DEL', key_)
  end
end
---- reply full_

---- kind parts
-- Continuous, and a unit refills in whole µs and a part: den is that of T/R in lowest terms.
-- ladder holds (k, whole, part) of 8 bytes each, k a power of two from high to low: the time
-- that k requests take. Adding and comparing them is exact; a product would not be.
---- args 'ladder' span spanpart den period refill
---- capargs most mostpart
---- read
local full_, part_, raw_ = now, 0, redis.call('GET', key_)
if raw_ then
  local at, part = tonumber(raw_), 0
  if at then
    at = -at
    if at < 0 or at % 1 ~= 0 then FOREIGN end
  elseif #raw_ == 25 and raw_:byte() == 99 then
    local den
    at, part, den = struct.unpack('<i8i8i8', raw_, 2)
    if den ~= den_ and part > 0 then at, part = at + 1, 0 end
  elseif #raw_ == 17 and raw_:byte() == 115 then
    local mark, missing = struct.unpack('<i8i8', raw_, 2)
    at = mark + math.min(math.ceil(missing * period_ / refill_), 4503599627370496)
  else
    FOREIGN
  end
  if at >= now then full_, part_ = at, part end
end
---- cap
local capped_ = full_ > now + most_
if capped_ then full_, part_ = now + most_, mostpart_ end
---- capped
if capped_ and ladder_ ~= '' then
  local text = part_ == 0 and -full_ or 'c' .. struct.pack('<i8i8i8', full_, part_, den_)
  redis.call('SET', key_, text, 'PXAT', 2 * math.ceil(full_ / 2000) + 1)
end
---- fit
do
  local w, p, fit = full_ - now, part_, 0
  local den, span, spanpart = den_, span_, spanpart_
  if w > span or w == span and p > spanpart then
    granted = 0
  elseif ladder_ ~= '' then
    for i = 1, #ladder_, 24 do
      local k, dw, dp = struct.unpack('<i8i8i8', ladder_, i)
      dw, dp = w + dw, p + dp
      if dp >= den then dw, dp = dw + 1, dp - den end
      if fit + k <= granted and (dw < span or dw == span and dp <= spanpart) then w, p, fit = dw, dp, fit + k end
    end
    granted = fit
  end
end
---- charge
if ladder_ ~= '' then
  local rest, den, most = granted, den_, now + 4503599627370496
  if full_ >= most then rest, most = 0, full_ + 1 end
  for i = 1, #ladder_, 24 do
    local k, dw, dp = struct.unpack('<i8i8i8', ladder_, i)
    if k <= rest then
      rest, full_, part_ = rest - k, full_ + dw, part_ + dp
      if part_ >= den then full_, part_ = full_ + 1, part_ - den end
    end
  end
  if full_ >= most then full_, part_ = most, 0 end
  local text = part_ == 0 and -full_ or 'c' .. struct.pack('<i8i8i8', full_, part_, den)
  redis.call('SET', key_, text, 'PXAT', 2 * math.ceil(full_ / 2000) + 1)
end
---- cancel
-- Here the rungs of the ladder count units. First, the units charged after the grant: the
-- smallest number that takes as long as the bucket owes beyond its due. Then one rung is left:
-- the rest.
if ladder_ ~= '' then
  local den, after, w, p = den_, 0, full_ - due_ - room_, part_ - roompart_
  local function climb(most, fits)
    local k, w, p = 0, 0, 0
    for i = 1, #ladder_, 24 do
      local dk, dw, dp = struct.unpack('<i8i8i8', ladder_, i)
      dw, dp = w + dw, p + dp
      if dp >= den then dw, dp = dw + 1, dp - den end
      if k + dk <= most and fits(dw, dp) then k, w, p = k + dk, dw, dp end
    end
    return k, w, p
  end
  if p < 0 then w, p = w - 1, p + den end
  if due_ > now and (w > 0 or w == 0 and p > 0) then
    after = 1 + climb(back_, function(dw, dp) return dw < w or dw == w and dp < p end)
  end
  local units, whole, part = climb(back_ - after, function() return true end)
  ladder_ = units > 0 and struct.pack('<i8i8i8', units, whole, part) or ''
end
---- refund
if raw_ and ladder_ ~= '' then
  local _, dw, dp = struct.unpack('<i8i8i8', ladder_, 1)
  full_, part_ = full_ - dw, part_ - dp
  if part_ < 0 then full_, part_ = full_ - 1, part_ + den_ end
  if full_ >= now then
    local text = part_ == 0 and -full_ or 'c' .. struct.pack('<i8i8i8', full_, part_, den_)
    redis.call('SET', key_, text, 'PXAT', 2 * math.ceil(full_ / 2000) + 1)
  else
    full_, part_ = now, 0
    redis.call('DEL', key_)
  end
end
---- reply full_ part_

---- kind rational
-- The batch step of kind parts, as that of kind plain is of kind bucket: a request for each key, no
-- key twice, of costs that a full bucket grants. A state of another denominator, or of another
-- algorithm, is left to kind parts. The reply is packed: now; for each key d, as there; for each
-- key the part; and what was granted to each of those that do not ask once.
---- args 'ladder' span spanpart den
---- batch
local keys, values, reply, n, ceil, fields = KEYS, redis.call('MGET', unpack(KEYS)), {now}, #KEYS, math.ceil, struct.unpack
local format = (redis.REDIS_VERSION_NUM or 0) < 0x070200 and string.format
local ladder, span, spanpart, den
for i = 1, n do
  if i == 1 or stride > 0 then
    local at = multi + 2 + (i - 1) * stride
    ladder, span, spanpart, den = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0
  end
  local raw, full, part, granted, d = values[i], now, 0, 0, 9007199254740992
  if raw then
    full = -(tonumber(raw) or 1)
    if #raw == 25 and raw:byte() == 99 then
      local of
      full, part, of = fields('<i8i8i8', raw, 2)
      if of ~= den or part < 0 or part >= den then full = -1 end
    end
  end
  if full >= 0 and full % 1 == 0 and full < 9007199254740992 then
    if full < now then full, part = now, 0 end
    local times, w = 1, full - now
    if i <= multi then times = ARGV[i + 2] + 0 end
    if w < span or w == span and part <= spanpart then
      for j = 1, #ladder, 24 do
        local k, dw, dp = fields('<i8i8i8', ladder, j)
        dw, dp = w + dw, part + dp
        if dp >= den then dw, dp = dw + 1, dp - den end
        if granted + k <= times and (dw < span or dw == span and dp <= spanpart) then
          w, part, granted = dw, dp, granted + k
        end
      end
    end
    if granted > 0 then
      full = now + w
      local text, at = -full, 2 * ceil(full / 2000) + 1
      if format then
        text = format('-%d', full)
        at = text:sub(2, -4)
      end
      if part > 0 then text = 'c' .. struct.pack('<i8i8i8', full, part, den) end
      if raw then
        redis.call('SET', keys[i], text, 'PXAT', at)
        d = w
      elseif redis.call('SET', keys[i], text, 'PXAT', at, 'NX') then
        d = w
      end
    else
      d = -w - 1
    end
  end
  reply[i + 1], reply[n + i + 1] = d, part
  if i <= multi then reply[2 * n + i + 1] = granted end
end
n = 2 * n + multi + 1
return {struct.pack('<' .. ('i8'):rep(n), unpack(reply, 1, n))}

---- kind step
-- Refilled by whole periods. cap is the most that may be missing.
---- args cost most refill period cap
---- capargs all
---- read
local mark_, missing_, raw_ = now, 0, redis.call('GET', key_)
if raw_ then
  local at = tonumber(raw_)
  if #raw_ == 17 and raw_:byte() == 115 then
    mark_, missing_ = struct.unpack('<i8i8', raw_, 2)
    if missing_ > 0 and now > mark_ then
      local periods = math.floor((now - mark_) / period_)
      mark_, missing_ = mark_ + periods * period_, math.max(0, missing_ - periods * refill_)
    end
  else
    if #raw_ == 25 and raw_:byte() == 99 then
      local whole, part = struct.unpack('<i8i8', raw_, 2)
      at = part > 0 and whole + 1 or whole
    elseif at and at <= 0 and at % 1 == 0 then
      at = -at
    else
      FOREIGN
    end
    if at > now then -- full when it would have been, in whole periods until then
      local periods = math.min(math.ceil((at - now) / period_), math.floor(cap_ / refill_))
      mark_, missing_ = at - periods * period_, periods * refill_
    end
  end
end
---- cap
local capped_ = mark_ > now
if capped_ then mark_, missing_ = now, math.min(missing_, all_) end
---- capped
if capped_ and cost_ > 0 then
  local full = mark_ + math.ceil(missing_ / refill_) * period_
  redis.call('SET', key_, 's' .. struct.pack('<i8i8', mark_, missing_), 'PXAT', 2 * math.ceil(full / 2000) + 1)
end
---- fit
do
  local left = most_ - missing_
  if left < granted * cost_ then
    granted = cost_ > 0 and math.max(0, math.floor(left / cost_)) or 0
  end
end
---- charge
if cost_ > 0 then
  if missing_ == 0 then mark_ = now end
  missing_ = math.max(missing_, math.min(missing_ + granted * cost_, cap_))
  local full = mark_ + math.ceil(missing_ / refill_) * period_
  redis.call('SET', key_, 's' .. struct.pack('<i8i8', mark_, missing_), 'PXAT', 2 * math.ceil(full / 2000) + 1)
end
---- cancel
if due_ > now then
  local periods = math.floor(math.max(0, due_ - mark_) / period_)
  local after = math.max(0, missing_ - room_ - math.min(periods, missing_) * refill_)
  cost_ = math.max(0, back_ - after)
end
---- refund
if raw_ and cost_ > 0 then
  missing_ = math.max(0, missing_ - cost_)
  if missing_ > 0 then
    local full = mark_ + math.ceil(missing_ / refill_) * period_
    redis.call('SET', key_, 's' .. struct.pack('<i8i8', mark_, missing_), 'PXAT', 2 * math.ceil(full / 2000) + 1)
  else
    redis.call('DEL', key_)
  end
end
---- reply mark_ missing_
