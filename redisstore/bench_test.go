package redisstore

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

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

// BenchmarkBatch is decisions of one limit over 10,000 keys: by bare calls of the shortest script of a bucket and by
// Decide, from 512 goroutines, and by DecideBatch from four. It reports what Redis' main thread works for one.
func BenchmarkBatch(b *testing.B) {
	server := redistest.Start(b)
	store, err := Open(b.Context(), server.URL(), WithTimeout(5*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "key-" + strconv.Itoa(i)
	}
	// Never exhausted, and no key is full again when it is asked next.
	limit := weir.MustLimit("limit", weir.GCRA(1_000_000_000, 1, time.Second))
	claim := func() []weir.Claim {
		return []weir.Claim{{Key: keys[rand.IntN(len(keys))], Limit: limit, Cost: 1}}
	}
	b.Run("bare/512", func(b *testing.B) {
		client, err := redisconn.OpenClient(b.Context(), server.URL(), redisconn.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		script := redisconn.ScriptOf(shortest)
		load := client.Do(b.Context(), client.B().ScriptLoad().Script(shortest).Build())
		if err := load.Error(); err != nil {
			b.Fatal(err)
		}
		measureRedis(b, server, 512, 1, func() error {
			command := client.B().Evalsha().Sha1(script.SHA).Numkeys(1).Key("bare:"+keys[rand.IntN(len(keys))]).Arg("1000000", "1000000000000000").Build()
			return client.Do(context.Background(), command).Error()
		})
	})
	b.Run("decide/512", func(b *testing.B) {
		measureRedis(b, server, 512, 1, func() error {
			var decision [1]weir.Decision
			_, err := store.Decide(context.Background(), claim(), 1, decision[:])
			return err
		})
	})
	for _, size := range []int{4, 16, 32, 64, 128, 512} {
		b.Run("batch/"+strconv.Itoa(size), func(b *testing.B) {
			requests := make(chan []weir.Request, 4)
			for range cap(requests) {
				requests <- manyRequests(size, claim)
			}
			measureRedis(b, server, cap(requests), size, func() error {
				batch := <-requests
				defer func() { requests <- batch }()
				for i := range batch {
					batch[i].Claims[0].Key = keys[rand.IntN(len(keys))]
				}
				store.DecideBatch(context.Background(), batch)
				return batch[len(batch)-1].Err
			})
		})
	}
}

// shortest is the least that a bucket by Redis' own clock can be.
const shortest = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local full = redis.call('GET', KEYS[1])
full = full and full + 0 or now
if full < now then full = now end
full = full + ARGV[1]
if full - now > ARGV[2] + 0 then return 0 end
redis.call('SET', KEYS[1], full, 'PX', math.ceil((full - now) / 1000))
return 1`

func manyRequests(n int, claim func() []weir.Claim) []weir.Request {
	requests := make([]weir.Request, n)
	for i := range requests {
		requests[i] = weir.Request{Claims: claim(), Times: 1, Decisions: make([]weir.Decision, 1)}
	}
	return requests
}

// measureRedis is measure for calls that decide so many at once.
func measureRedis(b *testing.B, server *redistest.Server, goroutines, decisions int, call func() error) {
	before := mainThread(b, server)
	measure(b, goroutines, call)
	n := float64(b.N) * float64(decisions)
	b.ReportMetric((mainThread(b, server)-before)/n*1e6, "redis-µs/decision")
	b.ReportMetric(n/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(0, "ns/op")
}

// mainThread is the seconds that the server's main thread has worked.
func mainThread(b *testing.B, server *redistest.Server) (seconds float64) {
	info := server.Info("cpu")
	for _, name := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		part, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += part
	}
	return seconds
}
