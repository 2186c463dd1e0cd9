package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/lease"
	"github.com/weirproject/weir/memstore"
)

const second = time.Second

// always says the same of all limits.
func always(t lease.Terms) func(*weir.Limit) lease.Terms {
	return func(*weir.Limit) lease.Terms { return t }
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

// seen are the calls since the last time, and what was refunded.
func (s *spy) seen() (times []int64, refunds []weir.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	times, refunds = s.times, s.refunds
	s.times, s.refunds, s.taken = nil, nil, nil
	return times, refunds
}

// A bench is a layer over a spied store.
type bench struct {
	*lease.Store
	t     *testing.T
	below *spy
}

func open(t *testing.T, terms func(*weir.Limit) lease.Terms, options ...lease.Option) *bench {
	t.Helper()
	b := openIdle(t, terms, options...)
	t.Cleanup(func() { b.Close() })
	return b
}

// openIdle is open for a test that ends with all leases over: a bubble ends only when all
// goroutines have.
func openIdle(t *testing.T, terms func(*weir.Limit) lease.Terms, options ...lease.Option) *bench {
	t.Helper()
	b := &bench{t: t, below: &spy{Store: memstore.New()}}
	var err error
	if b.Store, err = lease.New(b.below, terms, options...); err != nil {
		t.Fatal(err)
	}
	return b
}

func one(l *weir.Limit) []weir.Claim { return []weir.Claim{{Key: "hot", Limit: l, Cost: 1}} }

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

// daily has so many units a day that only what is asked matters.
func daily(n int64) *weir.Limit {
	return weir.MustLimit("daily", weir.FixedWindow{Limit: n, Window: 24 * time.Hour})
}

var tenth = always(lease.Terms{Share: 0.1})

func TestAKeyEarnsItsLeaseByItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := openIdle(t, tenth), one(daily(1_000_000))
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
		// Asked by nobody, all goes back, and the layer's goroutine ends.
		time.Sleep(second)
		if left := b.remaining(claims); left != 1_000_000-1020 || b.Stats().Leases != 0 {
			t.Errorf("%d left in the store after 1020 requests, %d leases", left, b.Stats().Leases)
		}
	})
}

func TestOthersPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leased, not := daily(1_000_000), weir.MustLimit("not", weir.SlidingLog{Limit: 1_000_000, Window: time.Hour})
		b := open(t, func(l *weir.Limit) lease.Terms {
			return lease.Terms{Share: map[*weir.Limit]float64{leased: 0.1}[l]}
		})
		both := []weir.Claim{{Key: "hot", Limit: leased, Cost: 1}, {Key: "hot", Limit: not, Cost: 1}}
		for name, request := range map[string]func() error{
			"a limit that is not leased": func() error { b.ask(one(not)); return nil },
			"beside one that is":         func() error { b.ask(both); return nil },
			"a peek":                     func() error { _, err := b.Decide(t.Context(), one(leased), 0, make([]weir.Decision, 1)); return err },
			"several at once":            func() error { _, err := b.Decide(t.Context(), one(leased), 2, make([]weir.Decision, 1)); return err },
			"no decisions":               func() error { _, err := b.Decide(t.Context(), one(leased), 1, nil); return err },
			"a cost of 0": func() error {
				_, err := b.Decide(t.Context(), []weir.Claim{{Key: "hot", Limit: leased}}, 1, make([]weir.Decision, 1))
				return err
			},
			"a charge": func() error { return b.Charge(t.Context(), one(leased), nil) },
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

// What is wrong is the store's to say, also on a key with a lease.
func TestBadInputIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := open(t, tenth), daily(1_000_000)
		b.many(10, one(limit))
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
		if _, err := b.Decide(t.Context(), one(limit), 1, make([]weir.Decision, 2)); err == nil {
			t.Error("two decisions of one claim were taken")
		}
	})
}

// Of those who find the lease used up, one call serves all.
func TestCallersShareARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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

// A caller who goes away takes nobody with it.
func TestARefillIsNotOneCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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
		if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Millisecond {
			t.Errorf("the caller who went away got %v after %v", err, time.Since(began))
		}
		others.Wait()
	})
}

// What is not spent in its time goes back, and not more than that.
func TestWhatIsNotUsedGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(95, claims)
		used := b.Stats().Taken
		held := 1_000_000 - 95 - b.remaining(claims)
		if held <= 0 {
			t.Fatal("nothing is held")
		}
		time.Sleep(lease.DefaultHold - time.Millisecond)
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
		b, claims := open(t, tenth), one(daily(1_000_000))
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

// unclosed is a store that stays open, to look into.
type unclosed struct{ weir.Store }

func (*unclosed) Close() error { return nil }

// Units of a lease that was reset are not spent, and not credited to anybody.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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
		time.Sleep(second)
		if left := b.remaining(claims); left != 1_000_000-1 {
			t.Errorf("%d left after a reset and one request", left)
		}
	})
}

