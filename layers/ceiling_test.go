package layers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestCeilingBatches(t *testing.T) {
	next, c, _ := ceilingDriven(t, every)
	batcher := c
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour})
	request := func(key string, cost, times int64) weir.Request {
		return weir.Request{Claims: []weir.Claim{{Key: key, Limit: limit, Cost: cost}}, Times: times,
			Decisions: make([]weir.Decision, max(times, 1)), Granted: 77, Err: errors.New("before")}
	}
	batch := []weir.Request{request("a", 1, 10), request("b", 1, 11), request("c", 1, 0)}
	batcher.DecideBatch(background, batch)
	if batch[0].Granted != 10 || batch[1].Granted != 11 || batch[2].Granted != 0 || batch[1].Err != nil ||
		c.refusals() != 0 {
		t.Fatalf("%+v", batch)
	}
	batch = []weir.Request{request("a", 1, 5), request("b", 1, 1), request("d", -1, 1), request("e", 1, 1),
		request("b", 1, 0)}
	batcher.DecideBatch(background, batch)
	cut := weir.Decision{RetryAfter: 5 * time.Minute, ResetAfter: 5 * time.Minute}
	if r := batch[0]; r.Granted != 2 || r.Err != nil ||
		!slices.Equal(r.Decisions, []weir.Decision{{}, {}, cut, cut, cut}) {
		t.Errorf("cut: %+v", r)
	}
	var input *weir.InputError
	if !errors.As(batch[2].Err, &input) {
		t.Errorf("wrong: %+v", batch[2])
	}
	if batch[1].Granted != 1 || batch[3].Granted != 1 || batch[4].Granted != 0 ||
		batch[4].Decisions[0].RetryAfter != 0 {
		t.Errorf("%+v", batch)
	}
	asked := next.asked.Load()
	batch = []weir.Request{request("a", 1, 2), request("b", 1, 0)}
	batch[1].Decisions = nil
	batcher.DecideBatch(background, batch)
	full := weir.Decision{RetryAfter: 5 * time.Minute, ResetAfter: time.Hour, At: epoch}
	if r := batch[0]; r.Granted != 0 || r.Err != nil || !slices.Equal(r.Decisions, []weir.Decision{full, full}) ||
		batch[1].Err != nil {
		t.Errorf("refused: %+v", batch)
	}
	if next.asked.Load() != asked || c.refusals() != 3+2 {
		t.Errorf("asked %d more, %d refused", next.asked.Load()-asked, c.refusals())
	}
	batch = []weir.Request{request("a", 1, 2), request("f", 1, 2)}
	batch[0].Decisions = make([]weir.Decision, 1)
	batcher.DecideBatch(background, batch)
	if !errors.As(batch[0].Err, &input) || batch[1].Granted != 2 {
		t.Errorf("too few decisions, of a key without room: %+v", batch)
	}
}

// The decisions of times that were not passed on repeat the store's last one.
func TestBatchBeyondTheCeiling(t *testing.T) {
	shared := memstore.New()
	batcher := newCeiling(shared, memstore.New(), every)
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour})
	ask := func(granted int64) []weir.Decision {
		t.Helper()
		batch := []weir.Request{{Claims: ceilingClaim(limit, 1), Times: 15, Decisions: make([]weir.Decision, 15)}}
		if batcher.DecideBatch(background, batch); batch[0].Granted != granted || batch[0].Err != nil {
			t.Fatalf("%+v, want %d granted", batch[0], granted)
		}
		return batch[0].Decisions
	}
	d := ask(10) // the store refuses, of 12 that fit
	if d[9].RetryAfter == 0 || d[14] != d[9] || d[14].ResetAfter != time.Hour {
		t.Errorf("refused by the store: %+v", d)
	}
	shared.Reset(background, ceilingClaim(limit, 1))
	d = ask(2)
	if d[1].Remaining != 8 || d[1].RetryAfter != 0 || d[2].Remaining != 0 || d[2].RetryAfter <= 0 ||
		d[2].At != d[1].At || d[2].ResetAfter != time.Hour || d[14] != d[2] {
		t.Errorf("refused by the ceiling: %+v", d)
	}
}

