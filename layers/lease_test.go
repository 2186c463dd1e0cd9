package layers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/memstore"
)

// An leaseOption changes a Store before its first use.
type leaseOption func(*leaser)

// withMaxLeases sets the most leases.
func withMaxLeases(n int) leaseOption { return func(s *leaser) { s.room = n } }

// newLeaserWith is New with options.
func newLeaserWith(next weir.Store, terms func(*weir.Limit) leaseTerms, options ...leaseOption) *leaser {
	s := newLeaser(next, terms)
	for _, option := range options {
		option(s)
	}
	return s
}

// One call serves all callers that find the lease used up.
func TestCallersShareARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(5*time.Millisecond, nil, nil)
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() { b.ask(claims) })
		}
		callers.Wait()
		if times, _ := b.below.seen(); len(times) > 2 || slices.Contains(times, 1) {
			t.Errorf("30 callers made the calls %d, want one for those it is enough for and one for the rest", times)
		}
	})
}

// A caller that leaves does not end the refill of the others.
func TestRefillOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(10*time.Millisecond, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		began := time.Now()
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(time.Millisecond)
			b.ask(claims)
			if waited := time.Since(began); waited != 20*time.Millisecond {
				t.Errorf("the second caller waited until %v, want the first one's refill at 20ms", waited)
			}
		})
		_, err := b.Decide(ctx, claims, 1, make([]weir.Decision, 1))
		if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 5*time.Millisecond {
			t.Errorf("the caller who went away got %v after %v", err, time.Since(began))
		}
		others.Wait()
	})
}

// Held units are spent until their time is over; then callers get the store's error.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(480, claims)
		away := fmt.Errorf("%w: away", weir.ErrUnavailable)
		b.below.set(0, away, nil)
		began, passed := time.Now(), 0
		var err error
		for err == nil {
			if _, err = b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); err == nil {
				passed++
			}
			time.Sleep(time.Millisecond)
		}
		if passed == 0 || time.Since(began) > defaultHold || !errors.Is(err, away) {
			t.Errorf("%d passed in %v, then %v", passed, time.Since(began), err)
		}
		b.below.set(0, nil, nil)
		b.many(100, claims)
	})
}

// A grant whose reply was lost is not spent, because it may not have been charged.
func TestLostReplyLeavesUnitsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(0, nil, weir.ErrUnavailable)
		if _, err := b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a lost reply: %v", err)
		}
		b.below.set(0, nil, nil)
		b.below.seen()
		b.ask(claims)
		if times, _ := b.below.seen(); len(times) != 1 {
			t.Errorf("calls %d after it, want one", times)
		}
	})
}

// During an outage one lease in each sweep is tried, and the others stay due.
func TestOutageReturnsOneLeaseARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := leaseOpen(t, tenth), daily(1_000_000)
		for i := range 20 {
			claims := []weir.Claim{{Key: fmt.Sprint(i), Limit: limit, Cost: 1}}
			for range 6 {
				b.ask(claims)
			}
		}
		leased := b.Stats()
		b.below.set(0, weir.ErrUnavailable, nil)
		time.Sleep(defaultHold + 60*time.Millisecond)
		b.below.set(0, nil, nil)
		time.Sleep(time.Second)
		stats := b.Stats()
		if stats.Leases != 0 || stats.Lost == 0 || stats.Lost > leased.Taken/4 || stats.Returned < leased.Taken/4 {
			t.Errorf("%+v, then %+v", leased, stats)
		}
	})
}

// A store slower than leases are held gets single calls.
func TestLateGrantIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(100, claims)
		b.expire()
		b.below.set(60*time.Millisecond, nil, nil)
		b.many(3, claims)
		times, refunds := b.below.seen()
		if len(times) != 4 || slices.Max(times[1:]) != 1 || len(refunds) != 1 || refunds[0].Cost != times[0] {
			t.Errorf("calls %d, given back %v, want one lease, back soon, and 3 single calls", times, refunds)
		}
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() { b.many(4, claims) })
		}
		callers.Wait()
		if times, _ := b.below.seen(); len(times) != 120 {
			t.Errorf("%d calls for 120 requests, want single ones", len(times))
		}
	})
}

func TestBound(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		spec  weir.Spec
		share float64
		span  time.Duration
		most  int64
		text  string
	}{
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: time.Second}, 0.1, us, 1000 + 300,
			"at most 1000 + 100/1s × T + 3 × 100 units in any T"},
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: time.Second}, 0.1, time.Second, 1000 + 99 + 300, ""},
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: time.Second}, 0.1, time.Second + us, 1000 + 100 + 300, ""},
		{weir.TokenBucket{Capacity: 100, Refill: 10, Period: time.Second, Overdraft: 50, Mode: weir.Step}, 0.1,
			time.Second + us,
			150 + 10 + 3*15, ""},
		{weir.TokenBucket{Capacity: 100, Refill: 10, Period: time.Second, Overdraft: 50, Mode: weir.Step}, 0.1,
			time.Second + 2*us, 150 + 20 + 3*15, ""},
		{weir.FixedWindow{Limit: 100, Window: time.Second, Anchor: weir.Epoch}, 0.1, us, 100,
			"at most 100 units in each window, as without leases"},
		{weir.FixedWindow{Limit: 100, Window: time.Second}, 0.1, time.Second + us, 200, ""},
		{weir.FixedWindow{Limit: 100, Window: time.Second}, 0.1, time.Second + 2*us, 300, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * time.Second}, 0.1, 2 * time.Second, 100 + 30,
			"at most 100 + 3 × 10 units in any 2s, 100 in any 1.9s"},
		{weir.SlidingLog{Limit: 100, Window: 2 * time.Second}, 0.1, 1900 * ms, 100, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * time.Second}, 0.1, 2*time.Second + us, 200, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * time.Second}, 1, 2 * time.Second, 200, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 1}, 0.1, time.Second, 155,
			"at most 3 × 10 units more than the counter of 100 in any time"},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 1}, 1, time.Second, 155, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 4}, 0.1, 1500 * ms, 120, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 4}, 0.1, 1400 * ms, 100, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 4}, 0.1, 3 * time.Second, 200 + 100, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * time.Second, Slices: 4}, 0.1, 3500 * ms, 200 + 120, ""},
		{weir.SlidingLog{Limit: 100, Window: 999 * ms}, 0.1, 999 * ms, 100, "not leased"},
		{weir.TokenBucket{Capacity: 19, Refill: 10, Period: time.Second}, 0.1, us, 19, "not leased"},
		{weir.FixedWindow{Limit: weir.MaxUnits, Window: us}, 0.1, math.MaxInt64, weir.MaxUnits, ""},
	} {
		limit := weir.MustLimit("limit", c.spec)
		bound := leaseBoundOf(limit, leaseTerms{Share: c.share}, 3)
		if most, ok := bound.Most(c.span); !ok || most != c.most {
			t.Errorf("%s, share %v: %d in %v (%v), want %d", limit, c.share, most, c.span, ok, c.most)
		}
		if c.text != "" && bound.String() != c.text {
			t.Errorf("%s: %q, want %q", limit, bound, c.text)
		}
	}
}

