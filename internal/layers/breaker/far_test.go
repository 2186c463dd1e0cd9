package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/memstore"
)

// A far store answers each call after the same time, and ends it by its timeout.
type far struct {
	weir.Store
	away, timeout time.Duration
}

func (f far) Timeout() time.Duration { return f.timeout }

func (f far) travel(ctx context.Context) error {
	select {
	case <-time.After(min(f.away, f.timeout)):
	case <-ctx.Done():
	}
	if ctx.Err() != nil || f.away > f.timeout {
		return weir.ErrUnavailable
	}
	return nil
}

func (f far) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := f.travel(ctx); err != nil {
		return 0, err
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f far) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if err := f.travel(ctx); err != nil {
		return err
	}
	return f.Store.Charge(ctx, claims, d)
}

// TestHealthyFarStoreStaysClosed: a store that answers within its own timeout is healthy at any distance.
func TestHealthyFarStoreStaysClosed(t *testing.T) {
	for _, next := range []far{
		{away: 30 * time.Millisecond, timeout: 50 * time.Millisecond},
		{away: 30 * time.Millisecond, timeout: time.Second},
		{away: 300 * time.Millisecond, timeout: 500 * time.Millisecond},
	} {
		next.Store = memstore.New()
		synctest.Test(t, func(t *testing.T) {
			store := breaker.New(next, breaker.Config{Slow: next.timeout / 4 * 3})
			defer store.Close()
			for i := range 2000 {
				if err := decide(store); err != nil {
					t.Fatalf("%v away, timeout %v, call %d: %v", next.away, next.timeout, i, err)
				}
			}
			if s := store.Stats(); s.Opened != 0 || store.State() != breaker.Closed {
				t.Errorf("%v away, timeout %v: %v, %+v", next.away, next.timeout, store.State(), s)
			}
		})
	}
}
