package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/fallback"
	"github.com/weirproject/weir/memstore"
)

// away returns two limiters, as in the example, over a store that can become unavailable.
func away(t *testing.T, nodes int, spec weir.Spec) (shared *faulty, first, second *weir.Limiter) {
	t.Helper()
	shared = &faulty{Store: memstore.New()}
	local := newLocal(t, nodes)
	var err error
	if first, err = weir.New(local.Warm(shared), "limit", spec); err != nil {
		t.Fatal(err)
	}
	if second, err = weir.New(local, "limit", spec); err != nil {
		t.Fatal(err)
	}
	return shared, first, second
}

// TestUnavailableStoreIsNotLeaseGone: while the store of a lease is unavailable, the state of the lease is unknown.
func TestUnavailableStoreIsNotLeaseGone(t *testing.T) {
	shared, limiter, local := away(t, 2, weir.Concurrency{Limit: 1, TTL: time.Hour})
	lease, err := limiter.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	shared.err = errAway
	if err := lease.Renew(t.Context()); !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("a renewal: %v, want unavailable", err)
	}
	if _, err := local.Acquire(t.Context(), "job"); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a second holder in the process that has the first: %v, want refused", err)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("a release: %v, want unavailable", err)
	}
	shared.err = nil
	if err := errors.Join(lease.Renew(t.Context()), lease.Release(t.Context())); err != nil {
		t.Errorf("when the store is back: %v", err)
	}
}

// TestReservationIsSettledWhereItWasTaken, across an outage that begins or ends in between.
func TestReservationIsSettledWhereItWasTaken(t *testing.T) {
	shared, limiter, local := away(t, 2, weir.PerHour(10))
	there, err := limiter.Reserve(t.Context(), "key", 4)
	if err != nil {
		t.Fatal(err)
	}
	shared.err = errAway
	here, err := local.Reserve(t.Context(), "key", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Settle(t.Context(), 1); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("settled without the store: %v", err)
	}
	shared.err = nil
	if err := errors.Join(there.Settle(t.Context(), 1), here.Settle(t.Context(), 0)); err != nil {
		t.Error(err)
	}
	if answer, err := limiter.Peek(t.Context(), "key"); err != nil || answer.Remaining != 9 {
		t.Errorf("%d left (%v), want 9", answer.Remaining, err)
	}
	if answer, err := local.Peek(t.Context(), "key"); err != nil || answer.Remaining != 4 {
		t.Errorf("%d left here (%v), want 4 of the share of 5", answer.Remaining, err)
	}
}

// TestWarmCountsOnlySelectedLimits: other limits cost no memory here.
func TestWarmCountsOnlySelectedLimits(t *testing.T) {
	memory := memstore.New()
	local, err := fallback.NewLocal(memory, fallback.Config{Nodes: 2,
		Only: func(l *weir.Limit) bool { return l.Name() == "local" }})
	if err != nil {
		t.Fatal(err)
	}
	store := local.Warm(memstore.New())
	d := make([]weir.Decision, 2)
	for i := range 1000 {
		both := claims("other", "local")
		both[0].Key = fmt.Sprint("key-", i)
		if _, err := store.Decide(t.Context(), both, 1, d); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := store.Refund(t.Context(), slices.Clone(both[:1]), d[0].At, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keys := memory.Stats().Keys; keys != 1 {
		t.Errorf("%d keys are counted here, want 1", keys)
	}
	if _, err := local.Decide(t.Context(), claims("local"), 0, d[:1]); err != nil || d[0].Remaining != 0 {
		t.Errorf("%d left (%v), want 0: it was used with the store", d[0].Remaining, err)
	}
}

func ExampleNewLocal() {
	shared := &faulty{Store: memstore.New()} // redisstore.Open, and layers before it
	local, err := fallback.NewLocal(memstore.New(memstore.WithMaxKeys(100_000)), fallback.Config{Nodes: 4})
	if err != nil {
		panic(err)
	}
	defer local.Close()
	login := weir.PerMinute(8)
	limiter, err := weir.New(local.Warm(shared), "login", login)
	if err != nil {
		panic(err)
	}
	standIn, err := weir.New(local, "login", login)
	if err != nil {
		panic(err)
	}
	allow := func(ctx context.Context, key string) (weir.Answer, error) {
		answer, err := limiter.Allow(ctx, key)
		if errors.Is(err, weir.ErrUnavailable) {
			return standIn.Allow(ctx, key)
		}
		return answer, err
	}
	shared.err = errAway
	for range 3 {
		answer, err := allow(context.Background(), "user:42")
		fmt.Println(answer.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}
