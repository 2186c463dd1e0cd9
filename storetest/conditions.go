package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// conditions checks that a Charge and a Refund that depend on a lease are done once.
func conditions(t *testing.T, s Subject) {
	h := open(t, s)
	guard := weir.MustLimit("guard", weir.Concurrency{Limit: 1, TTL: time.Hour})
	for name, spec := range map[string]weir.Spec{
		"bucket": weir.PerHour(100), "rational": weir.GCRA(3, 70, time.Minute),
		"step":    weir.TokenBucket{Capacity: 100, Refill: 7, Period: time.Hour, Mode: weir.Step},
		"window":  weir.FixedWindow{Limit: 100, Window: time.Hour},
		"log":     weir.SlidingLog{Limit: 100, Window: time.Hour},
		"counter": weir.SlidingCounter{Limit: 100, Window: time.Hour, Slices: 10},
	} {
		c := &conditional{T: t, store: h.Store, limit: weir.MustLimit(name, spec), guard: guard}
		c.check()
	}
}

type conditional struct {
	*testing.T
	store        weir.Store
	limit, guard *weir.Limit
}

// units is a claim of the limit; its key shares a slot with the leases'.
func (c *conditional) units(n int64) weir.Claim {
	return weir.Claim{Key: "{conditional}" + c.limit.Name(), Limit: c.limit, Cost: n}
}

func (c *conditional) lease(id string, renew bool) weir.Claim {
	return weir.Claim{Key: "{conditional}" + c.limit.Name() + id, Limit: c.guard, Cost: 1, Lease: id, Renew: renew}
}

// wants fails unless the call returned that error and used units are charged.
func (c *conditional) wants(what string, err, want error, used int64) {
	c.Helper()
	var d [1]weir.Decision
	_, peek := c.store.Decide(context.Background(), []weir.Claim{c.units(1)}, 0, d[:])
	left := c.limit.Most() - used
	if !errors.Is(err, want) || want == nil && err != nil || peek != nil || d[0].Remaining != max(left, 0) {
		c.Errorf("%s of %s: %v, then %d left; want %v, %d left (%v)", what, c.limit.Name(), err, d[0].Remaining, want,
			left, peek)
	}
}

func (c *conditional) check() {
	c.Helper()
	ctx, most := context.Background(), c.limit.Most()
	var d [2]weir.Decision
	if granted, err := c.store.Decide(ctx, []weir.Claim{c.units(most), c.lease("a", false)}, 1, d[:]); granted != 1 ||
		err != nil {
		c.Fatalf("granted %d, %v", granted, err)
	}
	refund := []weir.Claim{c.units(most - 1), c.lease("a", true)}
	c.wants("the first refund", c.store.Refund(ctx, refund, d[0].At, nil), nil, 1)
	c.wants("the second refund", c.store.Refund(ctx, refund, d[0].At, nil), weir.ErrLeaseGone, 1)
	c.wants("a charge after it", c.store.Charge(ctx, refund, nil), weir.ErrLeaseGone, 1)
	if granted, err := c.store.Decide(ctx, []weir.Claim{c.lease("b", false)}, 1, nil); granted != 1 || err != nil {
		c.Fatalf("granted %d, %v", granted, err)
	}
	charge := []weir.Claim{c.units(1), c.lease("b", true), c.lease("c", false)}
	c.wants("the first charge", c.store.Charge(ctx, charge, nil), nil, 2)
	c.wants("the second charge", c.store.Charge(ctx, charge, nil), weir.ErrLeaseGone, 2)
	last := []weir.Claim{c.units(1), c.lease("c", true)}
	c.wants("the refund of a charge", c.store.Refund(ctx, last, d[0].At, nil), nil, 1)
	c.wants("its second", c.store.Refund(ctx, last, d[0].At, nil), weir.ErrLeaseGone, 1)
}
