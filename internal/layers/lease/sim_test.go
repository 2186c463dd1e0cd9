package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/memstore"
)

// A world is one schedule: nodes with leases, callers, a store whose clock is its own, and
// wires between them on which calls take time, and their ways there or back are lost. All
// of it is drawn from a seed and runs in the time of a synctest bubble.
type world struct {
	limit, other *weir.Limit // other is nil, or that of a second claim
	terms        lease.Terms
	nodes        []*simNode
	store        *memstore.Store
	seed         uint64
	born         time.Time
	epoch, drift int64 // of the store's clock: µs since 1970, millionths
	broken       broken

	mu     sync.Mutex
	passes []pass
	faults []error
}

// A pass is units that got through, by the store's clock.
type pass struct{ at, units int64 }

// broken selects a fault of the nodes, which the simulation must detect.
type broken struct {
	outlives bool // a lease does not end with its window
	twice    bool // what goes back is credited twice
	share    bool // the share is ignored
	hold     bool // the holding time is ten times what was agreed
	free     bool // the nodes are sound, and the bound forgets that they hold anything
	log      bool // all limits are sliding logs, which show it best
}

func (w *world) clock() weir.Instant {
	passed := time.Since(w.born).Microseconds()
	return weir.Instant(w.epoch + passed + passed*w.drift/1_000_000)
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Errorf(format, args...))
}

// A simNode is a node and its wire.
type simNode struct {
	*world
	leases *lease.Store
	most   int64 // units it may hold

	mu      sync.Mutex
	chance  *rand.Rand
	latency time.Duration
	loses   int // of 100 calls
	dead    bool
	// Units of the limit; held are those ahead of need:
	held, taken, back, lost, passed int64
}

// direct is in the context of a call; it learns whether the store answered that very one.
type direct struct{}

func (n *simNode) draw(of int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.chance.IntN(of)
}

var errLost = fmt.Errorf("%w: lost", weir.ErrUnavailable)

// travel is a way there or back. It takes a nanosecond at least: by then everything that
// happens at this instant has happened, and is counted.
func (n *simNode) travel(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(1 + n.draw(int(n.latency)))):
	case <-ctx.Done():
		return ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead || n.chance.IntN(100) < n.loses {
		return errLost
	}
	return nil
}

// Decide implements weir.Store.
func (n *simNode) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if err := n.travel(ctx); err != nil {
		return 0, err
	}
	granted, err := n.store.Decide(ctx, claims, times, decisions)
	if err != nil {
		return granted, err
	}
	units := granted * claims[0].Cost
	ahead := units
	if times == 1 {
		ahead = 0
	}
	n.take(units, ahead)
	if n.broken.outlives && times > 1 {
		decisions[0].ResetAfter += time.Hour
	}
	if err := n.travel(ctx); err != nil {
		n.lose(units, ahead)
		return 0, err
	}
	if times == 1 {
		*ctx.Value(direct{}).(*bool) = true
	}
	return granted, nil
}

// take counts charged units, and those of them taken ahead.
func (n *simNode) take(units, ahead int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken += units
	if n.held += ahead; ahead > 0 && n.held > n.most {
		n.fault("a node holds %d units of at most %d", n.held, n.most)
	}
}

// lose counts lost units.
func (n *simNode) lose(units, ahead int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held, n.lost = n.held-ahead, n.lost+units
}

// Refund implements weir.Store.
func (n *simNode) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, _ []weir.Decision) error {
	units := claims[0].Cost
	if err := n.travel(ctx); err != nil {
		n.lose(units, units)
		return err
	}
	if n.broken.twice {
		n.store.Refund(ctx, claims, takenAt, nil)
	}
	err := n.store.Refund(ctx, claims, takenAt, nil)
	n.mu.Lock()
	n.held, n.back = n.held-units, n.back+units
	n.mu.Unlock()
	return errors.Join(err, n.travel(ctx))
}

// The rest of weir.Store is not asked for.
func (n *simNode) Charge(context.Context, []weir.Claim, []weir.Decision) error { return nil }
func (n *simNode) Reset(context.Context, []weir.Claim) error                   { return nil }
func (n *simNode) Close() error                                                { return nil }

