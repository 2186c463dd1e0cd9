package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// dated are limits whose refunds ask when the units were taken.
var dated = []weir.Spec{
	weir.SlidingLog{Limit: 1000, Window: time.Minute},
	weir.SlidingCounter{Limit: 1000, Window: time.Minute, Slices: 6},
	weir.FixedWindow{Limit: 1000, Window: time.Minute},
	weir.FixedWindow{Limit: 1000, Window: time.Minute, Anchor: weir.Epoch},
	weir.Calendar{Limit: 1000, Unit: weir.Minute},
}

// A refund that gives nothing back is no error, as its window may be over: it is counted.
func TestRefundsThatFindNothingAreCounted(t *testing.T) {
	for _, spec := range append(dated, weir.PerMinute(1000)) {
		store, now := driven(t, 10)
		claims := []weir.Claim{{Key: "key", Limit: weir.MustLimit("test", spec), Cost: 2}}
		d := make([]weir.Decision, 1)
		refund := func(taken weir.Instant, want int64) {
			t.Helper()
			if err := store.Refund(t.Context(), claims, taken, nil); err != nil {
				t.Error(err)
			}
			if _, bucket := spec.(weir.TokenBucket); bucket {
				want = 0
			}
			if got := store.Stats().Unfound; got != want {
				t.Errorf("%v: %d found nothing, want %d", spec, got, want)
			}
		}
		refund(weir.Instant(now.Load()), 1) // nothing was charged
		if _, err := store.Decide(t.Context(), claims, 1, d); err != nil {
			t.Fatal(err)
		}
		refund(d[0].At-61_000_000, 2)
		refund(d[0].At, 2)
		refund(d[0].At, 3) // it was given back before
	}
}

// A charge takes two units of a key once, by one of the ways into the store, and says when.
type way struct {
	name string
	take func(s *memstore.Store, c weir.Claim, beside []weir.Claim) (weir.Instant, error)
}

var ways = []way{
	{"Decide", func(s *memstore.Store, c weir.Claim, _ []weir.Claim) (weir.Instant, error) {
		return decided(s, []weir.Claim{c}, 1)
	}},
	{"Decide of two requests", func(s *memstore.Store, c weir.Claim, _ []weir.Claim) (weir.Instant, error) {
		c.Cost = 1
		return decided(s, []weir.Claim{c}, 2)
	}},
	{"Decide of several claims", func(s *memstore.Store, c weir.Claim, beside []weir.Claim) (weir.Instant, error) {
		return decided(s, append([]weir.Claim{c}, beside[:2]...), 1)
	}},
	{"Decide of many claims", func(s *memstore.Store, c weir.Claim, beside []weir.Claim) (weir.Instant, error) {
		return decided(s, append([]weir.Claim{c}, beside...), 1)
	}},
	{"Charge", func(s *memstore.Store, c weir.Claim, _ []weir.Claim) (weir.Instant, error) {
		d := make([]weir.Decision, 1)
		err := s.Charge(context.Background(), []weir.Claim{c}, d)
		return d[0].At, err
	}},
	{"DecideBatch", func(s *memstore.Store, c weir.Claim, _ []weir.Claim) (weir.Instant, error) {
		c.Cost = 1
		r := []weir.Request{{Claims: []weir.Claim{c}, Times: 2, Decisions: make([]weir.Decision, 2)}}
		s.DecideBatch(context.Background(), r)
		return r[0].Decisions[1].At, r[0].Err
	}},
	{"DecideKey", func(s *memstore.Store, c weir.Claim, _ []weir.Claim) (weir.Instant, error) {
		_, _, _, _, _, _, at, ok := s.DecideKey(c.Key, []*weir.Limit{c.Limit}, c.Cost, c.Floor)
		if !ok {
			return decided(s, []weir.Claim{c}, 1)
		}
		return at, nil
	}},
}

func decided(s *memstore.Store, claims []weir.Claim, times int64) (weir.Instant, error) {
	d := make([]weir.Decision, len(claims))
	granted, err := s.Decide(context.Background(), claims, times, d)
	if err == nil && granted != times {
		err = fmt.Errorf("granted %d of %d", granted, times)
	}
	return d[0].At, err
}

// stepping is a clock of which each reading is later than the one before. While the first caller that it is armed for
// still holds its reading, something else may happen.
type stepping struct {
	now       atomic.Int64
	step      int64
	meanwhile func()
}

func (c *stepping) read() weir.Instant {
	at := c.now.Add(c.step)
	if other := c.meanwhile; other != nil {
		c.meanwhile = nil
		other()
	}
	return weir.Instant(at)
}

// The instant that a grant is told is the one at which its units are stored, also if another charge of the key, by a
// later reading of the clock, comes between the reading and the entry: the units are given back, and no others.
func TestInstantToldIsInstantStored(t *testing.T) {
	for _, spec := range dated {
		for _, step := range []int64{1, 900, 7_000_000, 31_000_000} {
			for _, first := range ways {
				for _, other := range ways {
					toldAsStored(t, spec, step, first, other)
				}
			}
		}
	}
}

func toldAsStored(t *testing.T, spec weir.Spec, step int64, first, other way) {
	t.Helper()
	clock := &stepping{step: step}
	clock.now.Store(1_790_000_030_000_000 - 2*step)
	store := memstore.New(memstore.WithClock(clock.read))
	limit := weir.MustLimit("limit", spec)
	claim := weir.Claim{Key: "key", Limit: limit, Cost: 2}
	var beside []weir.Claim
	for i := range 9 {
		beside = append(beside, weir.Claim{Key: fmt.Sprint("beside", i), Limit: limit, Cost: 1})
	}
	clock.step = 0
	decided(store, append([]weir.Claim{claim}, beside...), 1) // all keys are known
	clock.step = step
	var errOther error
	clock.meanwhile = func() { _, errOther = other.take(store, claim, beside) }
	at, err := first.take(store, claim, beside)
	if err != nil || errOther != nil {
		t.Fatal(err, errOther)
	}
	clock.step = 0
	before := remaining(t, store, claim)
	if err := store.Refund(t.Context(), []weir.Claim{claim}, at, nil); err != nil {
		t.Fatal(err)
	}
	if back := remaining(t, store, claim) - before; back != 2 {
		t.Errorf("%v, %d µs: %s, and %s meanwhile: %d of 2 units are given back", spec, step, first.name, other.name, back)
	}
}

func remaining(t *testing.T, store *memstore.Store, c weir.Claim) int64 {
	d := make([]weir.Decision, 1)
	if _, err := store.Decide(t.Context(), []weir.Claim{c}, 0, d); err != nil {
		t.Fatal(err)
	}
	return d[0].Remaining
}

// All that racing callers take and give back of one key is given back.
func TestRacingChargesAreGivenBack(t *testing.T) {
	for _, spec := range dated {
		clock := &stepping{step: 1}
		clock.now.Store(1_790_000_000_000_000)
		store := memstore.New(memstore.WithClock(clock.read))
		claim := weir.Claim{Key: "key", Limit: weir.MustLimit("limit", spec), Cost: 2}
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(caller), 5))
				own := make([]weir.Claim, 9)
				for i := range own {
					own[i] = weir.Claim{Key: fmt.Sprint("beside", caller, i), Limit: claim.Limit, Cost: 1}
				}
				for range 1500 {
					at, err := ways[random.IntN(len(ways))].take(store, claim, own)
					if err == nil {
						err = store.Refund(context.Background(), []weir.Claim{claim}, at, nil)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		if left := remaining(t, store, claim); left != 1000 {
			t.Errorf("%v: %d of 1000 are left when all was given back", spec, left)
		}
	}
}
