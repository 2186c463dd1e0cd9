package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/memstore"
)

// While no time passes, decisions from a lease are those that single calls would get.
func TestDecisionsAreThoseOfSingleCalls(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.TokenBucket{Capacity: 1000, Refill: 700, Period: second},
		weir.TokenBucket{Capacity: 1, Refill: 30, Period: 7 * second, Overdraft: 1000},
		weir.TokenBucket{Capacity: 100, Refill: 100, Period: second, Overdraft: 900},
		weir.FixedWindow{Limit: 1000, Window: second},
		weir.SlidingLog{Limit: 1000, Window: second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, twin := open(t, tenth), memstore.New()
			claims := one(weir.MustLimit("limit", spec))
			claims[0].Cost = 3
			want := make([]weir.Decision, 1)
			for i := range 250 {
				_, got := b.ask(claims)
				if _, err := twin.Decide(t.Context(), claims, 1, want); err != nil {
					t.Fatal(err)
				}
				// In a lease, the state is as if all of it was spent.
				want[0].ResetAfter = got[0].ResetAfter
				// a rounded delay is never too short
				if d := got[0].Delay - want[0].Delay; d > 0 && d <= time.Microsecond {
					want[0].Delay = got[0].Delay
				}
				if got[0] != want[0] {
					t.Fatalf("%s, request %d:\n got %+v\nwant %+v", spec, i, got[0], want[0])
				}
			}
			if b.Stats().Taken < 100 {
				t.Errorf("%s: of 250 requests %+v", spec, b.Stats())
			}
		})
	}
}

// Borrowers from a lease leave as evenly as if each had called the store.
func TestDelaysCountFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.MustLimit("queue", weir.TokenBucket{Capacity: 1, Refill: 30, Period: 7 * second, Overdraft: 1000})
		b, twin := open(t, tenth), limiter(t, memstore.New(), limit)
		leased := limiter(t, b, limit) // by the shortcut, where that can
		for i := range 250 {
			got, err := leased.Allow(t.Context(), "hot")
			want, err2 := twin.Allow(t.Context(), "hot")
			if d := got.Delay - want.Delay; err != nil || err2 != nil || d < 0 || d > time.Microsecond {
				t.Fatalf("request %d: a delay of %v, want %v (%v, %v)", i, got.Delay, want.Delay, err, err2)
			}
			time.Sleep(time.Millisecond)
		}
		if b.Stats().Taken < 100 {
			t.Errorf("of 250 requests %+v", b.Stats())
		}
	})
}

// A request paid from a lease can be refunded.
func TestLeasedRequestIsRefunded(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.SlidingLog{Limit: 1000, Window: time.Hour},
		weir.FixedWindow{Limit: 1000, Window: time.Hour},
		weir.SlidingCounter{Limit: 1000, Window: time.Hour, Slices: 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t, tenth)
			limiter, err := weir.NewLimiter(b, weir.MustLimit("limit", spec))
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				time.Sleep(time.Millisecond)
				r, err := limiter.Reserve(t.Context(), "hot", 1)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			taken := b.Stats().Taken
			time.Sleep(second)
			if left := b.remaining(one(limiter.Limits()[0])); left != 1000 || taken == 0 {
				t.Errorf("%s: %d left of 1000 when all was cancelled (%d were leased)", spec, left, taken)
			}
		})
	}
}

func TestShortcut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leased, not := daily(1_000_000), weir.MustLimit("not",
			weir.TokenBucket{Capacity: 1000, Refill: 1, Period: second})
		quick := weir.MustLimit("quick", weir.TokenBucket{Capacity: 1000, Refill: 1, Period: second})
		s := lease.New(memstore.New(), func(l *weir.Limit) lease.Terms {
			return lease.Terms{Share: map[*weir.Limit]float64{leased: 0.1, quick: 0.1}[l]}
		})
		defer s.Close()
		short, plain := limiter(t, s, leased), limiter(t, struct{ weir.Store }{s}, leased)
		for range 100 {
			a, err := short.Allow(t.Context(), "hot")
			b, err2 := plain.Allow(t.Context(), "hot")
			if err != nil || err2 != nil || a.Remaining != b.Remaining+1 || a.At != b.At && s.Stats().Leases > 0 &&
				a.At > b.At {
				t.Fatalf("%+v and %+v, %v %v", a, b, err, err2)
			}
		}
		if s.Stats().Taken == 0 {
			t.Error("nothing was leased")
		}
		bucket := limiter(t, s, quick)
		for range 10 {
			bucket.Allow(t.Context(), "hot")
		}
		if s.Stats().Leases != 2 {
			t.Error("a limit that the store below has a shortcut for earned no lease")
		}
		through := limiter(t, s, not)
		for i := range 10 {
			if a, err := through.Allow(t.Context(), "hot"); err != nil || a.Remaining != int64(999-i) {
				t.Errorf("%+v %v", a, err)
			}
		}
	})
}