// request is one caller's; a unit passes when the store says so, or when the lease does.
func (n *simNode) request(cost int64, user int) {
	claims := []weir.Claim{{Key: "hot", Limit: n.limit, Cost: cost}}
	if n.other != nil {
		claims = append(claims, weir.Claim{Key: fmt.Sprint("user", user), Limit: n.other, Cost: 1})
	}
	var single bool
	ctx := context.WithValue(context.Background(), direct{}, &single)
	decisions := make([]weir.Decision, len(claims))
	granted, err := n.leases.Decide(ctx, claims, 1, decisions)
	if err != nil || granted == 0 {
		return
	}
	at, held := n.clock(), cost
	if single {
		at, held = decisions[0].At, 0
	}
	n.mu.Lock()
	n.held, n.passed = n.held-held, n.passed+cost
	n.mu.Unlock()
	n.world.mu.Lock()
	n.passes = append(n.passes, pass{int64(at), cost})
	n.world.mu.Unlock()
}

// call is one caller's life: bursts, a steady rate, rests.
func (n *simNode) call(chance *rand.Rand, ends time.Time, hold time.Duration) {
	gap, cost := hold/time.Duration(3+chance.IntN(20)), int64(1)
	if chance.IntN(4) == 0 {
		cost += chance.Int64N(3)
	}
	for time.Now().Before(ends) && !n.isDead() {
		n.request(cost, chance.IntN(2))
		switch r := chance.IntN(40); {
		case r == 0:
			time.Sleep(time.Duration(chance.Int64N(int64(3 * hold))))
		case r < 10: // a burst
		default:
			time.Sleep(time.Duration(1 + chance.Int64N(int64(2*gap))))
		}
	}
}

func (n *simNode) isDead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// die cuts a node off, with the loss of its held units.
func (n *simNode) die() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = true
}

// limits of all kinds, of lengths that are those of the holding time h times a few.
func drawLimit(chance *rand.Rand, h time.Duration) weir.Spec {
	n, window := 20+chance.Int64N(200), h*time.Duration(10+chance.IntN(10))
	switch chance.IntN(8) {
	case 0:
		return weir.TokenBucket{Capacity: n, Refill: 1 + n/2, Period: window}
	case 1:
		return weir.TokenBucket{Capacity: n, Refill: 1 + n/7, Period: window / 5, Overdraft: n / 3, Mode: weir.Step}
	case 2:
		return weir.TokenBucket{Capacity: 1, Refill: n, Period: window, Overdraft: n}
	case 3:
		return weir.FixedWindow{Limit: n, Window: h * time.Duration(1+chance.IntN(8)), Anchor: weir.Epoch}
	case 4:
		return weir.FixedWindow{Limit: n, Window: h * time.Duration(1+chance.IntN(8))}
	case 5:
		return weir.Calendar{Limit: n, Unit: weir.Minute, Zone: "Asia/Kathmandu"}
	case 6:
		return weir.SlidingLog{Limit: n, Window: window}
	}
	return weir.SlidingCounter{Limit: n, Window: window, Slices: []int64{1, 2, 5}[chance.IntN(3)]}
}

// newWorld draws a world.
func newWorld(seed uint64, b broken) *world {
	chance := rand.New(rand.NewPCG(seed, 5))
	hold := []time.Duration{5, 10, 20, 100}[chance.IntN(4)] * time.Millisecond
	w := &world{seed: seed, broken: b, born: time.Now(), drift: chance.Int64N(1001) - 500,
		// near the end of a minute, of a machine whose clock is hours off
		epoch: 1_790_000_040_000_000 - int64(chance.IntN(20))*hold.Microseconds() + 60_000_000*chance.Int64N(1000)}
	w.limit = weir.MustLimit("limit", drawLimit(chance, hold))
	if b.log {
		w.limit = weir.MustLimit("limit", weir.SlidingLog{Limit: 20 + chance.Int64N(200), Window: 10 * hold})
	}
	if chance.IntN(3) == 0 {
		w.other = weir.MustLimit("other", weir.TokenBucket{Capacity: 1000, Refill: 1000, Period: time.Second})
	}
	w.terms = lease.Terms{Share: []float64{0.1, 0.25, 0.5, 1}[chance.IntN(4)], Hold: hold}
	w.store = memstore.New(memstore.WithClock(w.clock))
	for range 1 + chance.IntN(4) {
		w.nodes = append(w.nodes, w.newNode(chance))
	}
	return w
}

func (w *world) newNode(chance *rand.Rand) *simNode {
	n := &simNode{world: w, chance: rand.New(rand.NewPCG(chance.Uint64(), 1)), most: w.bound().Held}
	n.latency = []time.Duration{1, w.terms.Hold / 20, w.terms.Hold / 3, 2 * w.terms.Hold}[chance.IntN(4)]
	n.loses = []int{0, 0, 3, 15}[chance.IntN(4)]
	terms := w.terms
	if w.broken.share {
		terms.Share = 1
	}
	n.leases = lease.New(n, always(terms))
	return n
}

