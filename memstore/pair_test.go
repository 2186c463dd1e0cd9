package memstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// Two limits of one key are always charged together: a peek of both finds them equal, however far apart they
// stand among its claims. Peeks read without locks; only the check after reading makes them one moment.
func TestPeeksSeeOneMoment(t *testing.T) {
	const peeks = 20_000
	store := memstore.New()
	first := weir.MustLimit("first", weir.FixedWindow{Limit: 1 << 40, Window: time.Hour})
	last := weir.MustLimit("last", weir.FixedWindow{Limit: 1 << 40, Window: time.Hour})
	pair := []weir.Claim{{Key: "k", Limit: first, Cost: 1}, {Key: "k", Limit: last, Cost: 1}}
	many := []weir.Claim{pair[0]}
	for i := range weir.MaxClaims - 2 {
		many = append(many, weir.Claim{Key: fmt.Sprint("other", i), Limit: first, Cost: 1})
	}
	many = append(many, pair[1])
	decide(t, store, many, 1, nil)
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for !stop.Load() {
			decide(t, store, pair, 1, nil)
		}
	})
	decisions := make([]weir.Decision, len(many))
	torn := 0
	for range peeks {
		decide(t, store, many, 0, decisions)
		if decisions[0].Remaining != decisions[len(many)-1].Remaining {
			torn++
		}
	}
	stop.Store(true)
	writer.Wait()
	if torn > 0 {
		t.Errorf("%d of %d peeks saw one limit charged and the other not", torn, peeks)
	}
}

func decide(t testing.TB, store weir.Store, claims []weir.Claim, times int64, decisions []weir.Decision) {
	if _, err := store.Decide(t.Context(), claims, times, decisions); err != nil {
		t.Error(err)
	}
}
