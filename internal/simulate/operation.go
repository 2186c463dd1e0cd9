package simulate

import (
	"context"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// An operation is a call of a weir.Store as data, so that it can travel.
type operation struct {
	kind      kind
	claims    []weir.Claim
	times     int64
	takenAt   weir.Instant
	decisions []weir.Decision
	requests  []weir.Request

	granted int64
	err     error
}

type kind uint8

const (
	decide kind = iota
	decideBatch
	charge
	refund
	reset
)

// apply makes the call. The store never waits.
func (o *operation) apply(store *memstore.Store) {
	ctx := context.Background()
	switch o.kind {
	case decide:
		o.granted, o.err = store.Decide(ctx, o.claims, o.times, o.decisions)
	case decideBatch:
		store.DecideBatch(ctx, o.requests)
	case charge:
		o.err = store.Charge(ctx, o.claims, o.decisions)
	case refund:
		o.err = store.Refund(ctx, o.claims, o.takenAt, o.decisions)
	case reset:
		o.err = store.Reset(ctx, o.claims)
	}
}

// fail answers a call that was not executed, or whose answer was lost.
func (o *operation) fail(err error) {
	o.granted, o.err = 0, err
	for i := range o.requests {
		o.requests[i].Granted, o.requests[i].Err = 0, err
	}
}

// copied is the operation in memory of its own, without room for answers: its caller no longer waits for them.
func (o *operation) copied() *operation {
	c := &operation{kind: o.kind, claims: copyClaims(o.claims), times: o.times, takenAt: o.takenAt}
	for _, r := range o.requests {
		c.requests = append(c.requests, weir.Request{Claims: copyClaims(r.Claims), Times: r.Times, Follows: r.Follows})
	}
	return c
}

func copyClaims(claims []weir.Claim) []weir.Claim {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].Key = strings.Clone(claims[i].Key)
	}
	return claims
}
