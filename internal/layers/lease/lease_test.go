package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
)

func TestLeaseIsEarnedByRate(t *testing.T) {
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
		// Without requests, all units go back and the layer's goroutine ends.
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
		decide := func(times int64, decisions []weir.Decision) func() error {
			return func() error {
				_, err := b.Decide(t.Context(), one(leased), times, decisions)
				return err
			}
		}
		for name, request := range map[string]func() error{
			"a limit that is not leased": func() error { b.ask(one(not)); return nil },
			"beside one that is":         func() error { b.ask(both); return nil },
			"a peek":                     decide(0, make([]weir.Decision, 1)),
			"several at once":            decide(2, make([]weir.Decision, 1)),
			"no decisions":               decide(1, nil),
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

// Wrong input is the store's error, also on a key with a lease.
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
func TestPartialGrant(t *testing.T) {
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

// Failed, returned and spent grants no longer count towards the node's share.
func TestReturnedShareIsUsableAgain(t *testing.T) {
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

// A key that cools down loses its lease, and may earn one again.
func TestCoolingKeyLosesItsLease(t *testing.T) {
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
func TestRecoveringLimitIsLeasedAgain(t *testing.T) {
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

// A lease for costs above 1 keeps to the share of the remainder, in units.
func TestShareIsOfUnits(t *testing.T) {
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
					claims := []weir.Claim{{Key: "all", Limit: global, Cost: 1},
						{Key: fmt.Sprint(i), Limit: user, Cost: 1}}
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
