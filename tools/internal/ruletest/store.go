package ruletest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// The words of a step that breaks or mends the store.
const (
	storeDown = "down"
	storeUp   = "up"
)

// open makes the gate of a run. If the test breaks the store, there is also a local one, which counts the other's
// grants and decides by this node's share of a limit, as before a Redis.
func (r *run) open(t *Test) error {
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(r.now.Load()) })
	shared := &breakable{Store: memstore.New(clock)}
	r.down = &shared.down
	store, local := shared.Store, shared.Store
	if slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Store != "" }) {
		whole := ofBans(r.set)
		stack, err := layers.New(shared, layers.Options{Local: memstore.New(clock), Nodes: max(1, r.set.Server().Nodes),
			Without: []string{"breaker", "coalesce", "recall"},
			Terms:   func(l *weir.Limit) layers.Terms { return layers.Terms{Local: true, Whole: whole(l)} }})
		if err != nil {
			return err
		}
		store, local = stack.Store, stack.Local
	}
	var err error
	r.gate, err = gate.New(store, r.set, gate.WithLocal(local),
		gate.WithClock(func() time.Time { return time.UnixMicro(r.now.Load()) }))
	return err
}

// ofBans selects the limits of bans: they count refusals, which nodes do not share like traffic.
func ofBans(set *rules.Set) func(*weir.Limit) bool {
	names := make(map[string]bool)
	for _, rule := range set.Rules() {
		if b := rule.Bans(); b != nil {
			for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
				names[limit.Name()] = true
			}
		}
	}
	return func(l *weir.Limit) bool { return names[l.Name()] }
}

// A breakable is a store that does not answer while it is down. It may have executed the calls, as after a timeout:
// calls that surely were not executed are repeated by the wall clock.
type breakable struct {
	weir.Store
	down bool
}

func (b *breakable) err() error {
	if b.down {
		return fmt.Errorf("%w: store: down", weir.ErrUnavailable)
	}
	return nil
}

// Decide implements weir.Store.
func (b *breakable) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.Store.Decide(ctx, claims, times, d)
}

// DecideBatch implements weir.Batcher.
func (b *breakable) DecideBatch(ctx context.Context, requests []weir.Request) {
	if b.down {
		for i := range requests {
			requests[i].Granted, requests[i].Err = 0, b.err()
		}
		return
	}
	b.Store.(weir.Batcher).DecideBatch(ctx, requests)
}

// Charge implements weir.Store.
func (b *breakable) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.Charge(ctx, claims, d)
}

// Refund implements weir.Store.
func (b *breakable) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.Refund(ctx, claims, at, d)
}

// Reset implements weir.Store.
func (b *breakable) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.Reset(ctx, claims)
}
