package coalesce

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

var limit = weir.MustLimit("limit", weir.FixedWindow{Limit: 5, Window: time.Hour})

// Hashes may be equal where claims are not.
func TestHashCollisionsAreNotMerged(t *testing.T) {
	a := weir.Claim{Key: "a", Limit: limit, Cost: 1}
	b, anew, two := a, a, a
	b.Key, anew.Limit, two.Cost = "b", weir.MustLimit("limit", weir.FixedWindow{Limit: 6, Window: time.Hour}), 2
	batch := newBatch(time.Time{})
	for want, claims := range [][]weir.Claim{{a}, {b}, {anew}, {two}, {a, b}, {b, a}} {
		for range 2 {
			if group, _, ok := batch.join(7, claims, true); !ok || group != want {
				t.Errorf("%v is in group %d, want %d", claims, group, want)
			}
		}
	}
}

// A ticket's place is counted as by hand.
func TestPlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range 100 {
		b := newBatch(time.Time{})
		n, stays := 2+random.IntN(mostMerged-1), make(map[int]bool)
		for range n {
			_, ticket, _ := b.join(1, []weir.Claim{{Key: "a", Limit: limit, Cost: 1}}, false)
			stays[ticket] = true
		}
		for ticket := range n - 1 {
			if random.IntN(3) == 0 {
				b.remove(0, ticket)
				delete(stays, ticket)
			}
		}
		want := 0
		for ticket := range n {
			if !stays[ticket] {
				continue
			}
			if got := b.groups[0].place(ticket); got != want {
				t.Fatalf("ticket %d of %d has place %d, want %d", ticket, n, got, want)
			}
			want++
		}
	}
}

// A decision is charged, so a caller whose context has ended gets it all the same.
func TestDecisionBeatsEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		l := &shard{}
		at := l.join(1, []weir.Claim{{Key: "a", Limit: limit, Cost: 1}}, false)
		b := l.take()
		b.requests[0].Granted = 1
		close(b.done)
		if granted, err := at.wait(ctx, nil); granted != 1 || err != nil {
			t.Fatalf("granted %d, error %v", granted, err)
		}
	}
}

// A batch released by all callers keeps no key, no limit, and no oversized memory.
func TestBatchesAreForgotten(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &shard{}
	var entries []waiter
	for range mostMerged {
		entries = append(entries, l.join(1, []weir.Claim{{Key: "a", Limit: limit, Cost: 1},
			{Key: "b", Limit: limit, Cost: 1}}, true))
	}
	b := l.take()
	for _, at := range entries {
		if _, err := at.wait(ctx, nil); !errors.Is(err, weir.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if n := b.holders.Load(); n != 1 {
		t.Fatalf("%d hold the batch, want the sender alone", n)
	}
	groups, claims, requests := b.groups, b.groups[0].claims, b.requests
	b.recycle()
	if claims[0] != (weir.Claim{}) || claims[1] != (weir.Claim{}) || requests[0].Claims != nil || groups[0].hash != 0 {
		t.Errorf("a forgotten batch remembers %v, %v, %v", groups, claims, requests)
	}
	if b.decisions != nil {
		t.Errorf("room for %d decisions is kept", cap(b.decisions))
	}
}
