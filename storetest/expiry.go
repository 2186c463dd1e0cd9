package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

const workers = 32

// shortLived are the kinds of state that expire, within two seconds.
var shortLived = []weir.Spec{
	weir.TokenBucket{Capacity: 10, Refill: 7, Period: time.Second},
	weir.TokenBucket{Capacity: 10, Refill: 5, Period: time.Second, Mode: weir.Step},
	weir.FixedWindow{Limit: 10, Window: 1500 * time.Millisecond},
	weir.FixedWindow{Limit: 10, Window: 1500 * time.Millisecond, Anchor: weir.Epoch},
	weir.SlidingLog{Limit: 10, Window: 1500 * time.Millisecond},
	weir.SlidingCounter{Limit: 10, Window: time.Second, Slices: 10},
	weir.Concurrency{Limit: 10, TTL: 1500 * time.Millisecond},
}

// expiry uses the store's own clock: real state is dropped by real time.
func expiry(t *testing.T, s Subject) {
	store := s(t, nil)
	closeAfter(t, store.Store)
	expires(t, store, rounds(expiring))
}

// expires takes from n keys of each kind, and checks them until they expire.
func expires(t TB, store Handle, keys int) {
	t.Helper()
	limits := make([]*weir.Limit, len(shortLived))
	for i, spec := range shortLived {
		limits[i] = weir.MustLimit(fmt.Sprint("expiring-", i), spec)
	}
	resets := make([][]int64, keys)
	inParallel(t, keys, func(n int) (err error) {
		resets[n], err = takeAndReset(store, expiringClaims(limits, n))
		return err
	})
	noneEarly(t, store, limits, resets)
	othersExpireToo(t, store)
	allGone(t, store, limits, resets)
}

// takeAndReset takes, and returns the instants at which each claim is in its initial state.
func takeAndReset(store weir.Store, claims []weir.Claim) (resets []int64, err error) {
	decisions := make([]weir.Decision, len(claims))
	granted, err := store.Decide(context.Background(), claims, 1, decisions)
	if err == nil && granted != 1 {
		err = fmt.Errorf("key %s was never used, and refused: %v", claims[0].Key, outcome{decisions: decisions})
	}
	for _, d := range decisions {
		resets = append(resets, int64(d.At)+d.ResetAfter.Microseconds())
	}
	return resets, err
}

// expiringClaims of one number share a slot of a Redis Cluster.
func expiringClaims(limits []*weir.Limit, n int) []weir.Claim {
	claims := make([]weir.Claim, len(limits))
	for i, limit := range limits {
		claims[i] = weir.Claim{Key: fmt.Sprintf("{%d}", n), Limit: limit, Cost: 1 + int64(n)%limit.Most(),
			Lease: leaseOf(limit, "lease")}
	}
	return claims
}

func inParallel(t TB, n int, do func(n int) error) {
	t.Helper()
	errs := make([]error, workers)
	var done sync.WaitGroup
	for worker := range workers {
		done.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += workers {
				errs[worker] = do(i)
			}
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v", err)
	}
}

// noneEarly peeks at each key once. Before its reset the key is there with the same reset; from then on it is in its
// initial state.
func noneEarly(t TB, store Handle, limits []*weir.Limit, resets [][]int64) {
	t.Helper()
	inParallel(t, len(resets), func(n int) error { return agrees(store, expiringClaims(limits, n), resets[n]) })
	if store.Keys == nil {
		return
	}
	live, everlasting := store.Keys()
	now, want := storeTime(t, store), 0
	for _, at := range slices.Concat(resets...) {
		if at > now {
			want++
		}
	}
	if live < want || everlasting > 0 {
		t.Fatalf("%d keys hold state and %d of them stay for ever; want at least %d, none for ever", live,
			everlasting, want)
	}
}

// agrees compares a peek at claims with the instants at which they reset.
func agrees(store weir.Store, claims []weir.Claim, resets []int64) error {
	decisions := make([]weir.Decision, len(claims))
	if _, err := store.Decide(context.Background(), claims, 0, decisions); err != nil {
		return err
	}
	for i, d := range decisions {
		left := max(0, resets[i]-int64(d.At))
		if d.ResetAfter.Microseconds() != left || left == 0 && d.Remaining != claims[i].Limit.Most() {
			return fmt.Errorf("%s of key %s at %d resets at %d, but says %+v", claims[i].Limit, claims[i].Key, d.At,
				resets[i], d)
		}
	}
	return nil
}

func storeTime(t TB, store weir.Store) int64 {
	t.Helper()
	decisions := make([]weir.Decision, 1)
	claim := weir.Claim{Key: "clock", Limit: weir.MustLimit("clock", weir.PerSecond(1))}
	if _, err := store.Decide(context.Background(), []weir.Claim{claim}, 0, decisions); err != nil {
		t.Fatalf("%v", err)
	}
	return int64(decisions[0].At)
}

// othersExpireToo: the other ways to write state do not make it everlasting either.
func othersExpireToo(t TB, store Handle) {
	t.Helper()
	if store.Keys == nil {
		return
	}
	ctx := context.Background()
	for i, spec := range shortLived {
		claim := weir.Claim{Key: "written", Limit: weir.MustLimit(fmt.Sprint("written-", i), spec), Cost: 3}
		claim.Lease = leaseOf(claim.Limit, "one")
		claims := []weir.Claim{claim}
		decisions := make([]weir.Decision, 1)
		err := store.Charge(ctx, claims, decisions)
		claims[0].Cost, claims[0].Lease = 1, leaseOf(claim.Limit, "two")
		err = errors.Join(err, store.Charge(ctx, claims, decisions), store.Refund(ctx, claims, decisions[0].At, nil))
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	if _, everlasting := store.Keys(); everlasting > 0 {
		t.Fatalf("%d keys stay for ever after a charge and a refund", everlasting)
	}
}

// allGone waits for the last reset: then nothing is left, and every key is in its initial state.
func allGone(t TB, store Handle, limits []*weir.Limit, resets [][]int64) {
	t.Helper()
	last := slices.Max(slices.Concat(resets...))
	for storeTime(t, store) <= last {
		time.Sleep(20 * time.Millisecond)
	}
	inParallel(t, min(500, len(resets)),
		func(n int) error { return agrees(store, expiringClaims(limits, n), resets[n]) })
	if store.Keys == nil {
		return
	}
	deadline := time.Now().Add(10 * time.Second) // the keys of othersExpireToo reset later
	for {
		live, _ := store.Keys()
		if live == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d keys are left 10 s after the last of them was in its initial state", live)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
