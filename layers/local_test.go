package layers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
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
		share := newLocal(t, c.nodes).share(limit)
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
		nodes := int(min(any(), maxNodes))
		spec := weir.TokenBucket{Capacity: any(), Refill: any(),
			Period: time.Duration(min(any(),
				1<<50)) * time.Microsecond, Overdraft: any() - 1, Mode: weir.RefillMode(r.IntN(2))}
		limit, err := weir.NewLimit("limit", spec)
		if err != nil {
			continue
		}
		local, err := newLocalStore(shared, localConfig{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		n, share := int64(nodes), local.share(limit)
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
	local, err := newLocalStore(memstore.New(), localConfig{Nodes: 4,
		Whole: func(l *weir.Limit) bool { return l.Name() == whole }})
	if err != nil {
		t.Fatal(err)
	}
	limit, other := weir.MustLimit("whole", weir.PerSecond(100)), weir.MustLimit("other", weir.PerSecond(100))
	if local.share(limit) != limit || local.share(other).Capacity() != 25 {
		t.Errorf("%s and %s are the shares", local.share(limit), local.share(other))
	}
	whole = "other" // rules change
	if local.share(other) != other || local.share(limit).Capacity() != 25 {
		t.Errorf("%s and %s are the shares after that changed", local.share(limit), local.share(other))
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

// away returns two limiters, as in the example, over a store that can become unavailable.
func away(t *testing.T, nodes int, spec weir.Spec) (shared *failing, first, second *weir.Limiter) {
	t.Helper()
	shared = &failing{Store: memstore.New()}
	local := newLocal(t, nodes)
	var err error
	if first, err = weir.New(local.mirror(shared), "limit", spec); err != nil {
		t.Fatal(err)
	}
	if second, err = weir.New(local, "limit", spec); err != nil {
		t.Fatal(err)
	}
	return shared, first, second
}

// TestUnavailableStoreIsNotLeaseGone: while the store of a lease is unavailable, the state of the lease is unknown.
func TestUnavailableStoreIsNotLeaseGone(t *testing.T) {
	shared, limiter, local := away(t, 2, weir.Concurrency{Limit: 1, TTL: time.Hour})
	lease, err := limiter.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	shared.err = errAway
	if err := lease.Renew(t.Context()); !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("a renewal: %v, want unavailable", err)
	}
	if _, err := local.Acquire(t.Context(), "job"); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a second holder in the process that has the first: %v, want refused", err)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("a release: %v, want unavailable", err)
	}
	shared.err = nil
	if err := errors.Join(lease.Renew(t.Context()), lease.Release(t.Context())); err != nil {
		t.Errorf("when the store is back: %v", err)
	}
}

// TestReservationIsSettledWhereItWasTaken, across an outage that begins or ends in between.
func TestReservationIsSettledWhereItWasTaken(t *testing.T) {
	shared, limiter, local := away(t, 2, weir.PerHour(10))
	there, err := limiter.Reserve(t.Context(), "key", 4)
	if err != nil {
		t.Fatal(err)
	}
	shared.err = errAway
	here, err := local.Reserve(t.Context(), "key", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Settle(t.Context(), 1); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("settled without the store: %v", err)
	}
	shared.err = nil
	if err := errors.Join(there.Settle(t.Context(), 1), here.Settle(t.Context(), 0)); err != nil {
		t.Error(err)
	}
	if answer, err := limiter.Peek(t.Context(), "key"); err != nil || answer.Remaining != 9 {
		t.Errorf("%d left (%v), want 9", answer.Remaining, err)
	}
	if answer, err := local.Peek(t.Context(), "key"); err != nil || answer.Remaining != 4 {
		t.Errorf("%d left here (%v), want 4 of the share of 5", answer.Remaining, err)
	}
}

// TestWarmCountsOnlySelectedLimits: other limits cost no memory here.
func TestWarmCountsOnlySelectedLimits(t *testing.T) {
	memory := memstore.New()
	local, err := newLocalStore(memory, localConfig{Nodes: 2,
		Only: func(l *weir.Limit) bool { return l.Name() == "local" }})
	if err != nil {
		t.Fatal(err)
	}
	store := local.mirror(memstore.New())
	d := make([]weir.Decision, 2)
	for i := range 1000 {
		both := claims("other", "local")
		both[0].Key = fmt.Sprint("key-", i)
		if _, err := store.Decide(t.Context(), both, 1, d); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := store.Refund(t.Context(), slices.Clone(both[:1]), d[0].At, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keys := memory.Stats().Keys; keys != 1 {
		t.Errorf("%d keys are counted here, want 1", keys)
	}
	if _, err := local.Decide(t.Context(), claims("local"), 0, d[:1]); err != nil || d[0].Remaining != 0 {
		t.Errorf("%d left (%v), want 0: it was used with the store", d[0].Remaining, err)
	}
}

func newLocal(t testing.TB, nodes int) *localStore {
	t.Helper()
	local, err := newLocalStore(memstore.New(), localConfig{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return local
}

func claims(names ...string) (list []weir.Claim) {
	for _, name := range names {
		list = append(list, weir.Claim{Key: "key",
			Limit: weir.MustLimit(name, weir.FixedWindow{Limit: 4, Window: time.Hour}), Cost: 1})
	}
	return list
}

// A fleet is some nodes that share a store, on one driven clock.
type fleet struct {
	clock  atomic.Int64
	shared weir.Store
	locals []*localStore
	warm   []weir.Store
}

func newFleet(t rapid.TB, nodes int) *fleet {
	t.Helper()
	f := &fleet{}
	f.clock.Store(epoch)
	now := memstore.WithClock(func() weir.Instant { return weir.Instant(f.clock.Load()) })
	f.shared = memstore.New(now)
	for range nodes {
		local, err := newLocalStore(memstore.New(now), localConfig{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		f.locals = append(f.locals, local)
		f.warm = append(f.warm, local.mirror(f.shared))
	}
	return f
}

func (f *fleet) after(d time.Duration) { f.clock.Add(d.Microseconds()) }

// grantedUnits says how many units of times requests were granted.
func grantedUnits(t rapid.TB, store weir.Store, limit *weir.Limit, cost, times int64) int64 {
	t.Helper()
	granted, err := store.Decide(background, []weir.Claim{{Key: "key", Limit: limit, Cost: cost}}, times, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return granted * cost
}

// During an outage each node grants a share, less its grants from before.
func TestSwitchGrantsNoFreshBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, n := rapid.IntRange(1, 7).Draw(t, "nodes"), rapid.Int64Range(1, 60).Draw(t, "units")
		limit := weir.MustLimit("limit", rapid.SampledFrom(counted(n)).Draw(t, "spec"))
		f := newFleet(t, nodes)
		share := (n + int64(nodes) - 1) / int64(nodes)
		before, after := make([]int64, nodes), make([]int64, nodes)
		each := func(name string, stores func(i int) weir.Store, granted []int64) {
			for range rapid.IntRange(0, 40).Draw(t, name) {
				i := rapid.IntRange(0, nodes-1).Draw(t, "node")
				cost, times := rapid.Int64Range(1, 5).Draw(t, "cost"), rapid.Int64Range(1, 4).Draw(t, "times")
				granted[i] += grantedUnits(t, stores(i), limit, cost, times)
			}
		}
		each("before", func(i int) weir.Store { return f.warm[i] }, before)
		each("after", func(i int) weir.Store { return f.locals[i] }, after)
		total := int64(0)
		for i := range nodes {
			total += after[i]
			if most := max(0, share-before[i]); after[i] > most {
				t.Fatalf("node %d of %d granted %d of %s by itself, after %d with the store: want at most %d", i,
					nodes, after[i], limit, before[i], most)
			}
		}
		if total > int64(nodes)*share {
			t.Fatalf("%d nodes granted %d of %s", nodes, total, limit)
		}
	})
}

// The share is there, too: nodes that had granted nothing grant all of it.
func TestSwitchLeavesTheShare(t *testing.T) {
	for _, spec := range counted(10) {
		f, limit := newFleet(t, 3), weir.MustLimit("limit", spec)
		grantedUnits(t, f.warm[0], limit, 1, 3)
		for i, want := range []int64{1, 4, 4} {
			if got := grantedUnits(t, f.locals[i], limit, 1, 10); got != want {
				t.Errorf("%s: node %d grants %d, want %d", spec, i, got, want)
			}
		}
	}
}

// Costs that fit are counted in full, larger ones as far as they fit.
func TestCostsAreCounted(t *testing.T) {
	for _, c := range []struct{ cost, times, left int64 }{{3, 2, 4}, {3, 3, 1}, {3, 4, 0}, {11, 1, 0}, {1, 10, 0},
		{1, 20, 0}, {10, 2, 0}} {
		f, limit := newFleet(t, 2), weir.MustLimit("limit", weir.PerDay(20))
		grantedUnits(t, f.warm[0], limit, c.cost, c.times)
		if left := grantedUnits(t, f.locals[0], limit, 1, 100); left != c.left {
			t.Errorf("%d × %d leave %d of 10, want %d", c.times, c.cost, left, c.left)
		}
	}
}

// A node through which all went was beyond its share for long. It is not made to pay for it.
func TestSwitchCarriesNoDebt(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.PerSecond(100), weir.Borrowing(100, 100, time.Second, 50),
		weir.SlidingLog{Limit: 100, Window: time.Second},
		weir.TokenBucket{Capacity: 100, Refill: 100, Period: time.Second, Mode: weir.Step},
	} {
		f, limit := newFleet(t, 4), weir.MustLimit("limit", spec)
		for range 3600 {
			f.after(time.Second)
			if got := grantedUnits(t, f.warm[0], limit, 7, 14); got != 98 {
				t.Fatalf("%s: %d granted of 98", spec, got)
			}
		}
		if got := grantedUnits(t, f.locals[0], limit, 1, 1000); got != 0 {
			t.Errorf("%s: %d granted at once", spec, got)
		}
		f.after(time.Second)
		if got := grantedUnits(t, f.locals[0], limit, 1, 1000); got != 25 {
			t.Errorf("%s: %d granted in the second after an hour of all the traffic, want a quarter of 100", spec, got)
		}
	}
}

// A log remembers what the node was granted beyond its share, until its window is over.
func TestWarmCountsALog(t *testing.T) {
	f, limit := newFleet(t, 4), weir.MustLimit("limit", weir.SlidingLog{Limit: 100, Window: time.Second})
	for range 10 {
		f.after(100 * time.Millisecond)
		grantedUnits(t, f.warm[0], limit, 1, 10)
	}
	for i := range 10 {
		f.after(100 * time.Millisecond)
		want := int64(0)
		if i == 7 { // 20 are left in the window, of a share of 25; then these 5, and the share is used
			want = 5
		} else if i > 7 {
			want = 10
		}
		if got := grantedUnits(t, f.locals[0], limit, 1, 100); got != want {
			t.Errorf("%d ms after the switch %d were granted, want %d", 100*(i+1), got, want)
		}
	}
}

// Undivided limits are counted in full, debts included: a ban is one.
func TestWarmCountsWholeLimits(t *testing.T) {
	now := memstore.WithClock(func() weir.Instant { return epoch })
	local, err := newLocalStore(memstore.New(now), localConfig{Nodes: 4,
		Whole: func(*weir.Limit) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	shared := memstore.New(now)
	warm := local.mirror(shared)
	one := []weir.Claim{{Key: "key", Limit: weir.MustLimit("ban",
		weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Microsecond}), Cost: 600_000_001}}
	if err := warm.Charge(background, one, nil); err != nil {
		t.Fatal(err)
	}
	one[0].Cost = 0
	theirs, ours := make([]weir.Decision, 1), make([]weir.Decision, 1)
	shared.Decide(background, one, 0, theirs)
	local.Decide(background, one, 0, ours)
	if theirs[0] != ours[0] || ours[0].RetryAfter != 10*time.Minute {
		t.Errorf("%+v there and %+v here", theirs[0], ours[0])
	}
}

func TestWarmFollowsRefundsAndResets(t *testing.T) {
	for _, spec := range counted(8) {
		f, limit := newFleet(t, 2), weir.MustLimit("limit", spec)
		all := []weir.Claim{{Key: "key", Limit: limit, Cost: 4}}
		d := make([]weir.Decision, 1)
		f.warm[0].Decide(background, all, 1, d)
		taken := d[0].At
		left := func(want int64, when string) {
			t.Helper()
			if f.locals[0].Decide(background, all, 0, d); d[0].Remaining != want {
				t.Errorf("%s: %d left %s, want %d", spec, d[0].Remaining, when, want)
			}
		}
		left(0, "after a grant")
		if f.warm[0].Refund(background, all, taken, nil); true {
			left(4, "after a refund")
		}
		f.warm[0].Charge(background, all, nil)
		left(0, "after a charge")
		if err := f.warm[0].Reset(background, all); err != nil {
			t.Fatal(err)
		}
		left(4, "after a reset")
	}
}

// byTwoClocks is the local store of one of two nodes, three hours ahead of the shared one that warms it.
func byTwoClocks(t *testing.T) (local *localStore, warm weir.Store, theirs, ours *atomic.Int64) {
	t.Helper()
	theirs, ours = new(atomic.Int64), new(atomic.Int64)
	theirs.Store(epoch)
	ours.Store(epoch + 3*time.Hour.Microseconds())
	clock := func(c *atomic.Int64) memstore.Option {
		return memstore.WithClock(func() weir.Instant { return weir.Instant(c.Load()) })
	}
	local, err := newLocalStore(memstore.New(clock(ours)), localConfig{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	return local, local.mirror(memstore.New(clock(theirs))), theirs, ours
}

// The shared store has a clock of its own. A refund says how long ago units were taken there.
func TestRefundsByAnotherClock(t *testing.T) {
	local, warm, theirs, ours := byTwoClocks(t)
	one := []weir.Claim{{Key: "key", Limit: weir.MustLimit("limit", weir.FixedWindow{Limit: 8, Window: time.Hour}),
		Cost: 3}}
	d := make([]weir.Decision, 1)
	warm.Decide(background, one, 1, d)
	for _, c := range []*atomic.Int64{theirs, ours} {
		c.Add(time.Minute.Microseconds())
	}
	if err := warm.Refund(background, one, d[0].At, nil); err != nil {
		t.Fatal(err)
	}
	if local.Decide(background, one, 0, d); d[0].Remaining != 4 {
		t.Errorf("%d left of 4", d[0].Remaining)
	}
}

// A log forgets what was given back too, by a clock that is ahead and runs faster: else each request that count_if does
// not count would be one of those that an outage refuses.
func TestLogsForgetWhatWasGivenBack(t *testing.T) {
	local, warm, theirs, ours := byTwoClocks(t)
	one := []weir.Claim{{Key: "key", Limit: weir.MustLimit("limit", weir.SlidingLog{Limit: 20, Window: time.Hour}),
		Cost: 3}}
	d, left := make([]weir.Decision, 1), make([]weir.Decision, 1)
	var open []weir.Instant
	for i := range 30 {
		if granted, err := warm.Decide(background, one, 1, d); granted != 1 || err != nil {
			t.Fatal(granted, err)
		}
		open = append(open, d[0].At)
		theirs.Add(1000)
		ours.Add(1003)
		if len(open) > 2 || i == 29 {
			if err := warm.Refund(background, one, open[0], nil); err != nil {
				t.Fatal(err)
			}
			open = open[1:]
		}
		if local.Decide(background, one, 0, left); left[0].Remaining != 10-3*int64(len(open)) {
			t.Fatalf("round %d: %d left of 10, and %d charges of 3 are open", i, left[0].Remaining, len(open))
		}
	}
}

// A lease from the store is known to the local one.
func TestWarmFollowsLeases(t *testing.T) {
	f := newFleet(t, 2)
	limit := weir.MustLimit("limit", weir.Concurrency{Limit: 4, TTL: time.Minute})
	lease := func(id string, renew bool) []weir.Claim {
		return []weir.Claim{{Key: "key", Limit: limit, Cost: 1, Lease: id, Renew: renew}}
	}
	take := func(store weir.Store, claims []weir.Claim, want int64, when string) {
		t.Helper()
		if granted, err := store.Decide(background, claims, 1, nil); err != nil || granted != want {
			t.Fatalf("%s: granted %d, %v; want %d", when, granted, err, want)
		}
	}
	warm, local := f.warm[0], f.locals[0]
	for i := range 3 { // one more than the share
		take(warm, lease(fmt.Sprint(i), false), 1, "with the store")
	}
	f.after(50 * time.Second)
	take(warm, lease("0", true), 1, "renewed with the store")
	take(local, lease("1", true), 1, "renewed without it")
	take(local, lease("new", false), 0, "beyond the share")
	f.after(20 * time.Second) // 2 expired
	take(local, lease("2", true), 0, "expired")
	take(local, lease("new", false), 0, "while two are held")
	if err := warm.Refund(background, lease("0", false), epoch, nil); err != nil {
		t.Fatal(err)
	}
	take(local, lease("new", false), 1, "after one was released")
	if err := local.Refund(background, lease("0", false), epoch, nil); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("released twice: %v", err)
	}
	// A lease that the store has lost is dropped here too.
	if err := warm.Refund(background, lease("new", false), epoch, nil); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("what was taken here is gone there: %v", err)
	}
	take(local, lease("newer", false), 1, "after that")
}

// A charge that depends on a lease releases it here as well.
func TestWarmReleasesTheLeaseOfACharge(t *testing.T) {
	f := newFleet(t, 1)
	limit := weir.MustLimit("limit", weir.Concurrency{Limit: 1, TTL: time.Minute})
	lease := []weir.Claim{{Key: "key", Limit: limit, Cost: 1, Lease: "lease"}}
	if granted, err := f.warm[0].Decide(background, lease, 1, nil); granted != 1 || err != nil {
		t.Fatalf("granted %d, %v", granted, err)
	}
	lease[0].Renew = true
	if err := f.warm[0].Charge(background, lease, nil); err != nil {
		t.Fatal(err)
	}
	if granted, err := f.locals[0].Decide(background, lease, 1, nil); granted != 0 || err != nil {
		t.Errorf("renewed after its release: granted %d, %v", granted, err)
	}
}

// batching is a store that decides batches one by one.
type batching struct{ weir.Store }

func (b batching) DecideBatch(ctx context.Context, requests []weir.Request) {
	for i := range requests {
		r := &requests[i]
		r.Granted, r.Err = b.Decide(ctx, r.Claims, r.Times, nil)
	}
}

func TestWarmCountsBatches(t *testing.T) {
	local := newLocal(t, 2)
	one := claims("limit")
	bad := claims("limit")
	bad[0].Cost = -1
	batch := []weir.Request{{Claims: bad, Times: 1}, {Claims: one, Times: 0}, {Claims: one, Times: 1}}
	local.mirror(batching{memstore.New()}).DecideBatch(background, batch)
	d := make([]weir.Decision, 1)
	if local.Decide(background, one, 0, d); d[0].Remaining != 1 || batch[2].Granted != 1 || batch[0].Err == nil {
		t.Errorf("%d left of 2 after one was granted: %+v", d[0].Remaining, batch)
	}
}

// Refusals and errors of the store are not counted.
func TestOnlyGrantsAreCounted(t *testing.T) {
	shared := &failing{Store: memstore.New()}
	local := newLocal(t, 2)
	warm := local.mirror(shared)
	one := claims("limit")
	one[0].Cost = 5
	warm.Decide(background, one, 1, nil)
	one[0].Cost = 1
	warm.Decide(background, one, 0, nil)
	shared.err = errAway
	warm.Decide(background, one, 1, nil)
	warm.Charge(background, one, nil)
	warm.Reset(background, one)
	held := []weir.Claim{{Key: "key", Limit: weir.MustLimit("held", weir.Concurrency{Limit: 4, TTL: time.Hour}),
		Cost: 1, Lease: "lease"}}
	warm.Decide(background, held, 1, nil)
	batch := []weir.Request{{Claims: held, Times: 1}}
	local.mirror(batching{shared}).DecideBatch(background, batch)
	shared.err = nil
	held[0].Cost = 5
	local.mirror(batching{shared}).DecideBatch(background, batch)
	held[0].Renew = true
	warm.Decide(background, held, 1, nil) // it is not held there
	local.mirror(batching{shared}).DecideBatch(background, batch)
	if granted, err := local.Decide(background, held, 1, nil); granted != 0 || err != nil || batch[0].Granted != 0 {
		t.Errorf("a lease that nobody granted is held: %d, %v", granted, err)
	}
	d := make([]weir.Decision, 1)
	if local.Decide(background, one, 0, d); d[0].ResetAfter != 0 {
		t.Errorf("something was counted: %+v", d[0])
	}
	shared.err = nil
	one = append(one, weir.Claim{Key: "key", Limit: weir.MustLimit("bucket", weir.PerDay(4)), Cost: 1})
	d = make([]weir.Decision, 2)
	warm.Decide(background, one, 1, d)
	shared.err = errAway
	warm.Refund(background, one, d[0].At, nil)
	warm.Reset(background, one)
	if local.Decide(background, one, 0, d); d[0].Remaining != 1 || d[1].Remaining != 1 {
		t.Errorf("what failed there was done here: %+v", d)
	}
}

// For the race detector: many callers, and limits that come and go.
func TestLocalManyCallers(t *testing.T) {
	local := newLocal(t, 3)
	warm := local.mirror(memstore.New())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			limit := weir.MustLimit("limit", weir.FixedWindow{Limit: 1000, Window: time.Hour})
			for i := range 1000 {
				one := []weir.Claim{{Key: fmt.Sprint(i % 10), Limit: limit, Cost: 1}}
				warm.Decide(background, one, 1, nil)
				local.Decide(background, one, 1, nil)
				warm.Refund(background, one, epoch, nil)
			}
		})
	}
	all.Wait()
}

// A lease that is released while the store does not answer is free at once in the local store, which decides then.
func TestWarmReleasesWhatTheStoreCouldNot(t *testing.T) {
	next := &failing{Store: memstore.New()}
	local := newLocal(t, 1)
	warm := local.mirror(next)
	lease := []weir.Claim{{Key: "key", Limit: weir.MustLimit("slots", weir.Concurrency{Limit: 1, TTL: time.Hour}),
		Cost: 1, Lease: "one"}}
	if granted, err := warm.Decide(background, lease, 1, nil); granted != 1 || err != nil {
		t.Fatal(granted, err)
	}
	next.err = errAway
	err := warm.Refund(background, append(claims("window"), lease...), 0, nil)
	if !errors.Is(err, weir.ErrUnavailable) {
		t.Fatal(err)
	}
	lease[0].Lease = "two"
	if granted, err := local.Decide(background, lease, 1, nil); granted != 1 || err != nil {
		t.Errorf("after a release without an answer %d are granted, %v", granted, err)
	}
}

// mirror is a router without layers over next.
func (l *localStore) mirror(next weir.Store) *router {
	return &router{exact: next, leaser: next, ceiling: next, local: l, mirrors: true,
		terms: func(limit *weir.Limit) Terms { return Terms{Local: l.follows(limit)} }}
}