func TestLimitsWithoutABound(t *testing.T) {
	for spec, text := range map[weir.Spec]string{
		weir.Calendar{Limit: 100, Unit: weir.Day}:    "at most 100 units in each window, as without leases",
		weir.Concurrency{Limit: 100, TTL: time.Hour}: "not leased",
	} {
		bound := leaseBoundOf(weir.MustLimit("limit", spec), leaseTerms{Share: 0.5}, 3)
		if most, ok := bound.Most(time.Hour); ok || bound.String() != text {
			t.Errorf("%s: %d, %q", spec, most, bound)
		}
	}
}

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		terms leaseTerms
		field string
	}{
		{leaseTerms{}, ""},
		{leaseTerms{Share: 1, Hold: 10 * time.Second}, ""},
		{leaseTerms{Share: 0.01, Hold: time.Millisecond}, ""},
		{leaseTerms{Share: 1.01}, "share"},
		{leaseTerms{Share: -0.1}, "share"},
		{leaseTerms{Share: math.NaN()}, "share"},
		{leaseTerms{Share: 0.1, Hold: time.Millisecond - 1}, "hold"},
		{leaseTerms{Share: 0.1, Hold: -time.Second}, "hold"},
		{leaseTerms{Share: 0.1, Hold: 10*time.Second + 1}, "hold"},
	} {
		var input *weir.InputError
		if err := c.terms.check(); (err == nil) != (c.field == "") || errors.As(err, &input) && input.Field != c.field {
			t.Errorf("%+v: %v", c.terms, err)
		}
		if held := leaseBoundOf(daily(1000), c.terms, 1).Held; (held > 0) != (c.field == "" && c.terms.Share > 0) {
			t.Errorf("%+v: %d are held", c.terms, held)
		}
	}
}

// While no time passes, decisions from a lease are those that single calls would get.
func TestDecisionsAreThoseOfSingleCalls(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.TokenBucket{Capacity: 1000, Refill: 700, Period: time.Second},
		weir.TokenBucket{Capacity: 1, Refill: 30, Period: 7 * time.Second, Overdraft: 1000},
		weir.TokenBucket{Capacity: 100, Refill: 100, Period: time.Second, Overdraft: 900},
		weir.FixedWindow{Limit: 1000, Window: time.Second},
		weir.SlidingLog{Limit: 1000, Window: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, twin := leaseOpen(t, tenth), memstore.New()
			claims := leaseOne(weir.MustLimit("limit", spec))
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
		limit := weir.MustLimit("queue", weir.TokenBucket{Capacity: 1, Refill: 30, Period: 7 * time.Second, Overdraft: 1000})
		b, twin := leaseOpen(t, tenth), limiter(t, memstore.New(), limit)
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
			b := leaseOpen(t, tenth)
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
			time.Sleep(time.Second)
			if left := b.remaining(leaseOne(limiter.Limits()[0])); left != 1000 || taken == 0 {
				t.Errorf("%s: %d left of 1000 when all was cancelled (%d were leased)", spec, left, taken)
			}
		})
	}
}

func TestShortcut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leased, not := daily(1_000_000), weir.MustLimit("not",
			weir.TokenBucket{Capacity: 1000, Refill: 1, Period: time.Second})
		quick := weir.MustLimit("quick", weir.TokenBucket{Capacity: 1000, Refill: 1, Period: time.Second})
		s := newLeaser(memstore.New(), func(l *weir.Limit) leaseTerms {
			return leaseTerms{Share: map[*weir.Limit]float64{leased: 0.1, quick: 0.1}[l]}
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
		b, limit := leaseOpen(t, tenth), daily(1_000_000)
		buffer := []byte("hot")
		for range 50 {
			claims := []weir.Claim{{Key: unsafe.String(&buffer[0], len(buffer)), Limit: limit, Cost: 1}}
			b.ask(claims)
			copy(buffer, "xxx")
			time.Sleep(time.Millisecond)
			copy(buffer, "hot")
		}
		copy(buffer, "xxx")
		time.Sleep(time.Second)
		if left := b.remaining(leaseOne(limit)); left != 1_000_000-50 {
			t.Errorf("%d left after 50 requests", left)
		}
	})
}

