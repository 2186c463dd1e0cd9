package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/server/internal/web"
)

// reserve decides, and in the same decision acquires a lease on a separate key: since it can be
// released only once, the reservation can be settled only once, from any node. If the store does not
// answer, the failure policy of the rules decides, and there is no reservation.
func (a *api) reserve(ctx context.Context, c *call) error {
	if err := c.complete(); err != nil {
		return err
	}
	ask := c.last()
	if ask.id != "" && len(ask.claims) == maxReserved {
		allowed := fmt.Sprintf("at most %d beside an id", maxReserved-1)
		return web.Invalid("claims", strconv.Itoa(maxReserved), allowed, 0)
	}
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
	c.answer(&extras{ask: ask, reservation: ask.reservation(c.verdict.Receipt(), &guard)})
	return nil
}

// reservation is the receipt as a token; nil without a reservation.
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

// The problems of tokens.
var (
	errSettled = web.Refuse(http.StatusConflict, "the reservation is settled already, or its time is over")
	errGone    = web.Refuse(http.StatusConflict, "the lease is gone: it was released, or its time is over; "+
		"stop the work that it was held for")
	errUnsettled = web.Refuse(http.StatusServiceUnavailable, "the store did not answer while the reservation was "+
		"settled: settle it again with the same token and actual; what was done is not done twice")
)

// settle settles a reservation. It may be repeated until it is answered: see gate.SettleOnce.
func (a *api) settle(ctx context.Context, c *call) error {
	headers := c.last().attributes.headers
	switch {
	case c.actual < 0 && c.response < 0 && c.answered == nil:
		return web.Invalid("actual", "missing", "0 to 4503599627370496 (2^52) units; 0 cancels; or, for rules with "+
			"count_if, the status of the response, or, for rules that read its body, its json", 0)
	case c.response <= 0 && len(headers) > 0:
		return web.Invalid("headers", "given", "headers of a response that has a status", 0)
	}
	t, receipt, err := a.open(c.token)
	if err != nil {
		return err
	}
	guard, err := a.guard(t.Held, t.TTL)
	if err != nil || t.Held == "" {
		return web.Invalid("token", "one of a lease", "a token as reserve answered it", 0)
	}
	if c.answered != nil {
		if err := c.price(receipt); err != nil {
			return err
		}
	}
	// A caller that disconnects may not repeat it.
	ctx = context.WithoutCancel(ctx)
	held := gate.Charged{Claim: guard, Taken: weir.Instant(t.Taken)}
	if c.response < 0 {
		err = a.gate.SettleOnce(ctx, held, receipt, c.actual)
	} else {
		response := gate.Response{Status: int(c.response), Header: canonical(headers)}
		err = a.gate.SettleResponse(ctx, held, receipt, c.actual, response)
	}
	switch {
	case errors.Is(err, weir.ErrLeaseGone):
		return errSettled
	case errors.Is(err, weir.ErrUnavailable):
		return errUnsettled
	case err != nil:
		return err
	}
	c.out = append(c.out, `{"settled":true`...)
	if c.actual >= 0 {
		c.out = appendNumber(c.out, `,"actual":`, c.actual)
	}
	if c.response >= 0 {
		c.out = appendNumber(c.out, `,"status":`, c.response)
	}
	c.out = append(c.out, "}\n"...)
	return nil
}

// canonical are headers as rules read them.
func canonical(headers []pair) map[string][]string {
	all := make(map[string][]string, len(headers))
	for _, h := range headers {
		all[textproto.CanonicalMIMEHeaderKey(h.name)] = []string{h.value}
	}
	return all
}

// renew renews the leases of a token. A reservation has leases too, if its request holds slots; the response may last
// longer than their time-to-live.
func (a *api) renew(ctx context.Context, c *call) error {
	_, receipt, err := a.open(c.token)
	if err != nil {
		return err
	}
	if len(leases(receipt).Charged) == 0 {
		return web.Invalid("token", "one without a lease", "a token as acquire or decide answered it, or of a "+
			"reservation that holds units of a concurrency limit", 0)
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

// held are the leases of the token.
func (a *api) held(c *call) (gate.Receipt, error) {
	t, receipt, err := a.open(c.token)
	if err != nil {
		return nil, err
	}
	if t.Held != "" || len(receipt) == 0 {
		return nil, web.Invalid("token", "one of a reservation", "a token of a lease, as acquire or decide answered it",
			0)
	}
	return receipt, nil
}
