package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/fallback"
	"github.com/weirproject/weir/memstore"
)

var background = context.Background()

var errAway = fmt.Errorf("%w: gone", weir.ErrUnavailable)

// faulty is a store with a programmable error.
type faulty struct {
	weir.Store
	err error
}

func (f *faulty) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f *faulty) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Charge(ctx, claims, d)
}

func (f *faulty) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Refund(ctx, claims, at, d)
}

func (f *faulty) Reset(ctx context.Context, claims []weir.Claim) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Reset(ctx, claims)
}

func newLocal(t testing.TB, nodes int) *fallback.LocalStore {
	t.Helper()
	local, err := fallback.NewLocal(memstore.New(), fallback.Config{Nodes: nodes})
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
	locals []*fallback.LocalStore
	warm   []weir.Store
}

const epoch = 1_790_000_000_000_000

func newFleet(t rapid.TB, nodes int) *fleet {
	t.Helper()
	f := &fleet{}
	f.clock.Store(epoch)
	now := memstore.WithClock(func() weir.Instant { return weir.Instant(f.clock.Load()) })
	f.shared = memstore.New(now)
	for range nodes {
		local, err := fallback.NewLocal(memstore.New(now), fallback.Config{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		f.locals = append(f.locals, local)
		f.warm = append(f.warm, local.Warm(f.shared))
	}
	return f
}

func (f *fleet) after(d time.Duration) { f.clock.Add(d.Microseconds()) }

// ask says how many units of times requests were granted.
func ask(t rapid.TB, store weir.Store, limit *weir.Limit, cost, times int64) int64 {
	t.Helper()
	granted, err := store.Decide(background, []weir.Claim{{Key: "key", Limit: limit, Cost: cost}}, times, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return granted * cost
}

// counted are the kinds of limits without leases, of n units.
func counted(n int64) []weir.Spec {
	return []weir.Spec{
		weir.TokenBucket{Capacity: n, Refill: n, Period: time.Hour},
		weir.TokenBucket{Capacity: n, Refill: 3, Period: time.Hour, Mode: weir.Step},
		weir.FixedWindow{Limit: n, Window: time.Hour},
		weir.FixedWindow{Limit: n, Window: time.Hour, Anchor: weir.Epoch},
		weir.Calendar{Limit: n, Unit: weir.Day},
		weir.SlidingLog{Limit: n, Window: time.Hour},
		weir.SlidingCounter{Limit: n, Window: time.Hour, Slices: 6},
	}
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
				granted[i] += ask(t, stores(i), limit, cost, times)
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
		ask(t, f.warm[0], limit, 1, 3)
		for i, want := range []int64{1, 4, 4} {
			if got := ask(t, f.locals[i], limit, 1, 10); got != want {
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
		ask(t, f.warm[0], limit, c.cost, c.times)
		if left := ask(t, f.locals[0], limit, 1, 100); left != c.left {
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
			if got := ask(t, f.warm[0], limit, 7, 14); got != 98 {
				t.Fatalf("%s: %d granted of 98", spec, got)
			}
		}
		if got := ask(t, f.locals[0], limit, 1, 1000); got != 0 {
			t.Errorf("%s: %d granted at once", spec, got)
		}
		f.after(time.Second)
		if got := ask(t, f.locals[0], limit, 1, 1000); got != 25 {
			t.Errorf("%s: %d granted in the second after an hour of all the traffic, want a quarter of 100", spec, got)
		}
	}
}

// A log remembers what the node was granted beyond its share, until its window is over.
func TestWarmCountsALog(t *testing.T) {
	f, limit := newFleet(t, 4), weir.MustLimit("limit", weir.SlidingLog{Limit: 100, Window: time.Second})
	for range 10 {
		f.after(100 * time.Millisecond)
		ask(t, f.warm[0], limit, 1, 10)
	}
	for i := range 10 {
		f.after(100 * time.Millisecond)
		want := int64(0)
		if i == 7 { // 20 are left in the window, of a share of 25; then these 5, and the share is used
			want = 5
		} else if i > 7 {
			want = 10
		}
		if got := ask(t, f.locals[0], limit, 1, 100); got != want {
			t.Errorf("%d ms after the switch %d were granted, want %d", 100*(i+1), got, want)
		}
	}
}

// Undivided limits are counted in full, debts included: a ban is one.
func TestWarmCountsWholeLimits(t *testing.T) {
	now := memstore.WithClock(func() weir.Instant { return epoch })
	local, err := fallback.NewLocal(memstore.New(now), fallback.Config{Nodes: 4,
		Whole: func(*weir.Limit) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	shared := memstore.New(now)
	warm := local.Warm(shared)
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
func byTwoClocks(t *testing.T) (local *fallback.LocalStore, warm weir.Store, theirs, ours *atomic.Int64) {
	t.Helper()
	theirs, ours = new(atomic.Int64), new(atomic.Int64)
	theirs.Store(epoch)
	ours.Store(epoch + 3*time.Hour.Microseconds())
	clock := func(c *atomic.Int64) memstore.Option {
		return memstore.WithClock(func() weir.Instant { return weir.Instant(c.Load()) })
	}
	local, err := fallback.NewLocal(memstore.New(clock(ours)), fallback.Config{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	return local, local.Warm(memstore.New(clock(theirs))), theirs, ours
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
	local.Warm(batching{memstore.New()}).DecideBatch(background, batch)
	d := make([]weir.Decision, 1)
	if local.Decide(background, one, 0, d); d[0].Remaining != 1 || batch[2].Granted != 1 || batch[0].Err == nil {
		t.Errorf("%d left of 2 after one was granted: %+v", d[0].Remaining, batch)
	}
}

// Refusals and errors of the store are not counted.
func TestOnlyGrantsAreCounted(t *testing.T) {
	shared := &faulty{Store: memstore.New()}
	local := newLocal(t, 2)
	warm := local.Warm(shared)
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
	local.Warm(batching{shared}).DecideBatch(background, batch)
	shared.err = nil
	held[0].Cost = 5
	local.Warm(batching{shared}).DecideBatch(background, batch)
	held[0].Renew = true
	warm.Decide(background, held, 1, nil) // it is not held there
	local.Warm(batching{shared}).DecideBatch(background, batch)
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
func TestManyCallers(t *testing.T) {
	local := newLocal(t, 3)
	warm := local.Warm(memstore.New())
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
	next := &faulty{Store: memstore.New()}
	local := newLocal(t, 1)
	warm := local.Warm(next)
	lease := []weir.Claim{{Key: "key", Limit: weir.MustLimit("slots", weir.Concurrency{Limit: 1, TTL: time.Hour}),
		Cost: 1, Lease: "one"}}
	if granted, err := warm.Decide(background, lease, 1, nil); granted != 1 || err != nil {
		t.Fatal(granted, err)
	}
	next.err = errAway
	if err := warm.Refund(background, append(claims("window"), lease...), 0, nil); !errors.Is(err, weir.ErrUnavailable) {
		t.Fatal(err)
	}
	lease[0].Lease = "two"
	if granted, err := local.Decide(background, lease, 1, nil); granted != 1 || err != nil {
		t.Errorf("after a release without an answer %d are granted, %v", granted, err)
	}
}