// ceilingCounted are the kinds of limits without leases, of n units.
func ceilingCounted(n int64) []weir.Spec {
	return []weir.Spec{
		weir.TokenBucket{Capacity: n, Refill: n, Period: time.Minute},
		weir.TokenBucket{Capacity: n, Refill: 7, Period: time.Second, Overdraft: 3},
		weir.TokenBucket{Capacity: n, Refill: 3, Period: 10 * time.Second, Mode: weir.Step},
		weir.FixedWindow{Limit: n, Window: time.Minute},
		weir.FixedWindow{Limit: n, Window: time.Minute, Anchor: weir.Epoch},
		weir.Calendar{Limit: n, Unit: weir.Minute},
		weir.SlidingLog{Limit: n, Window: time.Minute},
		weir.SlidingCounter{Limit: n, Window: time.Minute, Slices: 1},
		weir.SlidingCounter{Limit: n, Window: time.Minute, Slices: 6},
	}
}

// Nodes under the lowest of ceilings, and one store beside them without: whatever they ask,
// at whatever times, every answer is the same.
func TestIntactStoreIsNeverOverruled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 40).Draw(t, "units")
		limit := weir.MustLimit("limit", rapid.SampledFrom(ceilingCounted(n)).Draw(t, "spec"))
		var clock, own atomic.Int64
		clock.Store(epoch)
		now := memstore.WithClock(func() weir.Instant { return weir.Instant(clock.Load()) })
		bare, shared := memstore.New(now), memstore.New(now)
		var nodes []weir.Store
		for range 3 {
			c := newCeiling(shared,
				memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(own.Load()) })), exactly)
			nodes = append(nodes, c)
		}
		type grant struct {
			node int
			cost int64
			at   weir.Instant
		}
		var grants []grant
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if step := rapid.Int64Range(-5, 30).Draw(t, "seconds") * 1_000_003; rapid.Bool().Draw(t, "moves") {
				clock.Add(step)
				own.Add(max(step, 0)) // the process' clock does not step back
			}
			i := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
			claim := []weir.Claim{{Key: "key", Limit: limit, Cost: rapid.Int64Range(0, n+4).Draw(t, "cost")}}
			want, got := make([]weir.Decision, 1), make([]weir.Decision, 1)
			if len(grants) > 0 && rapid.IntRange(0, 3).Draw(t, "refunds") == 0 {
				last := grants[len(grants)-1]
				grants = grants[:len(grants)-1]
				claim[0].Cost = last.cost
				bare.Refund(background, claim, last.at, want)
				nodes[last.node].Refund(background, claim, last.at, got)
			} else {
				times := rapid.Int64Range(0, 5).Draw(t, "times")
				granted, _ := bare.Decide(background, claim, times, want)
				same, err := nodes[i].Decide(background, claim, times, got)
				if granted != same || err != nil {
					t.Fatalf("%s: %d × %d: granted %d, %v; want %d", limit, times, claim[0].Cost, same, err, granted)
				}
				if granted > 0 {
					grants = append(grants, grant{i, granted * claim[0].Cost, got[0].At})
				}
			}
			if got[0] != want[0] {
				t.Fatalf("%s: %+v, want %+v", limit, got[0], want[0])
			}
		}
	})
}

// ceilingMost is what a ceiling's bucket holds, and its rate, by hand from the package's table.
func ceilingMost(spec weir.Spec) (units, rate int64, each time.Duration) {
	switch s := spec.(type) {
	case weir.TokenBucket:
		units = s.Capacity + s.Overdraft
		if s.Mode == weir.Step {
			units += s.Refill
		}
		return units, s.Refill, s.Period
	case weir.SlidingLog:
		return s.Limit, s.Limit, s.Window
	case weir.FixedWindow:
		return 2 * s.Limit, s.Limit, s.Window
	case weir.SlidingCounter:
		return 2 * s.Limit, s.Limit, s.Window
	}
	return 2 * spec.(weir.Calendar).Limit, spec.(weir.Calendar).Limit, time.Minute
}