func TestSpendingDoesNotAllocate(t *testing.T) {
	s := newLeaser(memstore.New(), always(leaseTerms{Share: 0.5, Hold: 10 * time.Second}))
	defer s.Close()
	claims, decisions := leaseOne(daily(weir.MaxUnits)), make([]weir.Decision, 1)
	both := append(leaseOne(daily(weir.MaxUnits)),
		weir.Claim{Key: "all", Limit: weir.MustLimit("g", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Hour}),
			Cost: 1})
	two, limits := make([]weir.Decision, 2), []*weir.Limit{claims[0].Limit}
	request := func() {
		s.Decide(context.Background(), claims, 1, decisions)
		s.DecideKey("hot", limits, 1, 0)
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

// A request that follows one whose lease is refilled is decided, also behind the refusal of another request.
func TestWhatFollowsARefillIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, hot := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
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
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1000))
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

// A distantRefunds store takes its time for each refund, and counts those that are under way.
type distantRefunds struct {
	weir.Store
	away            time.Duration
	begun, underWay atomic.Int64
	most            atomic.Int64
}

func (d *distantRefunds) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant,
	decisions []weir.Decision) error {
	d.begun.Add(1)
	d.most.Store(max(d.most.Load(), d.underWay.Add(1)))
	defer d.underWay.Add(-1)
	time.Sleep(d.away)
	return d.Store.Refund(ctx, claims, at, decisions)
}

// lendTo lets a number of keys earn a lease each.
func lendTo(t *testing.T, store weir.Store, keys int) (claims []weir.Claim) {
	t.Helper()
	limit := daily(1_000_000)
	for i := range keys {
		claim := weir.Claim{Key: fmt.Sprint("key-", i), Limit: limit, Cost: 1}
		claims = append(claims, claim)
		for range 5 {
			if granted, err := store.Decide(t.Context(), claims[i:], 1, make([]weir.Decision, 1)); granted != 1 ||
				err != nil {
				t.Fatal(granted, err)
			}
		}
	}
	return claims
}

// TestManyIdleKeysGoBackInTime: units of 500 keys over a store that takes 5 ms a call are back
// within what the documentation says of one key, and the calls of eight rounds.
func TestManyIdleKeysGoBackInTime(t *testing.T) {
	const keys, away = 500, 5 * time.Millisecond
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed: ", closed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				below := &distantRefunds{Store: &unclosed{memory}, away: away}
				store := newLeaser(below, tenth)
				claims := lendTo(t, store, keys)
				if n := store.Stats().Leases; n != keys {
					t.Fatalf("%d leases, want %d", n, keys)
				}
				const rounds = 1 + (keys+63)/64
				if closed {
					began := time.Now()
					store.Close()
					if took := time.Since(began); took > rounds*away {
						t.Errorf("Close took %v, want %v at most", took, rounds*away)
					}
				} else {
					time.Sleep(defaultHold + 25*time.Millisecond + rounds*away)
				}
				back := store.Stats()
				if back.Returned == 0 || back.Lost != 0 || below.begun.Load() != keys || below.underWay.Load() != 0 {
					t.Errorf("%+v after %d refunds, %d under way; want %d, done", back, below.begun.Load(),
						below.underWay.Load(), keys)
				}
				if most := below.most.Load(); most > 64 {
					t.Errorf("%d refunds at the same time, want 64 at most", most)
				}
				for i := range claims {
					d := make([]weir.Decision, 1)
					if _, err := memory.Decide(t.Context(), slices.Clone(claims[i:i+1]), 0, d); err != nil ||
						d[0].Remaining != 1_000_000-5 {
						t.Fatalf("%s has %d left (%v), want all but 5", claims[i].Key, d[0].Remaining, err)
					}
				}
				store.Close()
			})
		})
	}
}

// TestLeaseEndsBeforeItsWindowByTheStoresClock: the store's clock may run a thousandth faster than
// this node's, and its times are rounded down. No unit passes when the window it was charged in is over there.
func TestLeaseEndsBeforeItsWindowByTheStoresClock(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			const epoch = 1_790_000_000_000_000
			clock := func() weir.Instant {
				fast := time.Since(start)
				return epoch + weir.Instant((fast + fast/1001 + 900*time.Nanosecond).Microseconds())
			}
			below := &spy{Store: memstore.New(memstore.WithClock(clock))}
			store := newLeaser(below, tenth)
			defer store.Close()
			claims := leaseOne(weir.MustLimit("limit",
				weir.FixedWindow{Limit: 1_000_000, Window: window, Anchor: weir.Epoch}))
			d := make([]weir.Decision, 1)
			for range 5 {
				store.Decide(t.Context(), claims, 1, d)
			}
			if store.Stats().Taken == 0 {
				t.Fatal("nothing was taken ahead")
			}
			ends := d[0].At + weir.Instant(d[0].ResetAfter.Microseconds())
			for time.Sleep(window - window/500); clock() < ends; {
				time.Sleep(100 * time.Nanosecond)
			}
			below.seen()
			store.Decide(t.Context(), claims, 1, d)
			if d[0].At < ends {
				t.Errorf("window %v: a unit of the window that ended at %d passed at %d", window, ends, clock())
			}
		})
	}
}

func TestLeaseIsEarnedByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := openIdle(t, tenth), leaseOne(daily(1_000_000))
		for range 20 { // slower than four in 50ms
			b.many(1, claims)
			time.Sleep(20 * time.Millisecond)
		}
		if times, _ := b.below.seen(); len(times) != 20 || b.Stats().Leases != 0 {
			t.Errorf("a cold key made %d calls for 20 requests, and has %d leases", len(times), b.Stats().Leases)
		}
		b.many(1000, claims)
		times, _ := b.below.seen()
		if len(times) > 60 {
			t.Errorf("a hot key made %d calls for 1000 requests: %d", len(times), times)
		}
		if last := times[len(times)-1]; last < 40 || last > 60 {
			t.Errorf("at 1000/s the last lease is of %d, want 50ms of it", last)
		}
		// Without requests, all units go back and the layer's goroutine ends.
		time.Sleep(time.Second)
		if left := b.remaining(claims); left != 1_000_000-1020 || b.Stats().Leases != 0 {
			t.Errorf("%d left in the store after 1020 requests, %d leases", left, b.Stats().Leases)
		}
	})
}

func TestOthersPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leased, not := daily(1_000_000), weir.MustLimit("not", weir.SlidingLog{Limit: 1_000_000, Window: time.Hour})
		b := leaseOpen(t, func(l *weir.Limit) leaseTerms {
			return leaseTerms{Share: map[*weir.Limit]float64{leased: 0.1}[l]}
		})
		both := []weir.Claim{{Key: "hot", Limit: leased, Cost: 1}, {Key: "hot", Limit: not, Cost: 1}}
		decide := func(times int64, decisions []weir.Decision) func() error {
			return func() error {
				_, err := b.Decide(t.Context(), leaseOne(leased), times, decisions)
				return err
			}
		}
		for name, request := range map[string]func() error{
			"a limit that is not leased": func() error { b.ask(leaseOne(not)); return nil },
			"beside one that is":         func() error { b.ask(both); return nil },
			"a peek":                     decide(0, make([]weir.Decision, 1)),
			"several at once":            decide(2, make([]weir.Decision, 1)),
			"no decisions":               decide(1, nil),
			"a cost of 0": func() error {
				_, err := b.Decide(t.Context(), []weir.Claim{{Key: "hot", Limit: leased}}, 1, make([]weir.Decision, 1))
				return err
			},
			"a charge": func() error { return b.Charge(t.Context(), leaseOne(leased), nil) },
		} {
			for range 100 {
				if err := request(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if b.Stats().Leases != 0 {
				t.Errorf("%s earned a lease", name)
			}
		}
	})
}

// Wrong input is the store's error, also on a key with a lease.
func TestBadInputIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := leaseOpen(t, tenth), daily(1_000_000)
		b.many(10, leaseOne(limit))
		d := make([]weir.Decision, 1)
		for name, claims := range map[string][]weir.Claim{
			"no claims":  {},
			"no limit":   {{Key: "hot", Cost: 1}},
			"a lease":    {{Key: "hot", Limit: limit, Cost: 1, Lease: "id"}},
			"a renewal":  {{Key: "hot", Limit: limit, Cost: 1, Renew: true}},
			"below 0":    {{Key: "hot", Limit: limit, Cost: -1}},
			"twins":      {{Key: "hot", Limit: limit, Cost: 1}, {Key: "hot", Limit: limit, Cost: 1}},
			"zero limit": {{Key: "hot", Limit: new(weir.Limit), Cost: 1}},
		} {
			var input *weir.InputError
			if _, err := b.Decide(t.Context(), claims, 1, d[:min(1, len(claims))]); !errors.As(err, &input) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := b.Decide(t.Context(), leaseOne(limit), 1, make([]weir.Decision, 2)); err == nil {
			t.Error("two decisions of one claim were taken")
		}
	})
}

// The last units are asked for one by one, and every refusal is the store's.
func TestNearExhaustion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1000))
		passed := 0
		for {
			granted, d := b.ask(claims)
			if !granted {
				if d[0].Remaining != 0 || d[0].RetryAfter != d[0].ResetAfter {
					t.Errorf("refused with %+v", d[0])
				}
				break
			}
			passed++
			time.Sleep(time.Millisecond)
		}
		if passed != 1000 {
			t.Errorf("%d of 1000 passed", passed)
		}
		times, _ := b.below.seen()
		if tail := times[len(times)-10:]; slices.Max(tail) != 1 {
			t.Errorf("the last calls were %d, want single ones", tail)
		}
		if slices.Max(times) < 40 {
			t.Errorf("the leases were %d", times)
		}
	})
}

// A lease that the store could not grant in full is spent, and then it is asked singly.
func TestPartialGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, always(leaseTerms{Share: 1})), leaseOne(daily(1000))
		b.many(200, claims)
		b.expire()
		charge := slices.Clone(claims)
		charge[0].Cost = b.remaining(claims) - 3 // by another node
		if err := b.below.Store.Charge(t.Context(), charge, nil); err != nil {
			t.Fatal(err)
		}
		b.below.seen()
		for i := range 3 {
			granted, d := b.ask(claims)
			if !granted || d[0].Remaining != int64(2-i) || (d[0].RetryAfter > 0) != (i == 2) {
				t.Errorf("request %d of the last three: %v, %+v", i+1, granted, d[0])
			}
		}
		if granted, _ := b.ask(claims); granted {
			t.Error("one too many passed")
		}
		if times, _ := b.below.seen(); len(times) != 2 || times[0] <= 3 || times[1] != 1 {
			t.Errorf("calls %d, want one for more than there was, and a single one", times)
		}
	})
}

// Failed, returned and spent grants no longer count towards the node's share.
func TestReturnedShareIsUsableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.MustLimit("limit", weir.TokenBucket{Capacity: 1000, Refill: 1000, Period: time.Second})
		for what, use := range map[string]func(*bench, []weir.Claim){
			"goes back": func(b *bench, claims []weir.Claim) { b.many(120, claims); b.expire() },
			"fails": func(b *bench, claims []weir.Claim) {
				b.many(100, claims)
				b.below.set(0, weir.ErrUnavailable, nil)
				for range 60 {
					b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1))
				}
				b.below.set(0, nil, nil)
			},
			"is used up": func(b *bench, claims []weir.Claim) {
				time.Sleep(time.Second) // until the bucket is full
				for asked := int64(1); asked < 10 || b.remaining(claims) != 1000-asked+1; asked++ {
					b.ask(claims)
				}
				time.Sleep(time.Second)
			},
		} {
			b, claims := leaseOpen(t, tenth), leaseOne(limit)
			for range 30 {
				use(b, claims)
			}
			b.below.seen()
			b.many(200, claims)
			if times, _ := b.below.seen(); len(times) > 40 {
				t.Errorf("after 30 times that a lease %s, 200 requests made %d calls", what, len(times))
			}
		}
	})
}

