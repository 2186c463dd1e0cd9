package gate_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A stalling store answers some calls after a while, and no others.
type stalling struct {
	weir.Store
	answers atomic.Int64 // calls that are answered
	takes   time.Duration
	timeout time.Duration
}

func (s *stalling) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := s.travel(ctx); err != nil {
		return 0, err
	}
	return s.Store.Decide(ctx, claims, times, d)
}

// travel is a call's way, which takes no longer than the store's timeout or the context.
func (s *stalling) travel(ctx context.Context) error {
	took := s.timeout
	if s.answers.Add(-1) >= 0 {
		took = s.takes
	}
	select {
	case <-time.After(took):
		if took < s.timeout {
			return nil
		}
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: no answer", weir.ErrUnavailable)
}

func (s *stalling) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := s.travel(ctx)
	for i := range requests {
		r := &requests[i]
		if r.Err = err; err == nil {
			r.Granted, r.Err = s.Store.Decide(ctx, r.Claims, r.Times, r.Decisions)
		}
	}
}

// manyCalls are rules that need more calls of a store than the one: a ban, a candidate and shadow rules.
func manyCalls(t *testing.T) *rules.Set {
	t.Helper()
	text := `
rules:
  - {name: banned, limit: 2/1h, ban: {after: 1 refusals within 1h, for: 1h}, candidate: {limit: 1/1h}}
`
	for i := range 10 {
		text += fmt.Sprintf("  - {name: shadow-%d, limit: 1/1h, mode: shadow}\n", i)
	}
	return compiled(t, text)
}

// TestDecisionKeepsItsBudget: however many calls of the store a decision needs, and whichever of them
// stall, it returns within the budget, by the rules' on_store_error if there was no answer, and the
// caller is not told of an error of its context.
func TestDecisionKeepsItsBudget(t *testing.T) {
	for _, budget := range []time.Duration{50 * time.Millisecond, time.Second} {
		for answered := range int64(6) {
			t.Run(fmt.Sprint(budget, " ", answered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &stalling{Store: memstore.New(), takes: budget / 4, timeout: budget}
					g, err := gate.New(store, manyCalls(t), gate.WithLocal(memstore.New()), gate.WithBudget(budget))
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for range 4 { // granted twice, then refused, and banned
						store.answers.Store(answered)
						began := time.Now()
						var v gate.Verdict
						if err := g.Decide(ctx, &rules.Request{}, gate.Once, &v); err != nil {
							t.Errorf("an error: %v", err)
						}
						if took := time.Since(began); took > budget {
							t.Errorf("it took %v, the budget is %v", took, budget)
						}
						if degraded := answered == 0; v.Degraded() != degraded {
							t.Errorf("degraded: %v (%v), want %v", v.Degraded(), v.Err, degraded)
						}
					}
					time.Sleep(2 * budget) // timers that decisions shared
				})
			})
		}
	}
}

// TestRefusalsAreCountedInASlowStore: a store whose timeout is longer than a second may take as long to count one.
func TestRefusalsAreCountedInASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stalling{Store: memstore.New(), takes: 2 * time.Second, timeout: time.Minute}
		store.answers.Store(1000)
		g := open(t, store, `rules: [{name: r, limit: 1/1h, ban: {after: 1 refusal within 1h, for: 1h}}]`, gate.WithBudget(time.Minute))
		var v gate.Verdict
		for _, want := range []gate.Reason{gate.WithinLimits, gate.LimitExceeded, gate.Banned} {
			if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil || v.Reason != want {
				t.Errorf("%v %v, want %v", v.Reason, err, want)
			}
		}
	})
}

// TestCallerThatLeavesIsNotAnswered: the budget hides nothing of the caller's own context.
func TestCallerThatLeavesIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stalling{Store: memstore.New(), timeout: time.Second}
		g, err := gate.New(store, manyCalls(t), gate.WithLocal(memstore.New()), gate.WithBudget(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []time.Duration{10 * time.Millisecond, 990 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), end)
			var v gate.Verdict
			err := g.Decide(ctx, &rules.Request{}, gate.Once, &v)
			if left := end < 500*time.Millisecond; errors.Is(err, context.DeadlineExceeded) != left {
				t.Errorf("a caller that leaves after %v: %v", end, err)
			}
			cancel()
		}
	})
}
