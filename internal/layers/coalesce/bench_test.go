package coalesce_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// BenchmarkRedis is a Redis by itself and under the layer: one hot key, ten thousand, and a lone caller. redis-ns is
// the CPU time of the server a decision, op/call how many of them share a call. Compare within a run.
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	bare, err := redisstore.Open(b.Context(), server.URL(), redisstore.WithTimeout(5*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	layer := over(b, bare)
	defer layer.Close()
	for _, load := range []struct {
		name             string
		goroutines, keys int
	}{{"hot", 128, 1}, {"uniform", 512, 10_000}, {"uniform", 64, 10_000}, {"lone", 1, 1}} {
		for name, store := range map[string]weir.Store{"bare": bare, "layer": layer} {
			b.Run(fmt.Sprint(load.name, "-", load.goroutines, "/", name), func(b *testing.B) {
				server.Do("CONFIG", "RESETSTAT")
				before := cpu(b, server)
				crowded(b, store, load.goroutines, load.keys)
				b.ReportMetric((cpu(b, server)-before)*1e9/float64(b.N), "redis-ns/op")
				b.ReportMetric(float64(b.N)/info(b, server, "commandstats", "cmdstat_evalsha:calls="), "op/call")
			})
		}
	}
}

// cpu is what the server has used, in seconds.
func cpu(b *testing.B, server *redistest.Server) float64 {
	return info(b, server, "cpu", "used_cpu_sys:") + info(b, server, "cpu", "used_cpu_user:")
}

// info is the number after a name in a section of INFO.
func info(b *testing.B, server *redistest.Server, section, name string) float64 {
	_, text, _ := strings.Cut(server.Do("INFO", section).(string), name)
	text, _, _ = strings.Cut(text, "\r")
	text, _, _ = strings.Cut(text, ",")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

var plenty = weir.MustLimit("plenty", weir.TokenBucket{Capacity: 1_000_000, Refill: 1_000_000, Period: time.Second})

func crowded(b *testing.B, store weir.Store, goroutines, keys int) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("ip:203.0.113.", i)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error)
	b.ReportAllocs()
	b.ResetTimer()
	for range goroutines {
		go func() {
			claims, decisions := []weir.Claim{{Limit: plenty, Cost: 1}}, make([]weir.Decision, 1)
			var err error
			for err == nil && left.Add(-1) >= 0 {
				claims[0].Key = names[rand.IntN(keys)]
				_, err = store.Decide(context.Background(), claims, 1, decisions)
			}
			done <- err
		}()
	}
	for range goroutines {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// instant is a store that takes no time, so that only the layer is measured.
type instant struct{ weir.Store }

func (instant) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 1, nil
}

func (instant) DecideBatch(_ context.Context, requests []weir.Request) {
	runtime.Gosched()
	for i := range requests {
		requests[i].Granted = requests[i].Times
	}
}

// BenchmarkLayer is the cost of the layer alone, for a single caller and for waiting ones.
func BenchmarkLayer(b *testing.B) {
	layer := over(b, instant{})
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) { crowded(b, layer, goroutines, 1) })
	}
}
