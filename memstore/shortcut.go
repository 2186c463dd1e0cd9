package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// DecideKey is Decide of one request of a key under one to four limits, as far as they are known and unchanged: see
// weir.Limiter. It returns the index of the worst limit and its decision.
func (s *Store) DecideKey(key string, limits []*weir.Limit, cost, floor int64) (worst int, granted bool,
	remaining int64, retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) == 1 {
		granted, remaining, retryAfter, resetAfter, delay, at, ok = s.take(key, limits[0], cost, floor)
		return 0, granted, remaining, retryAfter, resetAfter, delay, at, ok
	}
	if len(limits) > fewTogether || key == "" || uint64(cost) > weir.MaxUnits || uint64(floor) > weir.MaxUnits {
		return
	}
	var claims [fewTogether]weir.Claim
	var decisions [fewTogether]weir.Decision
	for i, limit := range limits {
		claims[i].Key, claims[i].Limit, claims[i].Cost, claims[i].Floor = key, limit, cost, floor
	}
	count, ok := s.decideTogether(claims[:len(limits)], decisions[:len(limits)])
	for i := range limits {
		delay = max(delay, decisions[i].Delay)
		if weir.Worse(&decisions[i], &decisions[worst]) {
			worst = i
		}
	}
	d := &decisions[worst]
	return worst, count > 0, d.Remaining, d.RetryAfter, d.ResetAfter, delay, d.At, ok
}

// take is a request to a known key under the numbers that wrote its state: one look-up, and then the entry's own word
// or mutex. ok is false, and no state changed, where a transaction must decide: for a lease, say.
func (s *Store) take(key string, l *weir.Limit, cost, floor int64) (granted bool, remaining int64, retryAfter,
	resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if key == "" || uint64(cost) > weir.MaxUnits || uint64(floor) > weir.MaxUnits {
		return
	}
	now := s.now() // before the entry is touched, as others wait for its cache line; again if it is newer: see newest
	id := s.id(key, l)
	e := s.shard(id.hash).table.Load().find(id, l)
	if e == nil {
		return
	}
	if part := e.part.Load(); part < 0 {
		if !bucket.Short(l) || -part != l.Interval().Den {
			return
		}
		granted, remaining, retryAfter, resetAfter, delay, ok = s.takeNarrow(e, l, cost, floor, now.at)
		return granted, remaining, retryAfter, resetAfter, delay, weir.Instant(now.at), ok
	}
	own := e.owner.Load()
	k := kindOf(l)
	if own.limit != l || k.taker == nil || l.Whole() != nil { // of a fair limit there must be a member
		return
	}
	if big := own.large(); big != nil {
		return s.takeLarge(e, big, k, cost, floor, now)
	}
	return s.takeWide(e, own, k, cost, floor, now)
}

// takeNarrow is a request to a bucket of one word: a grant is one compare-and-swap.
func (s *Store) takeNarrow(e *entry, l *weir.Limit, cost, floor, now int64) (granted bool, remaining int64, retryAfter,
	resetAfter, delay time.Duration, ok bool) {
	for {
		word := e.word.Load()
		if word&locked != 0 { // not a bare return: the results may be those of a compare-and-swap that failed
			return false, 0, 0, 0, 0, false
		}
		before := unpack(word)
		var after bucket.State
		after, remaining, retryAfter, resetAfter, delay, granted, ok = bucket.Take(l,
			bucket.State{At: before.a, Part: before.b}, cost, floor, now)
		if !ok || !granted || cost == 0 {
			return granted, remaining, retryAfter, resetAfter, delay, ok
		}
		next := state{a: after.At, b: after.Part}
		if form(l, next) == 0 {
			return false, 0, 0, 0, 0, false
		}
		if e.word.CompareAndSwap(word, pack(next)) {
			return granted, remaining, retryAfter, resetAfter, delay, true
		}
	}
}

// takeWide is a request to a state of two numbers; a refusal takes no lock.
func (s *Store) takeWide(e *entry, own *owner, k *kind, cost, floor int64, now moment) (granted bool, remaining int64,
	retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	seq, word, part := e.seq.Load(), e.word.Load(), e.part.Load()
	if word&locked != 0 {
		return
	}
	before := state{a: word >> 1, b: part}
	if k.newest(own.limit, before) > now.at {
		if now = s.now(); k.ahead(own.limit, before, now) {
			return
		}
	}
	at = weir.Instant(now.at)
	a, b, remaining, retryAfter, resetAfter, delay, granted := k.take(own.limit, before, cost, floor, now, false)
	if !granted || cost == 0 {
		ok = e.seq.Load() == seq && e.part.Load() == part && e.word.Load() == word && e.owner.Load() == own
		return granted, remaining, retryAfter, resetAfter, delay, at, ok
	}
	if !e.word.CompareAndSwap(word, word|locked) {
		return
	}
	if e.seq.Load() != seq || e.part.Load() != part || e.owner.Load() != own { // it changed in between, and back
		e.word.Store(word)
		return
	}
	e.part.Store(b)
	e.word.Store(a << 1)
	return true, remaining, retryAfter, resetAfter, delay, at, true
}

