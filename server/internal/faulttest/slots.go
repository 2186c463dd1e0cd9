package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir"
)

const (
	manySlots = 10
	slotEvery = 16 // decisions of the load for each holder
)

// slots are units of a concurrency limit, for callers that hold one for a moment. Some leave before the answer. The
// time-to-live is longer than a test, so that a unit that nobody holds stays taken.
type slots struct {
	store weir.Store
	claim weir.Claim
}

func newSlots(store weir.Store, prefix string) *slots {
	limit := weir.MustLimit("slots", weir.Concurrency{Limit: manySlots, TTL: day})
	return &slots{store, weir.Claim{Key: prefix + "slots", Limit: limit, Cost: 1}}
}

// hold takes a unit and releases it. The caller leaves within two budgets.
func (s *slots) hold(budget time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(2*budget))
	defer cancel()
	claims := []weir.Claim{s.claim}
	claims[0].Lease = weir.NewLeaseID()
	if granted, err := s.store.Decide(ctx, claims, 1, nil); granted == 1 && err == nil {
		_ = s.store.Refund(ctx, claims, 0, nil) // the store repeats it
	}
}

// free waits until all units are free, after the last caller has gone.
func (s *slots) free(ctx context.Context, read weir.Store) error {
	left, err := int64(0), error(nil)
	for begun := time.Now(); left < manySlots && time.Since(begun) < await; time.Sleep(often) {
		var d [1]weir.Decision
		_, err = read.Decide(ctx, []weir.Claim{s.claim}, 0, d[:])
		left = d[0].Remaining
	}
	if left < manySlots {
		held := fmt.Errorf("%d of %d slots are held, and all callers have gone", manySlots-left, manySlots)
		return errors.Join(err, held)
	}
	return nil
}