// A store that forgets all the time grants all the time. One node passes no more than it may.
func TestForgetfulStoreIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 40).Draw(t, "units")
		spec := rapid.SampledFrom(ceilingCounted(n)).Draw(t, "spec")
		limit := weir.MustLimit("limit", spec)
		factor := float64(rapid.IntRange(1000, 3000).Draw(t, "thousandths")) / 1000
		var clock atomic.Int64
		clock.Store(epoch)
		now := memstore.WithClock(func() weir.Instant { return weir.Instant(clock.Load()) })
		shared := memstore.New(now)
		c := newCeiling(shared, memstore.New(now), func(*weir.Limit) (float64, bool) { return factor, true })
		units, rate, each := ceilingMost(spec)
		type grant struct{ at, units int64 }
		var grants []grant
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			clock.Add(rapid.Int64Range(0, 20_000_000).Draw(t, "µs"))
			cost := rapid.Int64Range(1, n).Draw(t, "cost")
			claim := []weir.Claim{{Key: "key", Limit: limit, Cost: cost}}
			shared.Reset(background, claim)
			granted, err := c.Decide(background, claim, rapid.Int64Range(1, 100).Draw(t, "times"), nil)
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, grant{clock.Load(), granted * cost})
			sum := int64(0)
			for i, g := range slices.Backward(grants) {
				sum += g.units
				took := float64(clock.Load() - grants[i].at)
				// The part beyond, or one request that costs more than that.
				bound := float64(units) + max((factor-1)*float64(units),
					float64(n)) + factor*float64(rate)*took/float64(each.Microseconds())
				if float64(sum) > bound+1 {
					t.Fatalf("%s × %v: %d units in %v µs, want at most %v", limit, factor, sum, took, bound)
				}
			}
		}
	})
}

// generous grants all that it is asked for, and says nothing.
type generous struct {
	weir.Store
	asked atomic.Int64
}

func (g *generous) Decide(_ context.Context, _ []weir.Claim, times int64, _ []weir.Decision) (int64, error) {
	g.asked.Add(1)
	return times, nil
}

func (g *generous) DecideBatch(_ context.Context, requests []weir.Request) {
	g.asked.Add(int64(len(requests)))
	for i := range requests {
		r := &requests[i]
		if r.Err = r.Check(); r.Err == nil {
			r.Granted = r.Times
		}
	}
}

// ceilingDriven is a ceiling over a generous store.
func ceilingDriven(t testing.TB, factor func(*weir.Limit) (float64, bool)) (*generous, *ceiling, *atomic.Int64) {
	t.Helper()
	next, clock := &generous{}, &atomic.Int64{}
	clock.Store(epoch)
	now := func() weir.Instant { return weir.Instant(clock.Load()) }
	c := newCeiling(next, memstore.New(memstore.WithClock(now)), factor)
	return next, c, clock
}

func ceilingClaim(limit *weir.Limit, cost int64) []weir.Claim {
	return []weir.Claim{{Key: "key", Limit: limit, Cost: cost}}
}

