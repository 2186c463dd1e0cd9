package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

const keepsID = 10 * time.Second

// ids checks decisions with an id: see [weir.Once].
func ids(t *testing.T, s Subject) {
	i := &identified{fixture: open(t, s), T: t}
	first, second := i.claim(100), i.claim(100) // in two slots of a Cluster
	i.race(first, second)
	i.repeats("the id again", "order", first, second)
	i.counts("another id", "other", first, second)
	dearer := second
	dearer.Cost = 2
	i.counts("another cost", "order", first, dearer)
	i.counts("another key", "order", first, i.claim(100))
	i.counts("a part of the claims", "order", first)
	i.clock.set(i.clock.now.Load() + keepsID.Microseconds() - 1)
	i.repeats("until the id ends", "order", first, second)
	i.clock.set(i.clock.now.Load() + 1)
	i.counts("after its end", "order", first, second)

	scarce := i.claim(1)
	i.counts("the last unit", "fits", first, scarce)
	i.refuses("without a unit", "does not", first, scarce)
	i.repeats("without a unit, but granted before", "fits", first, scarce)
	if err := i.Refund(t.Context(), i.with("fits", first, scarce), i.at, nil); err != nil {
		t.Fatal(err)
	}
	i.counts("refused before", "does not", first, scarce)
	i.refuses("given back", "fits", first, scarce)
}

type identified struct {
	*fixture
	*testing.T
	at weir.Instant
}

func (i *identified) claim(units int64) weir.Claim {
	limit := weir.MustLimit("asked", weir.SlidingLog{Limit: units, Window: time.Hour})
	return weir.Claim{Key: i.key(), Limit: limit, Cost: 1}
}

// with is the claims and that of the id.
func (i *identified) with(id string, claims ...weir.Claim) []weir.Claim {
	i.Helper()
	once, err := weir.Once(claims, id, keepsID)
	if err != nil {
		i.Fatal(err)
	}
	return append(claims[:len(claims):len(claims)], once)
}

// race decides one id many times at once.
func (i *identified) race(claims ...weir.Claim) {
	i.Helper()
	var granted, repeated atomic.Int64
	var all sync.WaitGroup
	asked := i.with("order", claims...)
	for range 50 {
		all.Go(func() {
			d := make([]weir.Decision, len(asked))
			n, err := i.Decide(context.Background(), asked, 1, d)
			switch {
			case err != nil:
				i.Error(err)
			case n == 1:
				granted.Add(1)
			case d[len(d)-1].RetryAfter != 0:
				repeated.Add(1)
			}
		})
	}
	all.Wait()
	if granted.Load() != 1 || repeated.Load() != 49 {
		i.Errorf("of 50 decisions with one id, %d are granted and %d repeated; want 1 and 49", granted.Load(),
			repeated.Load())
	}
	i.used(1, claims)
}

// used fails unless so many units of the claims are charged.
func (i *identified) used(units int64, claims []weir.Claim) {
	i.Helper()
	for _, claim := range claims {
		claim.Cost = 1
		if _, d := i.decide(i.T, 0, claim); d[0].Remaining != claim.Limit.Most()-units {
			i.Errorf("%d of %s are left; want %d charged", d[0].Remaining, claim.Limit, units)
		}
	}
}

// ask decides claims with an id, and checks how the first one's units change.
func (i *identified) ask(what, id string, granted int64, repeated bool, claims []weir.Claim) {
	i.Helper()
	look := claims[0]
	_, before := i.decide(i.T, 0, look)
	n, d := i.decide(i.T, 1, i.with(id, claims...)...)
	_, after := i.decide(i.T, 0, look)
	i.at = d[0].At
	again := n == 0 && d[len(claims)].RetryAfter != 0
	if n != granted || again != repeated || before[0].Remaining-after[0].Remaining != n {
		i.Errorf("%s: %d granted, repeated %v, %d units; want %d, %v", what, n, again,
			before[0].Remaining-after[0].Remaining, granted, repeated)
	}
}

func (i *identified) counts(what, id string, claims ...weir.Claim) {
	i.Helper()
	i.ask(what, id, 1, false, claims)
}

func (i *identified) repeats(what, id string, claims ...weir.Claim) {
	i.Helper()
	i.ask(what, id, 0, true, claims)
}

func (i *identified) refuses(what, id string, claims ...weir.Claim) {
	i.Helper()
	i.ask(what, id, 0, false, claims)
}
