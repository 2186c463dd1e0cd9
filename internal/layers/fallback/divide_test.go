package fallback_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/fallback"
	"github.com/weirproject/weir/memstore"
)

const year = 365 * 24 * time.Hour

func TestShares(t *testing.T) {
	step := func(c, r int64, d time.Duration) weir.Spec {
		return weir.TokenBucket{Capacity: c, Refill: r, Period: d, Mode: weir.Step}
	}
	for _, c := range []struct {
		of    weir.Spec
		nodes int
		want  string
	}{
		{weir.PerSecond(100), 4, "100/4s burst 25"},
		{weir.PerSecond(100), 1, "100/1s"},
		{weir.GCRA(10, 7, time.Second), 3, "7/3s burst 4"},
		{weir.GCRA(1, 1, time.Minute), 10, "1/10m"},
		{weir.Borrowing(10, 10, time.Second, 5), 3, "10/3s burst 4 overdraft 2"},
		{weir.LeakyQueue(5, time.Second, 100), 2, "5/2s burst 1 overdraft 50"},
		{step(100, 100, time.Second), 4, "25/1s step"},
		{step(100, 10, time.Second), 4, "3/1200ms burst 25 step"},
		{step(10, 1, time.Hour), 4, "1/4h burst 3 step"},
		{step(1, 3, time.Microsecond), 2, "2/2us burst 1 step"}, // 4/3 µs, rounded up
		{weir.FixedWindow{Limit: 10, Window: time.Minute}, 3, "fixed_window 4/1m"},
		{weir.FixedWindow{Limit: 2, Window: time.Minute, Anchor: weir.Epoch}, 3, "fixed_window 1/1m epoch"},
		{weir.Calendar{Limit: 1000, Unit: weir.Day, Zone: "Europe/Berlin"}, 3, "calendar 334/day in Europe/Berlin"},
		{weir.SlidingLog{Limit: 9, Window: time.Minute}, 3, "sliding_log 3/1m"},
		{weir.SlidingCounter{Limit: 9, Window: time.Minute, Slices: 6}, 4, "sliding_counter 3/1m slices 6"},
		{weir.Concurrency{Limit: 5, TTL: time.Minute}, 2, "concurrency 3 ttl 1m"},
		// A period that would be too long stays.
		{weir.GCRA(3, 1, 40*year), 4, "1/14600d"},
		{step(4, 2, 40*year), 4, "1/29200d step"},
		{step(2, 1, 70*year), 4, "1/3650w step"},
		{weir.GCRA(1, 1<<52, time.Microsecond), 3, "4503599627370496/3us burst 1"},
	} {
		limit := weir.MustLimit("limit", c.of)
		share := newLocal(t, c.nodes).Share(limit)
		if share.String() != c.want || share.Name() != "limit" || !share.SameState(limit) {
			t.Errorf("%s of %d nodes is %s of %s, want %s", c.of, c.nodes, share, share.Name(), c.want)
		}
		if c.nodes == 1 && share != limit {
			t.Errorf("%s of one node is another limit", c.of)
		}
	}
}

// For any numbers there is a share, and all shares together are the limit or more, by rounding alone.
func TestSharesOfAnyNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	any := func() int64 { return 1 + r.Int64N(1<<r.IntN(52)) }
	shared := memstore.New()
	for range 50_000 {
		nodes := int(min(any(), fallback.MaxNodes))
		spec := weir.TokenBucket{Capacity: any(), Refill: any(),
			Period: time.Duration(min(any(),
				1<<50)) * time.Microsecond, Overdraft: any() - 1, Mode: weir.RefillMode(r.IntN(2))}
		limit, err := weir.NewLimit("limit", spec)
		if err != nil {
			continue
		}
		local, err := fallback.NewLocal(shared, fallback.Config{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		n, share := int64(nodes), local.Share(limit)
		if over := n*share.Capacity() - limit.Capacity(); over < 0 || over >= n {
			t.Fatalf("%s of %d nodes: %s", spec, n, share)
		}
		if over := n*share.Overdraft() - limit.Overdraft(); over < 0 || over >= n {
			t.Fatalf("%s of %d nodes: %s", spec, n, share)
		}
		// Units a µs, of all: not less than the limit's by more than a rounded µs of the period.
		rate := float64(n) * float64(share.Refill()) / float64(share.Period())
		want := float64(limit.Refill()) / float64(limit.Period())
		if rate < want*float64(share.Period()-1)/float64(share.Period())*(1-1e-9) ||
			rate > want*(1+1e-9) && share.Period() != limit.Period() {
			t.Fatalf("%s of %d nodes: %s refills at %v, all of it at %v", spec, n, share, rate, want)
		}
	}
}

func TestWholeLimits(t *testing.T) {
	whole := "whole"
	local, err := fallback.NewLocal(memstore.New(), fallback.Config{Nodes: 4,
		Whole: func(l *weir.Limit) bool { return l.Name() == whole }})
	if err != nil {
		t.Fatal(err)
	}
	limit, other := weir.MustLimit("whole", weir.PerSecond(100)), weir.MustLimit("other", weir.PerSecond(100))
	if local.Share(limit) != limit || local.Share(other).Capacity() != 25 {
		t.Errorf("%s and %s are the shares", local.Share(limit), local.Share(other))
	}
	whole = "other" // rules change
	if local.Share(other) != other || local.Share(limit).Capacity() != 25 {
		t.Errorf("%s and %s are the shares after that changed", local.Share(limit), local.Share(other))
	}
}

// A cost between the share and the limit is refused, and not for ever.
func TestCostsOverTheShare(t *testing.T) {
	local := newLocal(t, 4)
	for _, spec := range []weir.Spec{weir.PerSecond(8), weir.FixedWindow{Limit: 8, Window: time.Minute},
		weir.SlidingLog{Limit: 8, Window: time.Minute}} {
		limit := weir.MustLimit("limit", spec)
		for cost, want := range map[int64]string{1: "0s", 2: "0s", 3: "1s", 8: "1s", 9: fmt.Sprint(weir.Never)} {
			d := make([]weir.Decision, 1)
			one := []weir.Claim{{Key: "key", Limit: limit, Cost: cost}}
			if _, err := local.Decide(background, one, 0, d); err != nil || d[0].RetryAfter.String() != want {
				t.Errorf("a cost of %d of %s: %v, %v; want %s", cost, spec, d[0].RetryAfter, err, want)
			}
		}
	}
}
