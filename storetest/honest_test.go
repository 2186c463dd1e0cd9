package storetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/storetest"
)

func ExampleHonest() {
	subject := func(_ testing.TB, clock func() weir.Instant) storetest.Handle {
		return storetest.Handle{Store: memstore.New(memstore.WithClock(clock))}
	}
	TestLogin := func(t *testing.T) { storetest.Honest(t, subject, weir.SlidingLog{Limit: 5, Window: time.Minute}) }
	_ = TestLogin
	// Output:
}

// liar is a store that promises a grant too early.
type liar struct{ weir.Store }

func (l liar) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := l.Store.Decide(ctx, claims, times, d)
	for i := range d {
		d[i].RetryAfter -= d[i].RetryAfter / 100_000
	}
	return granted, err
}

// One microsecond of ten is not forgiven.
func TestHonestFindsALie(t *testing.T) {
	for name, lies := range map[string]bool{"an honest store": false, "a liar": true} {
		found := storetest.FindsALie(func(clock func() weir.Instant) weir.Store {
			store := weir.Store(memstore.New(memstore.WithClock(clock)))
			if lies {
				store = liar{store}
			}
			return store
		}, weir.PerSecond(10))
		if found != lies {
			t.Errorf("%s: a lie is found: %v", name, found)
		}
	}
}

func TestHonestInMemory(t *testing.T) {
	storetest.Honest(t, func(_ testing.TB, clock func() weir.Instant) storetest.Handle {
		return storetest.Handle{Store: memstore.New(memstore.WithClock(clock))}
	}, weir.PerSecond(10), weir.GCRA(7, 300, time.Second), weir.Borrowing(5, 5, time.Second, 3),
		weir.FixedWindow{Limit: 50, Window: time.Minute}, weir.SlidingLog{Limit: 5, Window: time.Minute},
		weir.SlidingCounter{Limit: 50, Window: time.Minute}, weir.LeakyQueue(10, time.Second, 50))
}
