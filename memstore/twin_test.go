package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// most is what each limit of these tests has.
const most = 1000

// A store at its ceiling decides any number of claims on new keys, whichever of them found the store full at first and
// which of them later: those without room share the overflow key of their limit, and each limit is charged for all.
func TestNewKeysOfOneDecisionWhileTheStoreFills(t *testing.T) {
	for _, specs := range [][]weir.Spec{
		{weir.GCRA(most, 1, time.Hour)},
		{weir.SlidingLog{Limit: most, Window: time.Hour}},
		{weir.FixedWindow{Limit: most, Window: time.Hour}, weir.SlidingCounter{Limit: most, Window: time.Hour, Slices: 6}},
		{weir.Calendar{Limit: most, Unit: weir.Year}, weir.SlidingLog{Limit: most, Window: time.Hour}, weir.PerDay(most)},
	} {
		random := rand.New(rand.NewPCG(uint64(len(specs)), 7))
		for claims := 1; claims <= weir.MaxClaims; claims++ {
			for range 8 {
				d := filling{specs: specs, claims: claims, room: random.IntN(3), early: random.Uint64()}
				within(t, fmt.Sprintf("%+v", d), d.check)
			}
		}
		for early := range uint64(1 << 5) { // all ways in which five claims may find the store full
			d := filling{specs: specs, claims: 5, early: early}
			within(t, fmt.Sprintf("%+v", d), d.check)
		}
	}
}

// within ends the test if a decision does not end.
func within(t *testing.T, what string, check func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- check() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s: the decision does not end", what)
	}
}

// filling is a decision about new keys, one limit after the other, in a store that fills meanwhile.
type filling struct {
	specs  []weir.Spec
	claims int
	room   int    // for so many keys
	early  uint64 // a bit for each claim that finds the store full when the decision begins
}

func (f filling) check() error {
	limits := make([]*weir.Limit, len(f.specs))
	for i := range limits {
		limits[i] = weir.MustLimit(fmt.Sprint("limit", i), f.specs[i])
	}
	store := New(WithMaxKeys(1 + f.room))
	claims := make([]weir.Claim, f.claims)
	for i := range claims {
		claims[i] = weir.Claim{Key: fmt.Sprint("new", i), Limit: limits[i%len(limits)], Cost: 1}
	}
	filler := weir.MustLimit("filler", weir.PerDay(1))
	store.Decide(context.Background(), []weir.Claim{{Key: "filler", Limit: filler, Cost: 1}}, 1, nil)
	want := f.want(claims)
	decisions := make([]weir.Decision, len(claims))
	granted, err := f.transaction(store, claims).run(1, decisions)
	if err != nil || granted != 1 {
		return fmt.Errorf("granted %d, error %v", granted, err)
	}
	for i, d := range decisions {
		if d.Remaining != want[i] {
			return fmt.Errorf("claim %d has %d left, want %d", i, d.Remaining, want[i])
		}
	}
	store.Refund(context.Background(), claims, decisions[0].At, decisions)
	for i, d := range decisions {
		if d.Remaining != most {
			return fmt.Errorf("claim %d has %d of %d left when all is given back", i, d.Remaining, most)
		}
	}
	return nil
}

// transaction begins a decision of which some claims find the store full.
func (f filling) transaction(store *Store, claims []weir.Claim) *transaction {
	t := new(transaction)
	t.begun(store, claims)
	for i := range claims {
		t.find(i)
		if f.early>>i&1 == 1 {
			t.overflow(i)
		}
	}
	t.pair()
	return t
}

// want is what each claim has left: those that find no room share what their limit has.
func (f filling) want(claims []weir.Claim) []int64 {
	shared := make(map[*weir.Limit]int64)
	alone := make([]bool, len(claims))
	room := f.room
	for i := range claims {
		if alone[i] = f.early>>i&1 == 0 && room > 0; alone[i] {
			room--
		} else {
			shared[claims[i].Limit]++
		}
	}
	left := make([]int64, len(claims))
	for i := range claims {
		if left[i] = most - shared[claims[i].Limit]; alone[i] {
			left[i] = most - 1
		}
	}
	return left
}