func TestBoundsOfSpecs(t *testing.T) {
	for spec, want := range map[weir.Spec]int64{
		weir.PerSecond(100):                      120,
		weir.Borrowing(100, 10, time.Second, 50): 180,
		weir.TokenBucket{Capacity: 100, Refill: 10, Period: time.Hour, Mode: weir.Step}: 132,
		weir.SlidingLog{Limit: 100, Window: time.Minute}:                                120,
		weir.FixedWindow{Limit: 100, Window: time.Minute}:                               240,
		weir.Calendar{Limit: 100, Unit: weir.Month}:                                     240,
		weir.SlidingCounter{Limit: 100, Window: time.Minute, Slices: 6}:                 240,
		weir.SlidingLog{Limit: 1, Window: time.Minute}:                                  2,
		weir.SlidingLog{Limit: 7, Window: time.Minute}:                                  9,
	} {
		next, c, clock := ceilingDriven(t, every)
		limit := weir.MustLimit("limit", spec)
		granted := int64(0)
		for range 1000 {
			one, err := c.Decide(background, ceilingClaim(limit, 1), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			granted += one
		}
		if granted != want || next.asked.Load() != want || c.refusals() != 1000-want {
			t.Errorf("%s: %d granted, the store was asked %d times, %d refused; want %d granted", spec, granted,
				next.asked.Load(), c.refusals(), want)
		}
		clock.Add(10_000_000)
		_, rate, each := ceilingMost(spec)
		if _, ok := spec.(weir.Calendar); ok {
			each = 28*24*time.Hour - time.Hour
		}
		more := int64(1.2 * float64(rate) * float64(10*time.Second) / float64(each))
		if got, _ := c.Decide(background, ceilingClaim(limit, 1), 1000, nil); got != min(more, want) {
			t.Errorf("%s: %d granted after 10 s, want %d", spec, got, more)
		}
	}
}

func TestRetryAfterIsTrue(t *testing.T) {
	for _, spec := range ceilingCounted(10) {
		for _, cost := range []int64{1, 2, 9} {
			_, c, clock := ceilingDriven(t, every)
			store, limit, d := c, weir.MustLimit("limit", spec), make([]weir.Decision, 1)
			granted := int64(1)
			for granted > 0 {
				granted, _ = store.Decide(background, ceilingClaim(limit, cost), 1, d)
			}
			wait := d[0].RetryAfter.Microseconds()
			if wait <= 0 || d[0].ResetAfter < d[0].RetryAfter || d[0].At != epoch {
				t.Fatalf("%s, cost %d: %+v", spec, cost, d[0])
			}
			for _, step := range []struct{ to, want int64 }{{wait - 1, 0}, {wait, 1}} {
				clock.Store(epoch + step.to)
				if granted, _ := store.Decide(background, ceilingClaim(limit, cost), 1, d); granted != step.want {
					t.Errorf("%s, cost %d: granted %d after %d of %d µs", spec, cost, granted, step.to, wait)
				}
			}
		}
	}
}

// Refusals and peeks are not counted.
func TestRefusedRequestsAreFree(t *testing.T) {
	shared := memstore.New()
	c := newCeiling(shared, memstore.New(), every)
	store, limit := c, weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour})
	ask := func(times, want int64) {
		t.Helper()
		granted, err := store.Decide(background, ceilingClaim(limit, 1), times, nil)
		if err != nil || granted != want {
			t.Fatalf("granted %d of %d, %v; want %d", granted, times, err, want)
		}
	}
	ask(10, 10)
	for range 100 {
		ask(1, 0)
		ask(0, 0)
	}
	shared.Reset(background, ceilingClaim(limit, 1))
	ask(10, 2) // 12 in all
	ask(10, 0)
	if c.refusals() != 8+10 {
		t.Errorf("%d refused by the ceiling, want 18", c.refusals())
	}
	if err := store.Reset(background, ceilingClaim(limit, 1)); err != nil {
		t.Fatal(err)
	}
	ask(10, 10)
}

func TestRefusalDecisions(t *testing.T) {
	next, c, _ := ceilingDriven(t, func(l *weir.Limit) (float64, bool) { return 1.2, l.Name() != "free" })
	store := c
	low := weir.MustLimit("low", weir.SlidingLog{Limit: 10, Window: time.Hour})
	high := weir.MustLimit("high", weir.SlidingLog{Limit: 20, Window: time.Hour})
	free := weir.MustLimit("free", weir.SlidingLog{Limit: 30, Window: time.Hour})
	all := []weir.Claim{{Key: "key", Limit: free, Cost: 1}, {Key: "key", Limit: low, Cost: 1},
		{Key: "key", Limit: high, Cost: 1}}
	d := make([]weir.Decision, 3)
	if granted, _ := store.Decide(background, all, 100, d); granted != 12 {
		t.Fatalf("granted %d, want 12", granted)
	}
	asked := next.asked.Load()
	for _, times := range []int64{0, 1, 7} {
		granted, err := store.Decide(background, all, times, d)
		want := []weir.Decision{
			{Remaining: 30, At: epoch},
			{RetryAfter: 5 * time.Minute, ResetAfter: time.Hour, At: epoch},
			{Remaining: 12, ResetAfter: 30 * time.Minute, At: epoch},
		}
		if granted != 0 || err != nil || !slices.Equal(d, want) {
			t.Errorf("granted %d, %v, %+v; want %+v", granted, err, d, want)
		}
	}
	if next.asked.Load() != asked {
		t.Error("the store was asked")
	}
	all[2].Cost = 21
	if store.Decide(background, all, 1, d); d[2].RetryAfter != weir.Never || next.asked.Load() != asked {
		t.Errorf("a cost of 21 of 20 beside what is used up: %+v", d[2])
	}
	all[1].Cost, all[2].Cost = 11, 1
	if store.Decide(background, all, 1, d); next.asked.Load() != asked+1 {
		t.Error("the store was not asked about a cost of 11 of 10, which it never grants")
	}
	all[1].Cost = -1
	var input *weir.InputError
	if _, err := store.Decide(background, all, 1, d); !errors.As(err, &input) {
		next.asked.Store(0) // the generous store checks nothing
	}
	all[1].Cost = 1
	if _, err := store.Decide(background, all, weir.MaxUnits+1, d); !errors.As(err, &input) {
		t.Errorf("too many times: %v", err)
	}
	if _, err := store.Decide(background, all, 1, d[:1]); !errors.As(err, &input) {
		t.Errorf("too few decisions: %v", err)
	}
}