func (w *world) bound() lease.Bound {
	b := lease.BoundOf(w.limit, w.terms, len(w.nodes))
	if w.broken.hold {
		b.Hold /= 10
	}
	if w.broken.free {
		b.Nodes = 0
	}
	return b
}

// run plays the world to its end.
func (w *world) run() {
	chance := rand.New(rand.NewPCG(w.seed, 6))
	ends := w.born.Add(w.terms.Hold * time.Duration(10+chance.IntN(15)))
	var callers sync.WaitGroup
	for _, n := range w.nodes {
		for range 1 + chance.IntN(3) {
			own := rand.New(rand.NewPCG(chance.Uint64(), 2))
			callers.Go(func() { n.call(own, ends, w.terms.Hold) })
		}
		if chance.IntN(6) == 0 {
			dies := time.Duration(chance.Int64N(int64(ends.Sub(w.born))))
			callers.Go(func() { time.Sleep(dies); n.die() })
		}
	}
	callers.Wait()
	for _, n := range w.nodes {
		n.leases.Close()
	}
}

// check returns the first violation. For a broken node only passed units count: an error in its accounts would
// not show that the bound can be exceeded.
func (w *world) check() error {
	if w.broken != (broken{}) {
		w.faults = nil
	} else {
		w.checkAccounts()
	}
	slices.SortFunc(w.passes, func(a, b pass) int { return int(a.at - b.at) })
	w.checkSpans()
	w.checkWindows()
	return errors.Join(w.faults...)
}

// checkAccounts asks where each unit went.
func (w *world) checkAccounts() {
	for _, n := range w.nodes {
		if n.held != 0 || n.taken != n.passed+n.back+n.lost {
			w.fault("of %d units taken %d passed, %d went back, %d were lost; %d are still held", n.taken, n.passed,
				n.back, n.lost, n.held)
		}
	}
}

// checkSpans holds what passed between any two passes to the bound.
func (w *world) checkSpans() {
	bound := w.bound()
	for i := range w.passes {
		total := int64(0)
		for _, last := range w.passes[i:] {
			total += last.units
			span := last.at - w.passes[i].at + 1
			if most, ok := bound.Most(time.Duration(span) * time.Microsecond); ok && total > most {
				w.fault("%d units in %d µs, at most %d are promised: %s", total, span, most, bound)
				return
			}
		}
	}
}

// checkWindows holds what passed in each window to the limit itself.
func (w *world) checkWindows() {
	in := make(map[int64]int64)
	for _, p := range w.passes {
		switch {
		case w.limit.Algorithm() == weir.AlgorithmCalendar:
			start, _ := w.limit.Bounds(weir.Instant(p.at))
			in[int64(start)] += p.units
		case w.limit.Algorithm() == weir.AlgorithmFixedWindow && w.limit.Anchor() == weir.Epoch:
			in[p.at/w.limit.Period()] += p.units
		}
	}
	for start, units := range in {
		if units > w.limit.Capacity() {
			w.fault("%d units in window %d of %s", units, start, w.limit)
		}
	}
}

// A tally is what worlds had in them, so that empty ones prove nothing.
type tally struct {
	leased, returned, lost, passed int64
}

// simulate runs a world and returns its first violation.
func simulate(t *testing.T, seed uint64, b broken, sum *tally) (err error) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, b)
		w.run()
		if err = w.check(); err != nil {
			err = fmt.Errorf("seed %d: %d nodes, %s, share %v, hold %v: %w", seed, len(w.nodes), w.limit,
				w.terms.Share, w.terms.Hold, err)
		}
		for _, n := range w.nodes {
			stats := n.leases.Stats()
			sum.leased, sum.returned, sum.lost = sum.leased+stats.Taken, sum.returned+stats.Returned, sum.lost+n.lost
		}
		sum.passed += int64(len(w.passes))
	})
	return err
}

// No schedule exceeds the bound.
func TestNoScheduleExceedsTheBound(t *testing.T) {
	const groups = 8
	for group := range groups {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			t.Parallel()
			var sum tally
			for i := range worlds / groups {
				if err := simulate(t, uint64(group+i*groups), broken{}, &sum); err != nil {
					t.Fatal(err)
				}
			}
			if sum.leased < sum.passed/4 || sum.returned == 0 || sum.lost == 0 {
				t.Errorf("hardly anything was leased, went back or was lost: %+v", sum)
			}
			t.Logf("%+v", sum)
		})
	}
}
