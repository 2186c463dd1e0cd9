package recall

import (
	"context"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// batch is the reused memory of one DecideBatch.
type batch struct {
	lookups []lookup
	rest    layer.Batch
}

// DecideBatch implements weir.Batcher. Requests known to be refused are answered here, with the requests that
// follow them; the others go to the store below together.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	if s.closed.Load() {
		for i := range requests {
			requests[i].Granted, requests[i].Err = 0, weir.ErrClosed
		}
		return
	}
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	if cap(b.lookups) < len(requests) {
		b.lookups = make([]lookup, len(requests))
	}
	lookups := b.lookups[:len(requests)]
	answered := false
	for i := range requests {
		answered = s.answers(&lookups[i], &requests[i]) || answered
	}
	if !answered {
		layer.DecideBatch(ctx, s.next, requests)
	} else {
		for i := range requests {
			switch r := &requests[i]; {
			case b.rest.Void(r):
			case lookups[i].answered:
				b.rest.Answered(r)
			default:
				b.rest.Add(i, r)
			}
		}
		b.rest.Decide(ctx, s.next, requests)
	}
	for i := range requests {
		s.learnFrom(lookups[i:], requests[i:])
	}
	clear(lookups)
}

// answers answers a request that is known to be refused.
func (s *Store) answers(q *lookup, r *weir.Request) bool {
	q.asked = false
	if r.Times < 1 || r.Check() != nil {
		return false
	}
	q.asked = true
	found := s.find(q, r.Claims)
	q.answered = found == len(r.Claims) || found > 0 && r.Decisions == nil
	if !q.answered {
		return false
	}
	s.recalled.add()
	r.Granted, r.Err = 0, nil
	for rest := r.Decisions; len(rest) > 0; rest = rest[len(r.Claims):] {
		q.answer(r.Claims, rest[:len(r.Claims)])
	}
	return true
}

// learnFrom learns from the last decisions of the first request, unless a later request shares a key: units may
// have come back in between.
func (s *Store) learnFrom(lookups []lookup, requests []weir.Request) {
	q, r := &lookups[0], &requests[0]
	if !q.asked || q.answered || r.Err != nil || r.Decisions == nil {
		return
	}
	decided := r.Decisions[len(r.Decisions)-len(r.Claims):]
	refuses := slices.ContainsFunc(decided, func(d weir.Decision) bool { return d.RetryAfter != 0 })
	if !refuses || outdated(q.hash[:len(r.Claims)], lookups[1:], requests[1:]) {
		return
	}
	s.learn(q, r.Claims, decided)
}

// outdated reports whether one of some states is among those of requests.
func outdated(states []uint64, lookups []lookup, requests []weir.Request) bool {
	for i := range requests {
		for _, hash := range lookups[i].hash[:min(len(requests[i].Claims), weir.MaxClaims)] {
			if hash != 0 && slices.Contains(states, hash) {
				return true
			}
		}
	}
	return false
}
