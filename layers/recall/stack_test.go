package recall_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers/breaker"
	"github.com/weirproject/weir/layers/coalesce"
	"github.com/weirproject/weir/layers/fallback"
	"github.com/weirproject/weir/layers/recall"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// stacked has all layers that every key goes through, in the order of weir serve: what each
// promises must hold for all of them together.
func stacked(url string) storetest.Subject {
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		var options []recall.Option
		if clock != nil {
			options = driven(steady(clock))
		}
		guarded, err := breaker.New(openRedis(t, url, redisstore.WithClock(clock), redisstore.WithPrefix(weir.NewLeaseID()+":")), breaker.WithSlow(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		together, err := coalesce.New(guarded.Store(), coalesce.WithPlaces(redisstore.Places, redisstore.Place))
		if err != nil {
			t.Fatal(err)
		}
		local, err := fallback.NewLocal(3, memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { local.Close() })
		return storetest.Handle{Store: local.Warm(over(t, together, options...)), Recalls: true}
	}
}

func TestStoreOfAllLayers(t *testing.T)   { storetest.Run(t, stacked(redistest.Start(t).URL())) }
func TestVectorsOfAllLayers(t *testing.T) { storetest.Vectors(t, stacked(redistest.Start(t).URL())) }