func limiter(t testing.TB, store weir.Store, limits ...*weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(store, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Callers may reuse the memory of their keys.
func TestKeysAreCopiedOnUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := open(t, tenth), daily(1_000_000)
		buffer := []byte("hot")
		for range 50 {
			claims := []weir.Claim{{Key: unsafe.String(&buffer[0], len(buffer)), Limit: limit, Cost: 1}}
			b.ask(claims)
			copy(buffer, "xxx")
			time.Sleep(time.Millisecond)
			copy(buffer, "hot")
		}
		copy(buffer, "xxx")
		time.Sleep(second)
		if left := b.remaining(one(limit)); left != 1_000_000-50 {
			t.Errorf("%d left after 50 requests", left)
		}
	})
}

func TestSpendingDoesNotAllocate(t *testing.T) {
	s := lease.New(memstore.New(), always(lease.Terms{Share: 0.5, Hold: 10 * second}))
	defer s.Close()
	claims, decisions := one(daily(weir.MaxUnits)), make([]weir.Decision, 1)
	both := append(one(daily(weir.MaxUnits)),
		weir.Claim{Key: "all", Limit: weir.MustLimit("g", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Hour}),
			Cost: 1})
	two, limits := make([]weir.Decision, 2), []*weir.Limit{claims[0].Limit}
	request := func() {
		s.Decide(context.Background(), claims, 1, decisions)
		s.DecideKey("hot", limits, 1)
		s.Decide(context.Background(), both, 1, two)
	}
	for range 100_000 {
		request()
	}
	refills := s.Stats().Refills
	if n := testing.AllocsPerRun(10_000, request); n != 0 {
		t.Errorf("%v allocations a request, with %d refills", n, s.Stats().Refills-refills)
	}
}

// Many at once, for the race detector: nothing is lost and nothing too much.
func TestManyAtOnce(t *testing.T) {
	s := lease.New(memstore.New(), always(lease.Terms{Share: 0.2, Hold: 2 * time.Millisecond}))
	const each, callers = 3000, 8
	limit := daily(1_000_000)
	limiters := []*weir.Limiter{limiter(t, s, limit), limiter(t, struct{ weir.Store }{s}, limit)}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range each {
				if a, err := limiters[(i+n)%2].Allow(context.Background(), fmt.Sprint("key", n/100%3)); err != nil ||
					!a.Allowed {
					t.Error(a, err)
					return
				}
			}
		})
	}
	all.Wait()
	settled := func() bool {
		left := int64(0)
		for i := range 3 {
			a, _ := limiters[0].Peek(context.Background(), fmt.Sprint("key", i))
			left += a.Remaining
		}
		return left == 3_000_000-each*callers && s.Stats().Leases == 0
	}
	for deadline := time.Now().Add(time.Minute); !settled(); {
		if time.Now().After(deadline) {
			t.Fatalf("not all came back: %+v", s.Stats())
		}
		<-time.After(5 * time.Millisecond)
	}
	if s.Stats().Taken == 0 {
		t.Error("nothing was leased")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A request that follows one whose lease is refilled is decided, also behind the refusal of another request.
func TestWhatFollowsARefillIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, hot := open(t, tenth), one(daily(1_000_000))
		b.many(200, hot)
		used := []weir.Claim{{Key: "used up", Limit: weir.MustLimit("used-up", weir.PerDay(1)), Cost: 1}}
		b.ask(used)
		before := b.Stats().Taken
		for i := range 200 {
			own := []weir.Claim{{Key: fmt.Sprint("own ", i), Limit: daily(10), Cost: 1}}
			requests := []weir.Request{{Claims: used}, {Claims: hot}, {Claims: own, Follows: true}}
			for i := range requests {
				requests[i].Times, requests[i].Decisions = 1, make([]weir.Decision, 1)
			}
			b.DecideBatch(t.Context(), requests)
			if r := requests[0]; r.Granted != 0 || r.Err != nil {
				t.Fatalf("what is used up: %d, %v", r.Granted, r.Err)
			}
			for k, r := range requests[1:] {
				if r.Granted != 1 || r.Err != nil {
					t.Fatalf("batch %d, request %d: granted %d, %v", i, k+1, r.Granted, r.Err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		if b.Stats().Taken == before {
			t.Error("no lease was refilled")
		}
	})
}

// Refusals earn no lease: there is nothing to lend.
func TestRefusalsInBatchesEarnNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1000))
		if err := b.Charge(t.Context(), []weir.Claim{{Key: "hot", Limit: claims[0].Limit, Cost: 1000}}, nil); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			requests := []weir.Request{{Claims: claims, Times: 1, Decisions: make([]weir.Decision, 1)}}
			if b.DecideBatch(t.Context(), requests); requests[0].Granted != 0 || b.Stats().Leases != 0 {
				t.Fatalf("granted %d, %d leases", requests[0].Granted, b.Stats().Leases)
			}
			time.Sleep(time.Millisecond)
		}
	})
}
