package storetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// honestSteps are the charges of one limit in Honest, at growing times.
const honestSteps = 300

// Honest checks what decisions of a store say about the future, to the microsecond, for the limit that a spec
// describes: at RetryAfter the same request is granted, and a microsecond before it is not; at ResetAfter all is left,
// and not before; Remaining is granted, and one unit more is not. It drives the clock, with random costs and pauses,
// which are the same in each run. A limit whose RetryAfter is an upper bound, such as Concurrency, does not pass.
//
//	storetest.Honest(t, subject, weir.SlidingLog{Limit: 100, Window: time.Minute})
func Honest(t *testing.T, s Subject, specs ...weir.Spec) {
	for _, spec := range specs {
		t.Run(spec.String(), func(t *testing.T) {
			limit, err := weir.NewLimit("honest", spec)
			if err != nil {
				t.Fatal(err)
			}
			var now clock
			now.set(epoch)
			store := s(t, now.read)
			defer store.Close()
			honest(t, &honesty{t, store, &now, limit})
		})
	}
}

// honest charges and pauses at random, and checks each state.
func honest(t TB, h *honesty) {
	random := rand.New(rand.NewPCG(1, 1))
	most := h.limit.Most()
	cost := func() int64 { return 1 + random.Int64N(1+min(most, random.Int64N(most+1))) }
	for range honestSteps {
		pause := []int64{0, 1, random.Int64N(1_000_000), random.Int64N(max(1, h.limit.Period()) + 1)}
		h.now.set(int64(h.now.read()) + pause[random.IntN(len(pause))])
		claims := []weir.Claim{{Key: "key", Limit: h.limit, Cost: min(most, cost())}}
		if _, err := h.store.Decide(context.Background(), claims, 1, nil); err != nil {
			t.Fatalf("Decide: %v", err)
		}
		h.check(cost())
	}
}

// honesty is one limit of a store under Honest.
type honesty struct {
	t     TB
	store weir.Store
	now   *clock
	limit *weir.Limit
}

// check compares what a peek says with what is so then.
func (h *honesty) check(cost int64) {
	h.t.Helper()
	said := h.peek(cost, 0)
	never := cost > h.limit.Most()
	h.is(never == (said.RetryAfter == weir.Never), "RetryAfter is Never above the limit, and only there", cost)
	if wait := said.RetryAfter; wait > 0 && !never {
		h.is(h.peek(cost, wait).RetryAfter == 0, "a request is granted at its RetryAfter", cost)
		h.is(h.peek(cost, wait-time.Microsecond).RetryAfter != 0, "none is granted before its RetryAfter", cost)
	}
	if wait := said.ResetAfter; wait > 0 {
		at := h.peek(cost, wait)
		h.is(at.ResetAfter == 0 && at.Remaining == h.limit.Most(), "all is left at ResetAfter", cost)
		h.is(h.peek(cost, wait-time.Microsecond).ResetAfter != 0, "not all is left before ResetAfter", cost)
	}
	if left := said.Remaining; left > 0 {
		h.is(h.peek(left, 0).RetryAfter == 0, "Remaining is granted", left)
	}
	if more := said.Remaining + 1; more <= h.limit.Most() {
		h.is(h.peek(more, 0).RetryAfter != 0, "one more than Remaining is not granted", more)
	}
}

func (h *honesty) is(so bool, what string, cost int64) {
	h.t.Helper()
	if !so {
		h.t.Fatalf("%s: it is not so of %q for a cost of %d at %d", what, h.limit, cost, h.now.read())
	}
}

// peek looks at the decision after a time.
func (h *honesty) peek(cost int64, after time.Duration) weir.Decision {
	h.t.Helper()
	before := int64(h.now.read())
	h.now.set(before + after.Microseconds())
	defer h.now.set(before)
	var d [1]weir.Decision
	claims := []weir.Claim{{Key: "key", Limit: h.limit, Cost: cost}}
	if _, err := h.store.Decide(context.Background(), claims, 0, d[:]); err != nil {
		h.t.Fatalf("Decide: %v", err)
	}
	return d[0]
}
