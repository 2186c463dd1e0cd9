package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// Shortcut implements weir.Shortcut.
func (s *Store) Shortcut(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if l == nil || l.Overdraft() > 0 {
		return
	}
	granted, remaining, retryAfter, resetAfter, delay, at, ok := s.take(key, l, cost)
	// Without an overdraft only a refusal has a delay, and that changed nothing.
	return granted, remaining, retryAfter, resetAfter, at, ok && delay == 0
}

// take is a request to a known key under the numbers that wrote its state: one look-up, and then the entry's own word
// or mutex. ok is false, and nothing was done, where a transaction must decide: for a lease, say.
func (s *Store) take(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if key == "" || uint64(cost) > weir.MaxUnits {
		return
	}
	now := s.now() // before the entry is touched: others wait for its cache line
	id := s.id(key, l)
	e := s.shard(id.hash).table.Load().find(id, l)
	if e == nil {
		return
	}
	if part := e.part.Load(); part < 0 {
		if !bucket.Short(l) || -part != l.Interval().Den {
			return
		}
		granted, remaining, retryAfter, resetAfter, delay, ok = s.takeNarrow(e, l, cost, now)
		return granted, remaining, retryAfter, resetAfter, delay, weir.Instant(now), ok
	}
	own := e.owner.Load()
	if own.limit != l || l.Algorithm() == weir.AlgorithmConcurrency {
		return
	}
	claim := weir.Claim{Limit: l, Cost: cost}
	var d weir.Decision
	if own.large != nil {
		granted, ok = s.takeLarge(e, own, &claim, now, &d)
	} else {
		granted, ok = s.takeWide(e, own, &claim, now, &d)
	}
	return granted, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, ok
}

// takeNarrow is a request to a bucket of one word: a grant is one compare-and-swap.
func (s *Store) takeNarrow(e *entry, l *weir.Limit, cost, now int64) (granted bool, remaining int64, retryAfter, resetAfter, delay time.Duration, ok bool) {
	for {
		word := e.word.Load()
		if word&locked != 0 {
			return
		}
		before := unpack(word)
		var after bucket.State
		after, remaining, retryAfter, resetAfter, delay, granted, ok = bucket.Take(l, bucket.State{At: before.a, Part: before.b}, cost, now)
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
func (s *Store) takeWide(e *entry, own *owner, c *weir.Claim, now int64, d *weir.Decision) (granted, ok bool) {
	seq, word := e.seq.Load(), e.word.Load()
	before := state{a: word >> 1, b: e.part.Load()}
	granted = fit(c, before, 1, now) > 0
	if !granted || c.Cost == 0 {
		*d = decision(c, before, now)
		return granted, word&locked == 0 && e.seq.Load() == seq && e.word.Load() == word && e.owner.Load() == own
	}
	if word&locked != 0 || !e.word.CompareAndSwap(word, word|locked) {
		return false, false
	}
	if e.seq.Load() != seq || e.owner.Load() != own { // it changed in between, and back
		e.word.Store(word)
		return false, false
	}
	after := charge(c, before, c.Cost, now)
	e.part.Store(after.b)
	e.seq.Store(seq + 1)
	e.word.Store(after.a << 1)
	*d = decision(c, after, now)
	return true, true
}

// takeLarge is a request to a large state. A key that was refused is likely to be refused again: then requests read side
// by side.
func (s *Store) takeLarge(e *entry, own *owner, c *weir.Claim, now int64, d *weir.Decision) (granted, ok bool) {
	big := own.large
	st := state{large: big}
	if big.refused.Load() || c.Cost == 0 {
		if !e.tryRead(own) {
			return false, false
		}
		granted = fit(c, st, 1, now) > 0
		if !granted || c.Cost == 0 {
			*d = decision(c, st, now)
			big.mu.RUnlock()
			return granted, true
		}
		big.mu.RUnlock()
	}
	big.mu.Lock()
	defer big.mu.Unlock()
	if e.word.Load() != 0 || e.owner.Load() != own || !s.spare(c, st, now) {
		return false, false
	}
	granted = fit(c, st, 1, now) > 0
	if granted == big.refused.Load() {
		big.refused.Store(!granted)
	}
	if granted {
		charge(c, st, c.Cost, now)
		s.measure(own)
	}
	*d = decision(c, st, now)
	return granted, true
}
