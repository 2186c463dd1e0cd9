package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/memstore"
)

const budget = 50 * time.Millisecond

var (
	limit = weir.MustLimit("limit", weir.PerSecond(1_000_000))
	claim = weir.Claim{Key: "key", Limit: limit, Cost: 1}

	errDead = fmt.Errorf("%w: connection refused", weir.ErrUnavailable)
)

// A fault is what becomes of a call before it gets to the store: nil lets it through.
type fault func(ctx context.Context, write bool) error

func well(context.Context, bool) error { return nil }
func dead(context.Context, bool) error { return errDead }

func readOnly(_ context.Context, write bool) error {
	if write {
		return fmt.Errorf("%w: READONLY", weir.ErrUnavailable)
	}
	return nil
}

// frozen is as redisstore is then: the call ends with its timeout or its caller's.
func frozen(ctx context.Context, _ bool) error {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("%w: %w", weir.ErrUnavailable, ctx.Err())
}

func slow(context.Context, bool) error {
	time.Sleep(30 * time.Millisecond)
	return nil
}

func fails(err error) fault { return func(context.Context, bool) error { return err } }

// faulty is a store that can be made to fail.
type faulty struct {
	weir.Store
	fault     atomic.Pointer[fault]
	decisions atomic.Int64 // that got here
	probes    atomic.Int64
	probing   atomic.Int64
}

func newFaulty() *faulty {
	f := &faulty{Store: memstore.New()}
	f.be(well)
	return f
}

func (f *faulty) be(now fault) { f.fault.Store(&now) }

func (f *faulty) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	f.decisions.Add(1)
	if err := (*f.fault.Load())(ctx, times > 0); err != nil {
		return 0, err
	}
	return f.Store.Decide(ctx, claims, times, decisions)
}

func (f *faulty) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if claims[0].Limit.Name() == "weir.breaker" {
		f.probes.Add(1)
		if f.probing.Add(1) > 1 {
			return errors.New("two probes at once")
		}
		defer f.probing.Add(-1)
	}
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Charge(ctx, claims, decisions)
}

func (f *faulty) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, decisions []weir.Decision) error {
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Refund(ctx, claims, at, decisions)
}

func (f *faulty) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Reset(ctx, claims)
}

// batched is a faulty store that decides batches.
type batched struct{ *faulty }

func (f batched) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := (*f.fault.Load())(ctx, true)
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, err; err == nil {
			r.Granted, r.Err = f.Store.Decide(ctx, r.Claims, r.Times, r.Decisions)
		}
	}
}

func newBreaker(t testing.TB, next weir.Store, opts ...breaker.Option) (*breaker.Breaker, weir.Store) {
	t.Helper()
	b := breaker.NewWith(next, append([]breaker.Option{breaker.WithSlow(budget / 2)}, opts...)...)
	return b, b
}

func decide(store weir.Store) error {
	_, err := store.Decide(context.Background(), []weir.Claim{claim}, 1, nil)
	return err
}

func wantState(t *testing.T, b *breaker.Breaker, want breaker.State) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("the breaker is %v, want %v; %+v", got, want, b.Stats())
	}
}

// bubble runs a test by virtual time. A probe that does not end with its store fails it.
func bubble(t *testing.T, next func() weir.Store, test func(t *testing.T, b *breaker.Breaker, store weir.Store),
	opts ...breaker.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, store := newBreaker(t, next(), opts...)
		defer store.Close()
		test(t, b, store)
	})
}

// in is a bubble round a faulty store.
func in(t *testing.T, test func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store),
	opts ...breaker.Option) {
	t.Helper()
	f := newFaulty()
	bubble(t, func() weir.Store { return f },
		func(t *testing.T, b *breaker.Breaker, store weir.Store) { test(t, f, b, store) }, opts...)
}

// traffic sends 5,000 requests a second, each in its own goroutine, and counts those that waited and those that
// were refused.
func traffic(store weir.Store, d time.Duration) (waited, away int64) {
	var calls sync.WaitGroup
	var w, a atomic.Int64
	for range int64(d / (200 * time.Microsecond)) {
		calls.Go(func() {
			began := time.Now()
			err := decide(store)
			if time.Since(began) > 0 {
				w.Add(1)
			}
			if open := (*breaker.OpenError)(nil); errors.As(err, &open) {
				a.Add(1)
			}
		})
		time.Sleep(200 * time.Microsecond)
	}
	calls.Wait()
	return w.Load(), a.Load()
}
