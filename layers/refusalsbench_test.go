//go:build unix

package layers

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

var refusing = weir.Decision{RetryAfter: time.Hour, ResetAfter: time.Hour}

// claimsOf returns claims under n limits, the first on a key of its own.
func claimsOf(n int, key string) []weir.Claim {
	claims := make([]weir.Claim, n)
	for i := range claims {
		claims[i] = weir.Claim{Key: "GLOBAL", Limit: weir.MustLimit(fmt.Sprint("limit-", i), weir.PerHour(1000)),
			Cost: 1}
	}
	claims[0].Key = key
	return claims
}

// spends reports the processor's time of an operation: other programs take the wall clock's.
func spends(b *testing.B) (stop func()) {
	before := processorTime()
	b.ResetTimer()
	return func() { b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op") }
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkFlood: one hot key is refused, from all cores.
func BenchmarkFlood(b *testing.B) {
	b.Run("Limiter.Allow", func(b *testing.B) {
		next := &answering{says: refusing}
		limiter, err := weir.New(refusalOver(b, next), "hot", weir.PerHour(1))
		if err != nil {
			b.Fatal(err)
		}
		limiter.Allow(b.Context(), "ip:203.0.113.7")
		defer spends(b)()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				limiter.Allow(context.Background(), "ip:203.0.113.7")
			}
		})
		b.ReportMetric(float64(next.calls.Load())/float64(b.N), "calls/op")
	})
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprint("Decide/claims=", n), func(b *testing.B) {
			next := &answering{says: refusing}
			store, claims := refusalOver(b, next), claimsOf(n, "ip:203.0.113.7")
			defer spends(b)()
			b.RunParallel(func(p *testing.PB) {
				decisions := make([]weir.Decision, n)
				for p.Next() {
					store.Decide(context.Background(), claims, 1, decisions)
				}
			})
			b.ReportMetric(float64(next.calls.Load())/float64(b.N), "calls/op")
		})
	}
}

// BenchmarkLone: what a caller pays whose key is not remembered, in a table that is empty or full.
func BenchmarkLone(b *testing.B) {
	for _, n := range []int{1, 4} {
		for _, kept := range []int{0, 200_000} {
			b.Run(fmt.Sprintf("claims=%d/kept=%d", n, kept), func(b *testing.B) {
				next := &answering{says: refusing}
				store := refusalOver(b, next)
				for i := range kept {
					store.Decide(b.Context(), claimsOf(1, fmt.Sprint("kept-", i)), 1, nil)
				}
				next.says = weir.Decision{Remaining: 1000}
				calls := make([][]weir.Claim, 1<<12)
				for i := range calls {
					calls[i] = claimsOf(n, fmt.Sprint("lone-", i))
				}
				decisions := make([]weir.Decision, n)
				b.ReportAllocs()
				defer spends(b)()
				for i := range b.N {
					store.Decide(context.Background(), calls[i%len(calls)], 1, decisions)
				}
			})
		}
	}
}