// A key that cools down loses its lease, and may earn one again.
func TestCoolingKeyLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(300, claims)
		for range 40 {
			b.many(1, claims)
			time.Sleep(30 * time.Millisecond)
		}
		if b.Stats().Leases != 0 {
			t.Error("a cold key has a lease")
		}
		b.below.seen()
		b.many(300, claims)
		if times, _ := b.below.seen(); len(times) > 40 {
			t.Errorf("hot again, 300 requests made %d calls", len(times))
		}
	})
}

// A limit that was exhausted is leased again when there is enough.
func TestRecoveringLimitIsLeasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.MustLimit("limit", weir.FixedWindow{Limit: 500, Window: time.Second})
		b, claims := leaseOpen(t, tenth), leaseOne(limit)
		_, d := b.ask(claims)
		next := time.Now().Add(d[0].ResetAfter)
		for time.Now().Before(next) {
			b.ask(claims)
			time.Sleep(time.Millisecond)
		}
		b.below.seen()
		b.many(200, claims)
		if times, _ := b.below.seen(); len(times) > 40 {
			t.Errorf("in the next window 200 requests made %d calls", len(times))
		}
	})
}

// A lease for costs above 1 keeps to the share of the remainder, in units.
func TestShareIsOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(3000))
		claims[0].Cost = 7
		for range 300 {
			before := b.remaining(claims)
			b.ask(claims)
			times, _ := b.below.seen()
			if n := slices.Max(append(times, 1)); n > 1 && n*7 > before/10+7 {
				t.Fatalf("a lease of %d × 7 units, with %d left", n, before)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestLeasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := leaseOpen(t, tenth, withMaxLeases(3)), daily(1_000_000)
		for i := range 200 {
			for range 5 {
				b.ask([]weir.Claim{{Key: fmt.Sprint(i), Limit: limit, Cost: 1}})
			}
		}
		if n := b.Stats().Leases; n != 3 {
			t.Errorf("%d leases, at most 3 are allowed", n)
		}
	})
}

// Most is the most units that pass in any time of length span; 2^52 stands for that many or more. ok is false
// for calendars, whose periods differ (it is the limit in each), and for concurrency limits.
func (b leaseBound) Most(span time.Duration) (units int64, ok bool) {
	us := max(1, span.Microseconds())
	units, ok = own(b.Limit, us)
	if b.Held == 0 || !ok || b.Limit.Algorithm() == weir.AlgorithmFixedWindow {
		return units, ok
	}
	units = algorithm.Add(units, b.ahead())
	if slides(b.Limit) {
		shifted, _ := own(b.Limit, us+b.Hold.Microseconds())
		units = min(units, shifted)
	}
	return units, true
}

// ahead is the number of units that all nodes hold.
func (b leaseBound) ahead() int64 {
	return min(algorithm.Mul(int64(b.Nodes), b.Held), weir.MaxUnits)
}

// own is what a limit promises without leases, as in limits.md, but for a window from its first charge: 2L
// while T ≤ W, because that unit may now pass later.
func own(l *weir.Limit, us int64) (units int64, ok bool) {
	limit, period := l.Capacity(), l.Period()
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Step() {
			return algorithm.Add(l.Most(), ratio(l.Refill(), algorithm.CeilDiv(us-1, period), 1)), true
		}
		return algorithm.Add(l.Most(), ratio(l.Refill(), us-1, period)), true
	case weir.AlgorithmFixedWindow:
		return ratio(limit, algorithm.CeilDiv(us-1, period)+1, 1), true
	case weir.AlgorithmSlidingLog:
		return ratio(limit, algorithm.CeilDiv(us, period), 1), true
	case weir.AlgorithmSlidingCounter:
		return algorithm.Add(ratio(limit, 2*(us/period), 1), fading(l, us%period)), true
	}
	return 0, false
}

// fading is what a sliding counter promises for less than its window: the limit, until the time reaches into
// the fading slice.
func fading(l *weir.Limit, us int64) int64 {
	if us == 0 {
		return 0
	}
	inFading := max(0, us-(l.Period()-l.Slice()))
	return algorithm.Add(l.Capacity(), ratio(l.Capacity(), inFading, l.Slice()))
}

// ratio is ⌊a × b/c⌋, at most weir.MaxUnits.
func ratio(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return weir.MaxUnits
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quotient, weir.MaxUnits))
}

func slides(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmSlidingLog || l.Algorithm() == weir.AlgorithmSlidingCounter
}

// Unspent units go back in time, and no more than those.
func TestUnusedUnitsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(95, claims)
		used := b.Stats().Taken
		held := 1_000_000 - 95 - b.remaining(claims)
		if held <= 0 {
			t.Fatal("nothing is held")
		}
		time.Sleep(defaultHold - time.Millisecond)
		if got := 1_000_000 - 95 - b.remaining(claims); got != held {
			t.Errorf("%d of %d held before the time is over", got, held)
		}
		time.Sleep(26 * time.Millisecond)
		if got := 1_000_000 - 95 - b.remaining(claims); got != 0 {
			t.Errorf("%d still held after it", got)
		}
		stats := b.Stats()
		if stats.Returned != held || stats.Taken != used || stats.Lost != 0 {
			t.Errorf("%d held, %+v", held, stats)
		}
	})
}

func TestCloseGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.below.Store = &unclosed{b.below.Store}
		b.many(95, claims)
		other := []weir.Claim{{Key: "late", Limit: claims[0].Limit, Cost: 1}}
		b.many(9, other)
		b.expire()
		b.below.set(20*time.Millisecond, nil, nil)
		go b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)) // a refill is under way
		time.Sleep(5 * time.Millisecond)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.below.set(0, nil, nil)
		synctest.Wait()
		if left, passed := b.remaining(claims), int64(95); left < 1_000_000-passed-1 || left > 1_000_000-passed {
			t.Errorf("%d left after %d requests and one more at most", left, passed)
		}
		if left := b.remaining(other); left != 1_000_000-9 {
			t.Errorf("%d left after 9 requests", left)
		}
		b.below.Store.(*unclosed).Store.Close()
		if _, err := b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// However many leases are over at once, and however slowly they go back.
func TestCloseDoesNotWaitForTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openIdle(t, tenth)
		for i := range 30 {
			claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: daily(1_000_000), Cost: 1}}
			for range 5 {
				b.ask(claims)
			}
		}
		if n := b.Stats().Leases; n != 30 {
			t.Fatalf("%d leases, want 30", n)
		}
		b.below.set(400*time.Millisecond, nil, nil)
		time.Sleep(2 * time.Second) // the sweep is under way
		began := time.Now()
		b.Close()
		if took := time.Since(began); took > 3*leaseTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// Units of a lease that was reset are not spent, and not credited to anybody.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		global := weir.MustLimit("global", weir.FixedWindow{Limit: 1_000_000, Window: 24 * time.Hour})
		both := append(slices.Clone(claims), weir.Claim{Key: "all", Limit: global, Cost: 1})
		b.many(95, both)
		b.below.seen()
		others := []weir.Claim{{Key: "other", Limit: global}, claims[0]}
		if err := b.Reset(t.Context(), others); err != nil {
			t.Fatal(err)
		}
		_, refunds := b.below.seen()
		if len(refunds) != 1 || refunds[0].Limit != global {
			t.Errorf("given back: %+v, want what the other limit was charged", refunds)
		}
		if left := b.remaining(both[1:]); left != 1_000_000-95 {
			t.Errorf("the other limit has %d left", left)
		}
		b.many(1, both)
		if times, _ := b.below.seen(); !slices.Equal(times, []int64{1}) {
			t.Errorf("after the reset the calls were %d, want a single one", times)
		}
		time.Sleep(time.Second)
		if left := b.remaining(claims); left != 1_000_000-1 {
			t.Errorf("%d left after a reset and one request", left)
		}
	})
}

// Events of a key during its reset end with the reset.
func TestDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(45, claims)
		b.below.seen()
		reset := make(chan error)
		b.below.set(defaultHold, nil, nil)
		go func() { reset <- b.Reset(t.Context(), claims) }()
		synctest.Wait()
		b.below.set(0, nil, nil)
		time.Sleep(defaultHold - 20*time.Millisecond)
		if _, refunds := b.below.seen(); len(refunds) != 0 {
			t.Errorf("given back during the reset: %v", refunds)
		}
		b.many(10, claims)
		if b.Stats().Leases != 1 {
			t.Fatal("nothing was leased during the reset")
		}
		if err := <-reset; err != nil {
			t.Fatal(err)
		}
		b.below.seen()
		b.many(1, claims)
		if times, refunds := b.below.seen(); !slices.Equal(times, []int64{1}) || len(refunds) != 0 {
			t.Errorf("after the reset: calls %d, given back %v, want a single call", times, refunds)
		}
	})
}

// A lease that is being taken while its key is reset is not spent either.
func TestResetDuringARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(10*time.Millisecond, nil, nil)
		var caller sync.WaitGroup
		caller.Go(func() { b.ask(claims) })
		time.Sleep(15 * time.Millisecond) // charged, on its way back
		if err := b.Reset(t.Context(), claims); err != nil {
			t.Fatal(err)
		}
		caller.Wait()
		times, refunds := b.below.seen()
		if len(times) != 2 || times[1] != 1 || len(refunds) != 0 || b.Stats().Leases != 0 {
			t.Errorf("calls %d, given back %v, want the refill, a single call and nothing", times, refunds)
		}
	})
}

// A limit with new numbers abandons the old lease, whose units go back.
func TestRulesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, old, new := leaseOpen(t, tenth), leaseOne(daily(1_000_000)), leaseOne(daily(50))
		b.many(40, old)
		if b.Stats().Leases != 1 {
			t.Fatal("nothing is leased")
		}
		b.below.seen()
		granted, _ := b.ask(new)
		if times, _ := b.below.seen(); !slices.Equal(times, []int64{1}) {
			t.Errorf("the new rule's request made the calls %d (granted: %v), want its own", times, granted)
		}
		time.Sleep(time.Second)
		passed := int64(40)
		if granted {
			passed++
		}
		if left := b.remaining(new); left != 50-passed {
			t.Errorf("%d left of 50 after %d requests", left, passed)
		}
	})
}

// Units count until their return has ended, also for the key's other leases.
func TestUnitsCountWhileReturning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leaseOpen(t, always(leaseTerms{Share: 0.001}))
		claims := leaseOne(weir.MustLimit("limit", weir.SlidingLog{Limit: 100_000, Window: time.Hour}))
		dear := slices.Clone(claims)
		dear[0].Cost = 2
		spent := int64(0)
		ask := func(claims []weir.Claim) {
			b.ask(claims)
			spent += claims[0].Cost
			if held := 100_000 - b.remaining(claims) - spent; held > 100 {
				t.Fatalf("%d units are held, the share is 100", held)
			}
			time.Sleep(100 * time.Microsecond)
		}
		for held := int64(0); spent < 300 || held < 70 || held > 80; { // of 100 taken
			ask(claims)
			held = 100_000 - b.remaining(claims) - spent
		}
		for refunds := 0; refunds == 0; { // until they set out, on a slow way
			b.below.set(50*time.Millisecond, nil, nil)
			time.Sleep(time.Millisecond)
			b.below.set(0, nil, nil)
			_, sent := b.below.seen()
			refunds = len(sent)
		}
		for range 20 {
			ask(claims)
		}
		for range 60 {
			ask(dear)
		}
	})
}