// Where the store would go on granting, what the ceiling cuts off has its retry-after.
func TestPartialRefusalHasRetryAfter(t *testing.T) {
	_, c, _ := ceilingDriven(t, every)
	limit, d := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour}), make([]weir.Decision, 1)
	if granted, _ := c.Decide(background, ceilingClaim(limit, 1), 100, d); granted != 12 ||
		d[0].RetryAfter != 5*time.Minute || d[0].Remaining != 0 {
		t.Errorf("granted %d: %+v", granted, d[0])
	}
}

func TestLimitsWithoutACeiling(t *testing.T) {
	for name, c := range map[string]struct {
		spec   weir.Spec
		factor float64
		ok     bool
	}{
		"held":        {weir.Concurrency{Limit: 1, TTL: time.Hour}, 1.2, true},
		"not asked":   {weir.PerSecond(1), 1.2, false},
		"all of time": {weir.GCRA(1<<51, 1, time.Microsecond), 3, true},
		"large":       {weir.PerSecond(1), 1e30, true},
	} {
		next, layer, _ := ceilingDriven(t, func(*weir.Limit) (float64, bool) { return c.factor, c.ok })
		one := ceilingClaim(weir.MustLimit("limit", c.spec), 1)
		for i := range 100 {
			if _, held := c.spec.(weir.Concurrency); held {
				one[0].Lease = fmt.Sprint(i)
			}
			if granted, err := layer.Decide(background, one, 1, nil); granted != 1 || err != nil {
				t.Errorf("%s: granted %d, %v", name, granted, err)
			}
		}
		if next.asked.Load() != 100 || layer.refusals() != 0 {
			t.Errorf("%s: the store was asked %d times", name, next.asked.Load())
		}
	}
}

// Other numbers are another bucket; a limit of the same name and another algorithm, too.
func TestBucketsOfTheirOwn(t *testing.T) {
	_, c, _ := ceilingDriven(t, every)
	var all []weir.Claim
	for _, spec := range ceilingCounted(10)[3:] {
		all = append(all, weir.Claim{Key: "key", Limit: weir.MustLimit("limit", spec), Cost: 1})
	}
	all = []weir.Claim{all[0], all[2], all[3], all[4]}
	if granted, err := c.Decide(background, all, 100, nil); granted != 12 || err != nil {
		t.Errorf("granted %d, %v", granted, err)
	}
	more := ceilingClaim(weir.MustLimit("limit", weir.SlidingLog{Limit: 1000, Window: time.Minute}), 1)
	if granted, err := c.Decide(background, more, 1000, nil); granted != 1000 || err != nil {
		t.Errorf("granted %d after the limit was raised, %v", granted, err)
	}
}

// The factor is asked about each request: rules change.
func TestFactorChange(t *testing.T) {
	factor := math.NaN()
	_, c, _ := ceilingDriven(t, func(*weir.Limit) (float64, bool) { return factor, factor != 0 })
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Minute})
	for _, step := range []struct {
		factor float64
		want   int64
	}{{factor, 11}, {2, 20}, {1, 0}, {3, 30}, {0, 100}, {0.5, 0}} {
		factor = step.factor
		if granted, err := c.Decide(background, ceilingClaim(limit, 1), 100, nil); granted != step.want || err != nil {
			t.Errorf("factor %v: granted %d, %v; want %d", factor, granted, err, step.want)
		}
	}
}

