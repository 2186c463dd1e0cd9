package layers

import (
	"context"
	"fmt"
	"time"

	"github.com/weirproject/weir"
)

var background = context.Background()

const epoch = 1_790_000_000_000_000

// configured applies the options of a test to a zero configuration.
func configured[C any, O ~func(*C)](options []O) (config C) {
	for _, option := range options {
		option(&config)
	}
	return config
}

// counted are the kinds of limits without leases, of n units.
func counted(n int64) []weir.Spec {
	return []weir.Spec{
		weir.TokenBucket{Capacity: n, Refill: n, Period: time.Hour},
		weir.TokenBucket{Capacity: n, Refill: 3, Period: time.Hour, Mode: weir.Step},
		weir.FixedWindow{Limit: n, Window: time.Hour},
		weir.FixedWindow{Limit: n, Window: time.Hour, Anchor: weir.Epoch},
		weir.Calendar{Limit: n, Unit: weir.Day},
		weir.SlidingLog{Limit: n, Window: time.Hour},
		weir.SlidingCounter{Limit: n, Window: time.Hour, Slices: 6},
	}
}

var errAway = fmt.Errorf("%w: gone", weir.ErrUnavailable)

// failing is a store with a programmable error.
type failing struct {
	weir.Store
	err error
}

func (f *failing) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f *failing) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Charge(ctx, claims, d)
}

func (f *failing) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Refund(ctx, claims, at, d)
}

func (f *failing) Reset(ctx context.Context, claims []weir.Claim) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Reset(ctx, claims)
}

// granting grants all, at no cost.
type granting struct{ weir.Store }

func (granting) Decide(_ context.Context, _ []weir.Claim, times int64, _ []weir.Decision) (int64, error) {
	return times, nil
}

// unclosed is a store that stays open, to look into.
type unclosed struct{ weir.Store }

func (*unclosed) Close() error { return nil }