// On a Redis Cluster the claims of a decision have clocks of their own.
func TestEachClaimGoesBackAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leaseOpen(t, tenth)
		b.below.apart = true
		claims := leaseOne(daily(1_000_000))
		claims = append(claims, weir.Claim{Key: "a", Limit: claims[0].Limit, Cost: 1},
			weir.Claim{Key: "b", Limit: claims[0].Limit, Cost: 1})
		b.many(95, claims)
		b.below.seen()
		time.Sleep(defaultHold + 30*time.Millisecond)
		b.below.mu.Lock()
		taken := b.below.taken
		b.below.mu.Unlock()
		if len(taken) != 3 || taken[1] != taken[0]+1 || taken[2] != taken[0]+2 {
			t.Errorf("given back at %d, want each at its own", taken)
		}
	})
}

// A way back that fails may have succeeded: it is not taken again.
func TestUnitsAreReturnedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := leaseOpen(t, tenth), leaseOne(daily(1_000_000))
		b.many(95, claims)
		b.below.seen()
		b.below.set(0, nil, weir.ErrUnavailable)
		time.Sleep(time.Second)
		if _, refunds := b.below.seen(); len(refunds) != 1 || b.Stats().Lost != refunds[0].Cost {
			t.Errorf("given back: %v; %+v", refunds, b.Stats())
		}
	})
}

// A lease of a window ends with it, not at its holding time.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	for name, spec := range map[string]weir.Spec{
		"fixed window": weir.FixedWindow{Limit: 1000, Window: time.Second},
		"calendar":     weir.Calendar{Limit: 1000, Unit: weir.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, claims := leaseOpen(t, tenth), leaseOne(weir.MustLimit("limit", spec))
				_, d := b.ask(claims)
				ends := time.Now().Add(d[0].ResetAfter)
				time.Sleep(time.Until(ends) - 30*time.Millisecond)
				for range 20 { // with a lease
					b.ask(claims)
				}
				before := b.Stats().Taken
				time.Sleep(time.Until(ends))
				b.below.seen()
				b.ask(claims)
				if times, _ := b.below.seen(); len(times) == 0 || before == 0 {
					t.Errorf("the first request of a window was answered from the last one's lease (%d taken)", before)
				}
			})
		})
	}
}

// A leaseWorld is one schedule: nodes with leases, callers, a store whose clock is its own, and
// wires between them on which calls take time, and their ways there or back are lost. All
// of it is drawn from a seed and runs in the time of a synctest bubble.
type leaseWorld struct {
	limit, other *weir.Limit // other is nil, or that of a second claim
	terms        leaseTerms
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

func (w *leaseWorld) clock() weir.Instant {
	passed := time.Since(w.born).Microseconds()
	return weir.Instant(w.epoch + passed + passed*w.drift/1_000_000)
}

func (w *leaseWorld) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Errorf(format, args...))
}