func TestErrorsAndRefundsPass(t *testing.T) {
	shared := &failing{Store: memstore.New()}
	local := memstore.New()
	store := newCeiling(shared, local, every)
	one := ceilingClaim(weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour}), 5)
	d := make([]weir.Decision, 1)
	shared.err = weir.ErrUnavailable
	for _, times := range []int64{1, 100} {
		if granted, err := store.Decide(background, one, times, d); granted != 0 ||
			!errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("granted %d, %v", granted, err)
		}
	}
	if local.Stats().Keys != 0 {
		t.Error("what failed was counted")
	}
	shared.err = nil
	store.Decide(background, one, 2, d)
	shared.err = weir.ErrUnavailable
	store.Refund(background, one, d[0].At, nil)
	store.Reset(background, one)
	shared.err = nil
	after := func(want int64, what string) {
		t.Helper()
		shared.Store.Reset(background, one) // it forgot
		if granted, err := store.Decide(background, one, 1, d); granted != want || err != nil {
			t.Errorf("granted %d, %v, after %s; want %d", granted, err, what, want)
		}
	}
	after(1, "10 of 12, as a unit fits")
	after(0, "15 of 12, as what failed gave nothing back")
	if err := store.Refund(background, one, 0, nil); err != nil {
		t.Fatal(err)
	}
	after(1, "a refund of 5")
	after(0, "that")
}

// For the race detector. At most the ceiling and the concurrent requests pass.
func TestCeilingManyCallers(t *testing.T) {
	next, c, _ := ceilingDriven(t, every)
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 1000, Window: time.Hour})
	var all sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		all.Go(func() {
			batch := []weir.Request{{Claims: ceilingClaim(limit, 1), Times: 1}}
			for range 500 {
				one, _ := c.Decide(background, ceilingClaim(limit, 1), 1, nil)
				c.DecideBatch(background, batch)
				granted.Add(one + batch[0].Granted)
			}
		})
	}
	all.Wait()
	if got := granted.Load(); got < 1200 || got > 1208 || got != next.asked.Load() {
		t.Errorf("%d were granted, the store was asked %d times, want 1,200 and at most 8 more", got, next.asked.Load())
	}
}

// every is a ceiling of 1.2 for all limits.
func every(*weir.Limit) (factor float64, ok bool) { return 1.2, true }

func user(limit *weir.Limit, i int) weir.Claim {
	return weir.Claim{Key: fmt.Sprint("user-", i), Limit: limit, Cost: 1}
}

// TestFullCeilingFailsOpen: where the local store has no room for more keys, newcomers pass, and the keys that it
// holds keep their ceiling.
func TestFullCeilingFailsOpen(t *testing.T) {
	const room = 1000
	local := memstore.New(memstore.WithMaxKeys(room), memstore.WithoutOverflow())
	c := newCeiling(granting{memstore.New()}, local, every)
	store, limit := c, weir.MustLimit("user", weir.PerHour(10))
	for i := range 3 * room {
		if granted, err := store.Decide(t.Context(), []weir.Claim{user(limit, i)}, 1, nil); granted != 1 || err != nil {
			t.Fatalf("user %d of %d, a first request: granted %d (%v)", i, 3*room, granted, err)
		}
	}
	if c.refusals() != 0 || c.uncounted() != 2*room {
		t.Errorf("%d refused and %d not counted, want 0 and %d", c.refusals(), c.uncounted(), 2*room)
	}
	if granted, _ := store.Decide(t.Context(), []weir.Claim{user(limit, 0)}, 100, nil); granted != 11 {
		t.Errorf("a user whom the ceiling knows is granted %d more after 1, want 11 of 12 in all", granted)
	}
	for range 100 {
		if granted, _ := store.Decide(t.Context(), []weir.Claim{user(limit, 2*room)}, 1, nil); granted != 1 {
			t.Fatal("a user for whom there was no room is refused what the store grants")
		}
	}
}

// TestFullCeilingKeepsTheOthers: a decision about a newcomer counts, and is refused by, the other keys of it.
func TestFullCeilingKeepsTheOthers(t *testing.T) {
	local := memstore.New(memstore.WithMaxKeys(1), memstore.WithoutOverflow())
	c := newCeiling(granting{memstore.New()}, local, every)
	store, site := c, weir.Claim{Key: "all", Limit: weir.MustLimit("site", weir.PerHour(100)), Cost: 1}
	store.Decide(t.Context(), []weir.Claim{site}, 1, nil)
	limit, granted := weir.MustLimit("user", weir.PerHour(10)), int64(1)
	for i := range 200 {
		one, err := store.Decide(t.Context(), []weir.Claim{user(limit, i), site}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		granted += one
	}
	if granted != 120 {
		t.Errorf("the site was granted %d, its ceiling is 120", granted)
	}
}

// exactly leaves no room: all that the store may grant, and no more.
func exactly(*weir.Limit) (float64, bool) { return 1, true }
