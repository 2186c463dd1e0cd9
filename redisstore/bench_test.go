package redisstore

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// BenchmarkRun is EVALSHA of the shortest script with three numbers as its reply, for 128
// goroutines and for one: rueidis itself without any bound in time, a Conn with the
// store's bound (of a caller without and with a context that may be cancelled), and what
// the bound replaces.
func BenchmarkRun(b *testing.B) {
	const timeout = 200 * time.Millisecond // the machine may be busy
	c, err := openConn(b.Context(), redistest.Start(b).URL(), []Option{WithTimeout(timeout)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	script, keys, args := testScript("return {1,2,3}"), []string{"key"}, []string{"1", "100", "60000000", "123456"}
	bound := newBound(timeout)
	request, cancel := context.WithCancel(b.Context())
	defer cancel()
	run := func(ctx context.Context, done context.CancelFunc) error {
		defer done()
		var reply [3]Value
		_, err := c.Run(ctx, script, keys, args, reply[:0])
		return err
	}
	if err := run(b.Context(), func() {}); err != nil {
		b.Fatal(err)
	}
	both := func(name string, call func() error) {
		for _, goroutines := range []int{128, 1} {
			b.Run(name+"/"+strconv.Itoa(goroutines), func(b *testing.B) { measure(b, goroutines, call) })
		}
	}
	both("rueidis", func() error {
		command := c.client.B().Evalsha().Sha1(script.SHA).Numkeys(1).Key(keys...).Arg(args...).Build()
		return c.client.Do(context.Background(), command).Error()
	})
	both("bound", func() error { return run(bound.limit(context.Background())) })
	both("cancellable", func() error { return run(bound.limit(request)) })
	both("WithTimeout", func() error { return run(context.WithTimeout(request, timeout)) })
}

func measure(b *testing.B, goroutines int, call func() error) {
	b.ReportAllocs()
	body := func() {
		if err := call(); err != nil {
			b.Error(err)
		}
	}
	if goroutines == 1 {
		for b.Loop() {
			body()
		}
	} else {
		b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				body()
			}
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
