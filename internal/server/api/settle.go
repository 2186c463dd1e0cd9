package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// reserve decides, and takes in the same decision a lease on a key that nobody else has:
// as it can be released once, the reservation can be settled once, from any node. While the
// store does not answer the rules' policy decides, and there is no reservation.
func (a *api) reserve(ctx context.Context, c *call) error {
	if err := c.complete(); err != nil {
		return err
	}
	ask := c.last()
	if ask.ttl == "" {
		ask.ttl = defaultTTL
	}
	guard, err := a.guard(weir.NewLeaseID(), ask.ttl)
	if err != nil {
		return err
	}
	if err := a.ask(ctx, c, ask, []weir.Claim{guard}); err != nil {
		return err
	}
	c.answer(&extras{reservation: ask.reservation(c.verdict.Receipt(), &guard)})
	return nil
}

// reservation is the receipt as a token; nil where there is no guard.
func (a *ask) reservation(receipt gate.Receipt, guard *weir.Claim) *token {
	t := &token{Version: 1, TTL: a.ttl, lifetime: guard.Limit.Period()}
	for i := range receipt {
		c := &receipt[i]
		if c.Claim.Same(guard) {
			t.Held, t.Taken = guard.Key, int64(c.Taken)
			continue
		}
		c.Fixed = c.Fixed || c.Rule == nil && a.isFixed(&c.Claim)
		t.with(c)
	}
	if t.Held == "" {
		return nil
	}
	return t
}

func (a *ask) isFixed(claim *weir.Claim) bool {
	for i := range a.claims {
		if own := &a.claims[i]; own.fixed && own.Same(claim) {
			return true
		}
	}
	return false
}

var errSettled = &problem{status: http.StatusConflict, detail: "the reservation is settled already, or its time is over"}

// settle may be repeated until it is answered: see gate.SettleOnce.
func (a *api) settle(ctx context.Context, c *call) error {
	if c.actual < 0 {
		return invalid("actual", "missing", "0 to 4503599627370496 (2^52) units; 0 cancels", -1)
	}
	t, receipt, err := a.open(c.token)
	if err != nil {
		return err
	}
	guard, err := a.guard(t.Held, t.TTL)
	if err != nil || t.Held == "" {
		return invalid("token", "one of a lease", "a token as reserve answered it", -1)
	}
	// A caller that leaves may not come again.
	ctx = context.WithoutCancel(ctx)
	held := gate.Charged{Claim: guard, Taken: weir.Instant(t.Taken)}
	err = a.gate.SettleOnce(ctx, held, receipt, c.actual)
	switch {
	case errors.Is(err, weir.ErrLeaseGone):
		return errSettled
	case errors.Is(err, weir.ErrUnavailable):
		return errUnsettled
	case err != nil:
		return err
	}
	c.out = appendNumber(c.out, `{"settled":true,"actual":`, c.actual)
	c.out = append(c.out, "}\n"...)
	return nil
}

var errUnsettled = &problem{status: http.StatusServiceUnavailable, detail: "the store did not answer while the reservation was settled: settle it again with the same token and actual; what was done is not done twice"}

var errGone = &problem{status: http.StatusConflict, detail: "the lease is gone: it was released, or its time is over; stop the work that it was held for"}

func (a *api) renew(ctx context.Context, c *call) error {
	receipt, err := a.held(c)
	if err != nil {
		return err
	}
	if err := a.gate.Renew(ctx, receipt); err != nil {
		return gone(err)
	}
	c.out = appendNumber(c.out, `{"renewed":true,"ttl_us":`, leases(receipt).lifetime)
	c.out = append(c.out, "}\n"...)
	return nil
}

func (a *api) release(ctx context.Context, c *call) error {
	receipt, err := a.held(c)
	if err != nil {
		return err
	}
	if err := a.gate.Release(ctx, receipt); err != nil {
		return gone(err)
	}
	c.out = append(c.out, "{\"released\":true}\n"...)
	return nil
}

func gone(err error) error {
	if errors.Is(err, weir.ErrLeaseGone) {
		return errGone
	}
	return err
}

// held are the leases of the call's token.
func (a *api) held(c *call) (gate.Receipt, error) {
	t, receipt, err := a.open(c.token)
	if err != nil {
		return nil, err
	}
	if t.Held != "" || len(receipt) == 0 {
		return nil, invalid("token", "one of a reservation", "a token of a lease, as acquire or decide answered it", -1)
	}
	return receipt, nil
}