// What happens to a key while it is being reset is over with it too.
func TestDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(45, claims)
		b.below.seen()
		reset := make(chan error)
		b.below.set(lease.DefaultHold, nil, nil)
		go func() { reset <- b.Reset(t.Context(), claims) }()
		synctest.Wait()
		b.below.set(0, nil, nil)
		time.Sleep(lease.DefaultHold - 20*time.Millisecond)
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
		b, claims := open(t, tenth), one(daily(1_000_000))
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

// Numbers that change leave the old lease: what it holds goes back.
func TestRulesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, old, new := open(t, tenth), one(daily(1_000_000)), one(daily(50))
		b.many(40, old)
		if b.Stats().Leases != 1 {
			t.Fatal("nothing is leased")
		}
		b.below.seen()
		granted, _ := b.ask(new)
		if times, _ := b.below.seen(); !slices.Equal(times, []int64{1}) {
			t.Errorf("the new rule's request made the calls %d (granted: %v), want its own", times, granted)
		}
		time.Sleep(second)
		passed := int64(40)
		if granted {
			passed++
		}
		if left := b.remaining(new); left != 50-passed {
			t.Errorf("%d left of 50 after %d requests", left, passed)
		}
	})
}

// The last units are asked for one by one, and every refusal is the store's.
func TestNearExhaustion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1000))
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
func TestAPartialGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, always(lease.Terms{Share: 1})), one(daily(1000))
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

// Callers get the store's error; what is held is spent meanwhile, until its time is over.
func TestAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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
		if passed == 0 || time.Since(began) > lease.DefaultHold || !errors.Is(err, away) {
			t.Errorf("%d passed in %v, then %v", passed, time.Since(began), err)
		}
		b.below.set(0, nil, nil)
		b.many(100, claims)
	})
}

// A lease whose way back was lost is not spent: who knows whether it was charged.
func TestAReplyThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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

// Neither what failed, nor what went back, nor what was used up takes of the node's share.
func TestTheShareIsFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.MustLimit("limit", weir.TokenBucket{Capacity: 1000, Refill: 1000, Period: second})
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
				time.Sleep(second) // until the bucket is full
				for asked := int64(1); asked < 10 || b.remaining(claims) != 1000-asked+1; asked++ {
					b.ask(claims)
				}
				time.Sleep(second)
			},
		} {
			b, claims := open(t, tenth), one(limit)
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

// What is on its way back counts until it is there, also for the key's other leases.
func TestWhatIsOnItsWayBackCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, always(lease.Terms{Share: 0.001}))
		claims := one(weir.MustLimit("limit", weir.SlidingLog{Limit: 100_000, Window: time.Hour}))
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

// A key that cools down loses its lease, and may earn one again.
func TestAKeyThatCools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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
func TestALimitThatRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.MustLimit("limit", weir.FixedWindow{Limit: 500, Window: second})
		b, claims := open(t, tenth), one(limit)
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

// A lease of costs above 1 keeps to the share of what remains, in units.
func TestTheShareIsOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(3000))
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

// On a Redis Cluster the claims of a decision have clocks of their own.
func TestEachClaimGoesBackAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, tenth)
		b.below.apart = true
		claims := one(daily(1_000_000))
		claims = append(claims, weir.Claim{Key: "a", Limit: claims[0].Limit, Cost: 1}, weir.Claim{Key: "b", Limit: claims[0].Limit, Cost: 1})
		b.many(95, claims)
		b.below.seen()
		time.Sleep(lease.DefaultHold + 30*time.Millisecond)
		b.below.mu.Lock()
		taken := b.below.taken
		b.below.mu.Unlock()
		if len(taken) != 3 || taken[1] != taken[0]+1 || taken[2] != taken[0]+2 {
			t.Errorf("given back at %d, want each at its own", taken)
		}
	})
}

// A way back that fails may have succeeded: it is not taken again.
func TestWhatGoesBackGoesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(95, claims)
		b.below.seen()
		b.below.set(0, nil, weir.ErrUnavailable)
		time.Sleep(second)
		if _, refunds := b.below.seen(); len(refunds) != 1 || b.Stats().Lost != refunds[0].Cost {
			t.Errorf("given back: %v; %+v", refunds, b.Stats())
		}
	})
}

// While the store is away one lease a sweep is tried, and the others wait for its return.
func TestAStoreThatIsAwayDoesNotGetEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := open(t, tenth), daily(1_000_000)
		for i := range 20 {
			claims := []weir.Claim{{Key: fmt.Sprint(i), Limit: limit, Cost: 1}}
			for range 6 {
				b.ask(claims)
			}
		}
		leased := b.Stats()
		b.below.set(0, weir.ErrUnavailable, nil)
		time.Sleep(lease.DefaultHold + 60*time.Millisecond)
		b.below.set(0, nil, nil)
		time.Sleep(second)
		stats := b.Stats()
		if stats.Leases != 0 || stats.Lost == 0 || stats.Lost > leased.Taken/4 || stats.Returned < leased.Taken/4 {
			t.Errorf("%+v, then %+v", leased, stats)
		}
	})
}

