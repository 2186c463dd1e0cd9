package stories_test

import (
	"context"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/slidingcounter"
	"github.com/weirproject/weir/internal/algorithm/slidinglog"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// twins is the least store that can be made of the Go twins: a map, without locks,
// expiry or ceilings. It shows that the stories hold for the arithmetic itself.
type twins struct {
	now  func() weir.Instant
	keys map[stateKey]entry
}

type stateKey struct {
	name      string
	algorithm weir.Algorithm
	key       string
}

type entry struct {
	limit *weir.Limit // the limit that wrote the state
	state state
}

// A state is one twin behind one interface.
type state interface {
	available(l *weir.Limit, c *weir.Claim, now int64) int64
	charge(l *weir.Limit, c *weir.Claim, n, now int64)
	refund(l *weir.Limit, c *weir.Claim, takenAt, now int64) bool
	decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision
	adopt(from, to *weir.Limit, now int64)
	clone() state
}

func newTwins(now func() weir.Instant) *twins {
	return &twins{now: now, keys: map[stateKey]entry{}}
}

func newState(l *weir.Limit) state {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return new(bucketState)
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return new(windowState)
	case weir.AlgorithmSlidingLog:
		return new(logState)
	case weir.AlgorithmSlidingCounter:
		return new(counterState)
	}
	return new(leaseState)
}

func keyOf(c *weir.Claim) stateKey {
	return stateKey{c.Limit.Name(), c.Limit.Algorithm(), c.Key}
}

// read is a copy of a claim's state under its numbers: only write changes the stored one.
func (t *twins) read(c *weir.Claim, now int64) state {
	kept, ok := t.keys[keyOf(c)]
	if !ok {
		return newState(c.Limit)
	}
	s := kept.state.clone()
	if kept.limit != c.Limit {
		s.adopt(kept.limit, c.Limit, now)
	}
	return s
}

func (t *twins) write(c *weir.Claim, s state) { t.keys[keyOf(c)] = entry{c.Limit, s} }

func (t *twins) Decide(_ context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return 0, err
	}
	now, granted := int64(t.now()), times
	for i := range claims {
		c := &claims[i]
		granted = min(granted, algorithm.Fit(t.read(c, now).available(c.Limit, c, now), c.Cost, times))
	}
	t.charge(claims, granted, now)
	t.describe(claims, decisions, now)
	return granted, nil
}

func (t *twins) charge(claims []weir.Claim, times, now int64) {
	for i := range claims {
		if c := &claims[i]; times > 0 && (c.Cost > 0 || c.Lease != "") {
			s := t.read(c, now)
			s.charge(c.Limit, c, c.Cost*times, now)
			t.write(c, s)
		}
	}
}

func (t *twins) describe(claims []weir.Claim, decisions []weir.Decision, now int64) {
	for i := range decisions {
		c := &claims[i]
		decisions[i] = t.read(c, now).decision(c.Limit, c, now)
	}
}

func (t *twins) Charge(_ context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := weir.Check(claims, 1, decisions); err != nil {
		return err
	}
	now := int64(t.now())
	t.charge(claims, 1, now)
	t.describe(claims, decisions, now)
	return nil
}

func (t *twins) Refund(_ context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if err := weir.Check(claims, 0, decisions); err != nil {
		return err
	}
	now, gone := int64(t.now()), error(nil)
	for i := range claims {
		c := &claims[i]
		s := t.read(c, now)
		if !s.refund(c.Limit, c, int64(takenAt), now) {
			gone = weir.ErrLeaseGone
		}
		t.write(c, s)
	}
	t.describe(claims, decisions, now)
	return gone
}

func (t *twins) Reset(_ context.Context, claims []weir.Claim) error {
	for i := range claims {
		delete(t.keys, keyOf(&claims[i]))
	}
	return nil
}

func (t *twins) Close() error { return nil }

type bucketState struct{ bucket.State }

func (s *bucketState) clone() state { return &bucketState{s.State} }

func (s *bucketState) available(l *weir.Limit, _ *weir.Claim, now int64) int64 {
	return bucket.Available(l, s.State, now)
}