// takeLarge is a request to a large state, under its mutex.
func (s *Store) takeLarge(e *entry, big *large, k *kind, cost, floor int64, now moment) (granted bool, remaining int64,
	retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	big.mu.Lock()
	l, st, grown := big.limit, state{large: big}, int64(0)
	ok = e.word.Load() == 0 && e.owner.Load() == &big.owner
	if k.newest(l, st) > now.at {
		now = s.now()
		ok = ok && !k.ahead(l, st, now)
	}
	if ok = ok && !(s.tight() && !s.spare(k.growth(big, l, cost, now.at))); ok {
		grown, _, remaining, retryAfter, resetAfter, delay, granted = k.take(l, st, cost, floor, now, false)
		s.grown(grown)
	}
	big.mu.Unlock()
	return granted, remaining, retryAfter, resetAfter, delay, weir.Instant(now.at), ok
}

// grown counts the bytes that a large state grew by.
func (s *Store) grown(bytes int64) {
	if bytes != 0 {
		s.large.Add(bytes)
	}
}

// takeClaim is a request for one lease, or its renewal, or one of a member, of a known key. ok is false where a
// transaction must decide.
func (s *Store) takeClaim(c *weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
	id := s.id(c.Key, c.Limit)
	e := s.shard(id.hash).table.Load().find(id, c.Limit)
	if e == nil {
		return 0, false
	}
	own := e.owner.Load()
	if own.limit != c.Limit {
		return 0, false
	}
	big := own.large()
	big.mu.Lock()
	granted, ok = s.takeLocked(c, e, big, decisions)
	big.mu.Unlock()
	return granted, ok
}

func (s *Store) takeLocked(c *weir.Claim, e *entry, big *large, decisions []weir.Decision) (granted int64, ok bool) {
	now, st, k := s.now(), s.asks(c, state{large: big}), kindOf(c.Limit)
	ok = e.word.Load() == 0 && e.owner.Load() == &big.owner && !k.ahead(c.Limit, st, now)
	if !ok || !c.Renew && s.tight() && !s.spare(k.growth(big, c.Limit, c.Cost, now.at)) {
		return 0, false
	}
	if k.taker != nil {
		return s.takeMember(c, st, now, decisions), true
	}
	before := big.size()
	if c.Lease != "" && c.Limit.Whole() != nil {
		granted = one(big.fairLeases().Request(c.Limit, memberOf(st), c.Lease, c.Cost, c.Floor, now.at, c.Renew))
	} else if granted = fit(c, st, 1, now); granted > 0 && (c.Lease != "" || c.Cost > 0) {
		k.charge(c.Limit, st, c.Cost, now, c.Lease)
	}
	s.grown(big.size() - before)
	for i := range decisions {
		decide(c, st, now, &decisions[i])
	}
	return granted, true
}

// giveBack is the refund of a lease, or to a bucket of one word, of a known key in a store that never was full. ok is
// false, and no state changed, where a transaction must do it.
func (s *Store) giveBack(c *weir.Claim, takenAt int64, decisions []weir.Decision) (ok bool, err error) {
	id := s.id(c.Key, c.Limit)
	sh := s.shard(id.hash)
	e := sh.table.Load().find(id, c.Limit)
	if e == nil || c.Cost == 0 || s.overflow.Load() > 0 || sh.earliest.Load() != unknown {
		return false, nil
	}
	own := e.owner.Load()
	switch {
	case own.limit != c.Limit:
		return false, nil
	case c.Lease != "":
		return s.releaseLease(c, e, own, decisions)
	}
	word := e.word.Load()
	if e.part.Load() >= 0 || word&locked != 0 || !e.word.CompareAndSwap(word, word|locked) {
		return false, nil
	}
	defer e.unlock()
	now := s.now()
	if e.owner.Load() != own {
		return false, nil
	}
	after, _, _ := refund(c, own.limit, unpack(word), takenAt, now)
	if !e.holds(form(own.limit, after)) {
		return false, nil
	}
	e.write(after)
	for i := range decisions {
		decide(c, after, now, &decisions[i])
	}
	return true, nil
}

func (s *Store) releaseLease(c *weir.Claim, e *entry, own *owner, decisions []weir.Decision) (ok bool, err error) {
	big := own.large()
	big.mu.Lock()
	defer big.mu.Unlock()
	if e.word.Load() != 0 || e.owner.Load() != own {
		return false, nil
	}
	now, st, before := s.now(), s.asks(c, state{large: big}), big.size()
	if _, _, found := refund(c, c.Limit, st, 0, now); !found {
		err = weir.ErrLeaseGone
	}
	s.grown(big.size() - before)
	for i := range decisions {
		decide(c, st, now, &decisions[i])
	}
	return true, err
}