// A simNode is a node and its wire.
type simNode struct {
	*leaseWorld
	leases *leaser
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
	n.leaseWorld.mu.Lock()
	n.passes = append(n.passes, pass{int64(at), cost})
	n.leaseWorld.mu.Unlock()
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

// newLeaseWorld draws a world.
func newLeaseWorld(seed uint64, b broken) *leaseWorld {
	chance := rand.New(rand.NewPCG(seed, 5))
	hold := []time.Duration{5, 10, 20, 100}[chance.IntN(4)] * time.Millisecond
	w := &leaseWorld{seed: seed, broken: b, born: time.Now(), drift: chance.Int64N(1001) - 500,
		// near the end of a minute, of a machine whose clock is hours off
		epoch: 1_790_000_040_000_000 - int64(chance.IntN(20))*hold.Microseconds() + 60_000_000*chance.Int64N(1000)}
	w.limit = weir.MustLimit("limit", drawLimit(chance, hold))
	if b.log {
		w.limit = weir.MustLimit("limit", weir.SlidingLog{Limit: 20 + chance.Int64N(200), Window: 10 * hold})
	}
	if chance.IntN(3) == 0 {
		w.other = weir.MustLimit("other", weir.TokenBucket{Capacity: 1000, Refill: 1000, Period: time.Second})
	}
	w.terms = leaseTerms{Share: []float64{0.1, 0.25, 0.5, 1}[chance.IntN(4)], Hold: hold}
	w.store = memstore.New(memstore.WithClock(w.clock))
	for range 1 + chance.IntN(4) {
		w.nodes = append(w.nodes, w.newNode(chance))
	}
	return w
}

func (w *leaseWorld) newNode(chance *rand.Rand) *simNode {
	n := &simNode{leaseWorld: w, chance: rand.New(rand.NewPCG(chance.Uint64(), 1)), most: w.bound().Held}
	n.latency = []time.Duration{1, w.terms.Hold / 20, w.terms.Hold / 3, 2 * w.terms.Hold}[chance.IntN(4)]
	n.loses = []int{0, 0, 3, 15}[chance.IntN(4)]
	terms := w.terms
	if w.broken.share {
		terms.Share = 1
	}
	n.leases = newLeaser(n, always(terms))
	return n
}

func (w *leaseWorld) bound() leaseBound {
	b := leaseBoundOf(w.limit, w.terms, len(w.nodes))
	if w.broken.hold {
		b.Hold /= 10
	}
	if w.broken.free {
		b.Nodes = 0
	}
	return b
}

// run plays the world to its end.
func (w *leaseWorld) run() {
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
func (w *leaseWorld) check() error {
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
func (w *leaseWorld) checkAccounts() {
	for _, n := range w.nodes {
		if n.held != 0 || n.taken != n.passed+n.back+n.lost {
			w.fault("of %d units taken %d passed, %d went back, %d were lost; %d are still held", n.taken, n.passed,
				n.back, n.lost, n.held)
		}
	}
}

// checkSpans holds what passed between any two passes to the bound.
func (w *leaseWorld) checkSpans() {
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
func (w *leaseWorld) checkWindows() {
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

// A worldTally is what worlds had in them, so that empty ones prove nothing.
type worldTally struct {
	leased, returned, lost, passed int64
}

// simulate runs a world and returns its first violation.
func simulate(t *testing.T, seed uint64, b broken, sum *worldTally) (err error) {
	synctest.Test(t, func(*testing.T) {
		w := newLeaseWorld(seed, b)
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
			var sum worldTally
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

// always says the same of all limits.
func always(t leaseTerms) func(*weir.Limit) leaseTerms {
	return func(*weir.Limit) leaseTerms { return t }
}

// A spy notes what the layer asks of the store below.
type spy struct {
	weir.Store
	mu      sync.Mutex
	times   []int64      // of Decide
	refunds []weir.Claim // in their order, and when they were taken
	taken   []weir.Instant
	latency time.Duration // there, and again back
	err     error         // what calls end with, undone
	lost    error         // what calls end with, done
	apart   bool          // the claims' clocks differ by their places
}

// travel is a way there, or back; it ends with the error of that way.
func (s *spy) travel(ctx context.Context, err *error) error {
	s.mu.Lock()
	latency := s.latency
	s.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *err
}

func (s *spy) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	s.mu.Lock()
	s.times = append(s.times, times)
	s.mu.Unlock()
	if err := s.travel(ctx, &s.err); err != nil {
		return 0, err
	}
	granted, err := s.Store.Decide(ctx, claims, times, decisions)
	for i := 1; i < len(decisions) && s.apart; i++ {
		decisions[i].At += weir.Instant(i)
	}
	return granted, errors.Join(err, s.travel(ctx, &s.lost))
}

func (s *spy) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	s.mu.Lock()
	for _, c := range claims {
		s.refunds, s.taken = append(s.refunds, c), append(s.taken, takenAt)
	}
	s.mu.Unlock()
	if err := s.travel(ctx, &s.err); err != nil {
		return err
	}
	return errors.Join(s.Store.Refund(ctx, claims, takenAt, decisions), s.travel(ctx, &s.lost))
}

func (s *spy) Reset(ctx context.Context, claims []weir.Claim) error {
	return errors.Join(s.travel(ctx, &s.err), s.Store.Reset(ctx, claims), s.travel(ctx, &s.lost))
}

// set changes what the wire is like.
func (s *spy) set(latency time.Duration, err, lost error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.err, s.lost = latency, err, lost
}

// seen returns the calls and refunds since the last time.
func (s *spy) seen() (times []int64, refunds []weir.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	times, refunds = s.times, s.refunds
	s.times, s.refunds, s.taken = nil, nil, nil
	return times, refunds
}

// A bench is a layer over a spied store.
type bench struct {
	*leaser
	t     *testing.T
	below *spy
}

func leaseOpen(t *testing.T, terms func(*weir.Limit) leaseTerms, options ...leaseOption) *bench {
	t.Helper()
	b := openIdle(t, terms, options...)
	t.Cleanup(func() { b.Close() })
	return b
}

// openIdle is open for a test that ends with all leases over: a bubble ends only when all goroutines have.
func openIdle(t *testing.T, terms func(*weir.Limit) leaseTerms, options ...leaseOption) *bench {
	t.Helper()
	b := &bench{t: t, below: &spy{Store: memstore.New()}}
	b.leaser = newLeaserWith(b.below, terms, options...)
	return b
}

func leaseOne(l *weir.Limit) []weir.Claim { return []weir.Claim{{Key: "hot", Limit: l, Cost: 1}} }

// ask is one request.
func (b *bench) ask(claims []weir.Claim) (granted bool, d []weir.Decision) {
	b.t.Helper()
	d = make([]weir.Decision, len(claims))
	n, err := b.Decide(context.Background(), claims, 1, d)
	if err != nil {
		b.t.Fatal(err)
	}
	return n == 1, d
}

// many are requests that all pass, one a millisecond.
func (b *bench) many(n int, claims []weir.Claim) {
	b.t.Helper()
	for range n {
		if granted, d := b.ask(claims); !granted {
			b.t.Fatalf("refused: %+v", d)
		}
		time.Sleep(time.Millisecond)
	}
}

// expire waits until the lease of a hot key is over and back. The key is still known then.
func (b *bench) expire() {
	b.t.Helper()
	for before := b.Stats().Returned; b.Stats().Returned == before; time.Sleep(time.Millisecond) {
		if b.Stats().Leases == 0 {
			b.t.Fatal("there is nothing left of the lease")
		}
	}
	b.below.seen()
}

// remaining is what the store has left of the first claim.
func (b *bench) remaining(claims []weir.Claim) int64 {
	b.t.Helper()
	d := make([]weir.Decision, len(claims))
	if _, err := b.below.Store.Decide(context.Background(), claims, 0, d); err != nil {
		b.t.Fatal(err)
	}
	return d[0].Remaining
}

// daily is a limit of n units a day, so that refills do not matter.
func daily(n int64) *weir.Limit {
	return weir.MustLimit("daily", weir.FixedWindow{Limit: n, Window: 24 * time.Hour})
}

var tenth = always(leaseTerms{Share: 0.1})