func (s *bucketState) charge(l *weir.Limit, _ *weir.Claim, n, now int64) {
	s.State = bucket.Charge(l, s.State, n, now)
}

func (s *bucketState) refund(l *weir.Limit, c *weir.Claim, takenAt, now int64) bool {
	s.State = bucket.Cancel(l, s.State, c.Cost, algorithm.Due(c, takenAt), now)
	return true
}

func (s *bucketState) decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision {
	return bucket.Decision(l, s.State, c.Cost, now)
}

func (s *bucketState) adopt(from, to *weir.Limit, now int64) {
	s.State = bucket.Adopt(from, to, s.State, now)
}

type windowState struct{ window.State }

func (s *windowState) clone() state { return &windowState{s.State} }

func (s *windowState) available(l *weir.Limit, _ *weir.Claim, now int64) int64 {
	return window.Available(l, s.State, now)
}

func (s *windowState) charge(l *weir.Limit, _ *weir.Claim, n, now int64) {
	s.State = window.Charge(l, s.State, n, now)
}

func (s *windowState) refund(l *weir.Limit, c *weir.Claim, takenAt, now int64) bool {
	s.State = window.Refund(l, s.State, c.Cost, takenAt, now)
	return true
}

func (s *windowState) decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision {
	return window.Decision(l, s.State, c.Cost, now)
}

func (s *windowState) adopt(from, to *weir.Limit, _ int64) {
	s.State = window.Adopt(from, to, s.State)
}

type logState struct{ slidinglog.State }

func (s *logState) clone() state { return &logState{*slidinglog.New(s.Entries())} }

func (s *logState) available(l *weir.Limit, _ *weir.Claim, now int64) int64 {
	return s.Available(l, now)
}

func (s *logState) charge(l *weir.Limit, _ *weir.Claim, n, now int64) { s.Charge(l, n, now) }

func (s *logState) refund(l *weir.Limit, c *weir.Claim, takenAt, now int64) bool {
	s.Refund(l, c.Cost, takenAt, now)
	return true
}

func (s *logState) decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision {
	return s.Decision(l, c.Cost, now)
}

func (s *logState) adopt(_, _ *weir.Limit, _ int64) {} // a log has no numbers of its limit

type counterState struct{ slidingcounter.State }

func (s *counterState) clone() state { return &counterState{*slidingcounter.New(s.Counts())} }

func (s *counterState) available(l *weir.Limit, _ *weir.Claim, now int64) int64 {
	return s.Available(l, now)
}

func (s *counterState) charge(l *weir.Limit, _ *weir.Claim, n, now int64) { s.Charge(l, n, now) }

func (s *counterState) refund(l *weir.Limit, c *weir.Claim, takenAt, now int64) bool {
	s.Refund(l, c.Cost, takenAt, now)
	return true
}

func (s *counterState) decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision {
	return s.Decision(l, c.Cost, now)
}

func (s *counterState) adopt(from, to *weir.Limit, _ int64) { s.Adopt(from, to) }

type leaseState struct{ concurrency.State }

func (s *leaseState) clone() state { return &leaseState{*concurrency.New(s.Leases())} }

func (s *leaseState) available(l *weir.Limit, c *weir.Claim, now int64) int64 {
	switch live := s.Live(c.Lease, now); {
	case live:
		return c.Cost
	case c.Renew:
		return -1
	}
	return s.Available(l, now)
}

func (s *leaseState) charge(l *weir.Limit, c *weir.Claim, n, now int64) { s.Take(l, c.Lease, n, now) }

func (s *leaseState) refund(_ *weir.Limit, c *weir.Claim, _, now int64) bool {
	return s.Release(c.Lease, now)
}

func (s *leaseState) decision(l *weir.Limit, c *weir.Claim, now int64) weir.Decision {
	return s.Decision(l, c.Cost, now)
}

func (s *leaseState) adopt(_, _ *weir.Limit, _ int64) {} // a lease keeps its units and its end
