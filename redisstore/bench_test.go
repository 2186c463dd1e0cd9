package redisstore

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// BenchmarkRun is EVALSHA of the shortest script with three numbers as its reply: 128
// goroutines and one, against rueidis itself without any bound in time.
func BenchmarkRun(b *testing.B) {
	c, err := openConn(b.Context(), redistest.Start(b).URL(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	script := testScript("return {1,2,3}")
	keys, args := []string{"key"}, []string{"1", "100", "60000000", "123456"}
	if _, err := c.Run(b.Context(), script, keys, args, nil); err != nil {
		b.Fatal(err)
	}
	bound := newBound(50 * time.Millisecond)
	request, cancel := context.WithCancel(context.Background())
	defer cancel()
	kinds := []struct {
		name string
		call func([]Value) ([]Value, error)
	}{
		{"raw", func(reply []Value) ([]Value, error) {
			command := c.client.B().Evalsha().Sha1(script.SHA).Numkeys(1).Key(keys...).Arg(args...).Build()
			return reply, c.client.Do(context.Background(), command).Error()
		}},
		{"weir", func(reply []Value) ([]Value, error) {
			ctx, done := bound.limit(context.Background())
			defer done()
			return c.Run(ctx, script, keys, args, reply)
		}},
		{"weir-cancellable", func(reply []Value) ([]Value, error) {
			ctx, done := bound.limit(request)
			defer done()
			return c.Run(ctx, script, keys, args, reply)
		}},
		{"WithTimeout", func(reply []Value) ([]Value, error) {
			ctx, done := context.WithTimeout(request, 50*time.Millisecond)
			defer done()
			return c.Run(ctx, script, keys, args, reply)
		}},
	}
	for _, goroutines := range []int{128, 1} {
		for _, kind := range kinds {
			b.Run(kind.name+"-"+map[int]string{128: "128", 1: "1"}[goroutines], func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
				call := func(reply []Value) {
					if _, err := kind.call(reply[:0]); err != nil {
						b.Error(err)
					}
				}
				if goroutines == 1 {
					reply := make([]Value, 0, 8)
					for b.Loop() {
						call(reply)
					}
				} else {
					b.RunParallel(func(pb *testing.PB) {
						reply := make([]Value, 0, 8)
						for pb.Next() {
							call(reply)
						}
					})
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}