// Claims on one overflow key may be of other numbers under one name, as exceptions of a rule are: each is decided and
// described under its own.
func TestNewKeysOfOtherNumbersShareAnOverflowKey(t *testing.T) {
	for _, specs := range [][2]weir.Spec{
		{weir.GCRA(8, 1, time.Hour), weir.GCRA(5, 1, time.Hour)},
		{weir.FixedWindow{Limit: 8, Window: time.Hour}, weir.FixedWindow{Limit: 5, Window: time.Hour}},
		{weir.SlidingLog{Limit: 8, Window: time.Hour}, weir.SlidingLog{Limit: 5, Window: time.Hour}},
		{weir.SlidingCounter{Limit: 8, Window: time.Hour, Slices: 4}, weir.SlidingCounter{Limit: 5, Window: time.Hour, Slices: 10}},
	} {
		store := New(WithMaxKeys(1))
		one, other := weir.MustLimit("limit", specs[0]), weir.MustLimit("limit", specs[1])
		filler := weir.MustLimit("filler", weir.PerDay(1))
		store.Decide(t.Context(), []weir.Claim{{Key: "filler", Limit: filler, Cost: 1}}, 1, nil)
		claims := []weir.Claim{{Key: "a", Limit: one, Cost: 1}, {Key: "b", Limit: other, Cost: 1}}
		d := make([]weir.Decision, 2)
		for asked, left := range [][3]int64{{1, 6, 3}, {1, 4, 1}, {0, 4, 1}} {
			granted, err := store.Decide(t.Context(), claims, 1, d)
			if err != nil || granted != left[0] || d[0].Remaining != left[1] || d[1].Remaining != left[2] {
				t.Errorf("%v, request %d: granted %d, %d and %d left, %v; want %v", specs, asked, granted, d[0].Remaining, d[1].Remaining, err, left)
			}
			if waits := d[1].RetryAfter > 0; waits != (asked >= 1) { // one unit is left, and both need one
				t.Errorf("%v, request %d: the next one would be granted after %v", specs, asked, d[1].RetryAfter)
			}
		}
	}
}

// Decisions of any number of new keys end while others free and fill the store: none waits for a lock that it holds.
func TestNewKeysBesideARacingFiller(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerDay(10), weir.SlidingLog{Limit: 10, Window: 24 * time.Hour}} {
		store := New(WithMaxKeys(64))
		limits := []*weir.Limit{weir.MustLimit("x", spec), weir.MustLimit("y", spec)}
		var group sync.WaitGroup
		for g := range 4 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 3))
				for i := range 3000 {
					claims := racing(random, limits, fmt.Sprintf("%d-%d-", g, i))
					store.Decide(context.Background(), claims, 1, nil)
					if g%2 == 0 {
						store.Reset(context.Background(), claims)
					}
				}
			})
		}
		within(t, fmt.Sprint(spec), func() error { group.Wait(); return nil })
		if stats := store.Stats(); stats.Keys > 64 || stats.Keys < 0 {
			t.Errorf("%v: stats are %+v", spec, stats)
		}
	}
}

// racing is a decision of two claims mostly, of one limit or of two.
func racing(random *rand.Rand, limits []*weir.Limit, key string) []weir.Claim {
	claims := make([]weir.Claim, 2)
	if random.IntN(10) == 0 {
		claims = slices.Grow(claims, weir.MaxClaims)[:1+random.IntN(weir.MaxClaims)]
	}
	one := random.IntN(2) * 2
	for i := range claims {
		claims[i] = weir.Claim{Key: fmt.Sprint(key, i), Limit: limits[min(one, i)%2], Cost: 1}
	}
	return claims
}