// A store slower than leases are held gets single calls.
func TestALeaseThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
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

// A lease of a window ends with it, not at its holding time.
func TestALeaseEndsWithItsWindow(t *testing.T) {
	for name, spec := range map[string]weir.Spec{
		"fixed window": weir.FixedWindow{Limit: 1000, Window: second},
		"calendar":     weir.Calendar{Limit: 1000, Unit: weir.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, claims := open(t, tenth), one(weir.MustLimit("limit", spec))
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

// All of a node's leases of one state keep to its share together.
func TestLeasesOfOneStateShareTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, tenth)
		global := weir.MustLimit("global", weir.FixedWindow{Limit: 1000, Window: time.Hour})
		user := weir.MustLimit("user", weir.FixedWindow{Limit: 1_000_000, Window: time.Hour})
		asked := int64(0)
		for round := range 6 {
			for i := range 8 {
				for range 6 {
					claims := []weir.Claim{{Key: "all", Limit: global, Cost: 1}, {Key: fmt.Sprint(i), Limit: user, Cost: 1}}
					granted, _ := b.ask(claims)
					if asked++; !granted {
						t.Fatalf("refused in round %d", round)
					}
					held := 1000 - b.remaining(claims) - asked
					if held > 100 {
						t.Fatalf("%d of 1000 are held, the share is 100", held)
					}
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if b.Stats().Leases != 8 {
			t.Errorf("%d of 8 are leased", b.Stats().Leases)
		}
	})
}

func TestLeasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := open(t, tenth, lease.WithMaxLeases(3)), daily(1_000_000)
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
				if d := got[0].Delay - want[0].Delay; d > 0 && d <= time.Microsecond { // a rounded delay is never too short
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

// Those who borrow from a lease leave as evenly as if each had asked.
func TestDelaysGoOnWithTime(t *testing.T) {
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

// What was spent from a lease can be refunded by who spent it.
func TestARequestFromALeaseIsRefunded(t *testing.T) {
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
		leased, not := daily(1_000_000), weir.MustLimit("not", weir.TokenBucket{Capacity: 1000, Refill: 1, Period: second})
		quick := weir.MustLimit("quick", weir.TokenBucket{Capacity: 1000, Refill: 1, Period: second})
		s, err := lease.New(memstore.New(), func(l *weir.Limit) lease.Terms {
			return lease.Terms{Share: map[*weir.Limit]float64{leased: 0.1, quick: 0.1}[l]}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		short, plain := limiter(t, s, leased), limiter(t, struct{ weir.Store }{s}, leased)
		for range 100 {
			a, err := short.Allow(t.Context(), "hot")
			b, err2 := plain.Allow(t.Context(), "hot")
			if err != nil || err2 != nil || a.Remaining != b.Remaining+1 || a.At != b.At && s.Stats().Leases > 0 && a.At > b.At {
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
		if _, _, _, _, _, ok := s.Shortcut("hot", nil, 1); ok {
			t.Error("no limit, and an answer")
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

// What the callers keep their keys in is theirs again.
func TestKeysAreTheCallers(t *testing.T) {
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

func TestASpendAllocatesNothing(t *testing.T) {
	s, err := lease.New(memstore.New(), always(lease.Terms{Share: 0.5, Hold: 10 * second}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	claims, decisions := one(daily(weir.MaxUnits)), make([]weir.Decision, 1)
	both := append(one(daily(weir.MaxUnits)), weir.Claim{Key: "all", Limit: weir.MustLimit("g", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Hour}), Cost: 1})
	two := make([]weir.Decision, 2)
	request := func() {
		s.Decide(context.Background(), claims, 1, decisions)
		s.Shortcut("hot", claims[0].Limit, 1)
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
	s, err := lease.New(memstore.New(), always(lease.Terms{Share: 0.2, Hold: 2 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	const each, callers = 3000, 8
	limit := daily(1_000_000)
	limiters := []*weir.Limiter{limiter(t, s, limit), limiter(t, struct{ weir.Store }{s}, limit)}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range each {
				if a, err := limiters[(i+n)%2].Allow(context.Background(), fmt.Sprint("key", n/100%3)); err != nil || !a.Allowed {
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
	for deadline := time.Now().Add(20 * second); !settled(); {
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

func TestNewRefuses(t *testing.T) {
	for name, make := range map[string]func() (*lease.Store, error){
		"next":       func() (*lease.Store, error) { return lease.New(nil, tenth) },
		"terms":      func() (*lease.Store, error) { return lease.New(memstore.New(), nil) },
		"max leases": func() (*lease.Store, error) { return lease.New(memstore.New(), tenth, lease.WithMaxLeases(0)) },
		"timeout":    func() (*lease.Store, error) { return lease.New(memstore.New(), tenth, lease.WithTimeout(0)) },
	} {
		var input *weir.InputError
		if _, err := make(); !errors.As(err, &input) || input.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
