package lease_test

import (
	"context"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/memstore"
)

// BenchmarkHotKey is one hot key, asked by all processors at once: of the embedded store, and of leases from it.
func BenchmarkHotKey(b *testing.B) {
	for _, kind := range []struct {
		name string
		spec weir.Spec
	}{
		{"bucket", weir.TokenBucket{Capacity: 1 << 40, Refill: 1_000_000, Period: second}},
		{"window", weir.FixedWindow{Limit: 1 << 50, Window: 24 * 3600 * second}},
	} {
		limit := weir.MustLimit("hot", kind.spec)
		b.Run(kind.name+"/embedded", func(b *testing.B) { hammer(b, memstore.New(), limit) })
		b.Run(kind.name+"/leased", func(b *testing.B) {
			s := lease.New(memstore.New(), always(lease.Terms{Share: 0.1}))
			hammer(b, s, limit)
			b.ReportMetric(float64(s.Stats().Refills), "refills")
		})
	}
}

func hammer(b *testing.B, store weir.Store, limit *weir.Limit) {
	limiter, err := weir.NewLimiter(store, limit)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if answer, err := limiter.Allow(context.Background(), "user:42"); err != nil || !answer.Allowed {
				b.Error(answer, err)
				return
			}
		}
	})
	b.StopTimer()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}
