package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// DecideKey is Decide of one request of a key under one to four limits, as far as they are known and unchanged: see
// weir.Limiter. It returns the index of the worst limit and its decision.
func (s *Store) DecideKey(key string, limits []*weir.Limit, cost int64) (worst int, granted bool, remaining int64,
	retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) == 1 {
		granted, remaining, retryAfter, resetAfter, delay, at, ok = s.take(key, limits[0], cost)
		return 0, granted, remaining, retryAfter, resetAfter, delay, at, ok
	}
	if len(limits) > fewTogether || key == "" || uint64(cost) > weir.MaxUnits {
		return
	}
	var claims [fewTogether]weir.Claim
	var decisions [fewTogether]weir.Decision
	for i, limit := range limits {
		claims[i].Key, claims[i].Limit, claims[i].Cost = key, limit, cost
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
// or mutex. ok is false, and nothing was done, where a transaction must decide: for a lease, say.
func (s *Store) take(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter,
	delay time.Duration, at weir.Instant, ok bool) {
	if key == "" || uint64(cost) > weir.MaxUnits {
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
		granted, remaining, retryAfter, resetAfter, delay, ok = s.takeNarrow(e, l, cost, now.at)
		return granted, remaining, retryAfter, resetAfter, delay, weir.Instant(now.at), ok
	}
	own := e.owner.Load()
	if own.limit != l || l.Leases() {
		return
	}
	var d weir.Decision
	if big := own.large(); big != nil {
		granted, ok = s.takeLarge(e, big, cost, now, &d)
	} else {
		granted, ok = s.takeWide(e, own, cost, now, &d)
	}
	return granted, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, ok
}

// takeNarrow is a request to a bucket of one word: a grant is one compare-and-swap.
func (s *Store) takeNarrow(e *entry, l *weir.Limit, cost, now int64) (granted bool, remaining int64, retryAfter,
	resetAfter, delay time.Duration, ok bool) {
	for {
		word := e.word.Load()
		if word&locked != 0 { // not a bare return: the results may be those of a compare-and-swap that failed
			return false, 0, 0, 0, 0, false
		}
		before := unpack(word)
		var after bucket.State
		after, remaining, retryAfter, resetAfter, delay, granted, ok = bucket.Take(l,
			bucket.State{At: before.a, Part: before.b}, cost, now)
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

// takeWide is a request to a state of two numbers, of which a refusal takes no lock.
func (s *Store) takeWide(e *entry, own *owner, cost int64, now moment, d *weir.Decision) (granted, ok bool) {
	seq, word, part := e.seq.Load(), e.word.Load(), e.part.Load()
	if word&locked != 0 {
		return false, false
	}
	before := state{a: word >> 1, b: part}
	if newest(own.limit, before) > now.at {
		if now = s.now(); ahead(own.limit, before, now) {
			return false, false
		}
	}
	after, granted := try(own.limit, before, cost, now, d)
	if !granted || cost == 0 {
		return granted, e.seq.Load() == seq && e.part.Load() == part && e.word.Load() == word && e.owner.Load() == own
	}
	if !e.word.CompareAndSwap(word, word|locked) {
		return false, false
	}
	if e.seq.Load() != seq || e.part.Load() != part || e.owner.Load() != own { // it changed in between, and back
		e.word.Store(word)
		return false, false
	}
	e.part.Store(after.b)
	e.word.Store(after.a << 1)
	return true, true
}

// try decides a request on a small state that the limit's own numbers wrote. It returns the state after a grant.
func try(l *weir.Limit, before state, cost int64, now moment, d *weir.Decision) (after state, granted bool) {
	switch {
	case l.Algorithm() != weir.AlgorithmTokenBucket:
		var w window.State
		w, d.Remaining, d.RetryAfter, d.ResetAfter, granted = window.Take(l, before.window(now), cost, now.at)
		d.Delay, d.At = 0, weir.Instant(now.at)
		return state{a: w.Start, b: w.Count}, granted
	case l.Step():
		var b bucket.State
		b, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, granted = bucket.TakeStep(l,
			bucket.State{At: before.a, Part: before.b}, cost, now.at)
		d.At = weir.Instant(now.at)
		return state{a: b.At, b: b.Part}, granted
	case bucket.Short(l):
		b, remaining, retryAfter, resetAfter, delay, granted, ok := bucket.Take(l,
			bucket.State{At: before.a, Part: before.b}, cost, now.at)
		if ok {
			d.Remaining, d.RetryAfter, d.ResetAfter = remaining, retryAfter, resetAfter
			d.Delay, d.At = delay, weir.Instant(now.at)
			return state{a: b.At, b: b.Part}, granted
		}
	}
	claim := weir.Claim{Limit: l, Cost: cost}
	after = before
	if granted = fit(&claim, before, 1, now) > 0; granted {
		after = charge(&claim, before, cost, now)
	}
	decide(&claim, after, now, d)
	return after, granted
}

// takeLarge is a request to a large state, under its mutex.
func (s *Store) takeLarge(e *entry, big *large, cost int64, now moment, d *weir.Decision) (granted, ok bool) {
	big.mu.Lock()
	l, state := big.limit, state{large: big}
	ok = e.word.Load() == 0 && e.owner.Load() == &big.owner
	if newest(l, state) > now.at {
		now = s.now()
		ok = ok && !ahead(l, state, now)
	}
	if ok = ok && !(s.tight() && !s.spare(big.growth(l, cost, now.at))); ok {
		granted = s.charge(big, cost, now.at, d)
	}
	big.mu.Unlock()
	return granted, ok
}

// charge is a request to a log or counter.
func (s *Store) charge(big *large, cost, now int64, d *weir.Decision) (granted bool) {
	if big.limit.Algorithm() == weir.AlgorithmSlidingLog {
		log := big.log()
		before := log.Bytes()
		granted = log.Take(big.limit, cost, now, true, d)
		s.grown(before, log.Bytes())
		return granted
	}
	counter := big.counter()
	before := counter.Bytes()
	granted = counter.Take(big.limit, cost, now, true, d)
	s.grown(before, counter.Bytes())
	return granted
}

// grown counts the bytes of a large state after a change.
func (s *Store) grown(before, after int64) {
	if before != after {
		s.large.Add(after - before)
	}
}

// try is charge that writes nothing.
func (b *large) try(cost, now int64, d *weir.Decision) (granted bool) {
	if b.limit.Algorithm() == weir.AlgorithmSlidingLog {
		return b.log().Take(b.limit, cost, now, false, d)
	}
	return b.counter().Take(b.limit, cost, now, false, d)
}

// takeLease is a request for one lease, or its renewal, of a known key. ok is false where a transaction must decide.
func (s *Store) takeLease(c *weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
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
	defer big.mu.Unlock()
	now, st := s.now(), state{large: big}
	ok = e.word.Load() == 0 && e.owner.Load() == own
	if !ok || !c.Renew && s.tight() && !s.spare(big.growth(c.Limit, c.Cost, now.at)) {
		return 0, false
	}
	if granted = fitLease(c, st, 1, now); granted > 0 {
		before := big.size()
		charge(c, st, c.Cost, now)
		s.grown(before, big.size())
	}
	for i := range decisions {
		decide(c, st, now, &decisions[i])
	}
	return granted, true
}

// giveBack is the refund of a lease, or to a bucket of one word, of a known key in a store that never was full. ok is
// false, and nothing was done, where a transaction must do it.
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
	now, st, before := s.now(), state{large: big}, big.size()
	if !big.leases().Release(c.Lease, now.at) {
		err = weir.ErrLeaseGone
	}
	s.grown(before, big.size())
	for i := range decisions {
		decide(c, st, now, &decisions[i])
	}
	return true, err
}
