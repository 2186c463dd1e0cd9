package recall

import (
	"context"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/internal/partial"
)

// batch is what one DecideBatch needs. It is used again.
type batch struct {
	questions []question
	rest      partial.Batch
}

// DecideBatch implements weir.Batcher. What is known to be refused is answered here, with the requests
// that follow it; the others go to the store below together.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	if s.closed.Load() {
		for i := range requests {
			requests[i].Granted, requests[i].Err = 0, weir.ErrClosed
		}
		return
	}
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	if cap(b.questions) < len(requests) {
		b.questions = make([]question, len(requests))
	}
	questions := b.questions[:len(requests)]
	answered := false
	for i := range requests {
		answered = s.answers(&questions[i], &requests[i]) || answered
	}
	if !answered {
		partial.Decide(ctx, s.next, requests)
	} else {
		for i := range requests {
			switch r := &requests[i]; {
			case b.rest.Void(r):
			case questions[i].answered:
				b.rest.Answered(r)
			default:
				b.rest.Add(i, r)
			}
		}
		b.rest.Decide(ctx, s.next, requests)
	}
	for i := range requests {
		s.learnFrom(questions[i:], requests[i:])
	}
	clear(questions)
}

// answers fills in the answer of a request that is known to be refused.
func (s *Store) answers(q *question, r *weir.Request) bool {
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

// learnFrom is learn from what the store said of the last of the first request's times. Where a
// request behind it shares a key, that one knows better: units may have come back in between.
func (s *Store) learnFrom(questions []question, requests []weir.Request) {
	q, r := &questions[0], &requests[0]
	if !q.asked || q.answered || r.Err != nil || r.Decisions == nil {
		return
	}
	said := r.Decisions[len(r.Decisions)-len(r.Claims):]
	refuses := slices.ContainsFunc(said, func(d weir.Decision) bool { return d.RetryAfter != 0 })
	if !refuses || outdated(q.hash[:len(r.Claims)], questions[1:], requests[1:]) {
		return
	}
	s.learn(q, r.Claims, said)
}

// outdated reports whether one of some states is among those of requests.
func outdated(states []uint64, questions []question, requests []weir.Request) bool {
	for i := range requests {
		for _, hash := range questions[i].hash[:min(len(requests[i].Claims), weir.MaxClaims)] {
			if hash != 0 && slices.Contains(states, hash) {
				return true
			}
		}
	}
	return false
}
