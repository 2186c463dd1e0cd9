package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

func over(t testing.TB, next weir.Store) *coalesce.Store {
	t.Helper()
	s := coalesce.New(next, coalesce.Config{})
	return s
}

func onMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	memory := memstore.New(memstore.WithClock(clock))
	return storetest.Handle{
		Store: over(t, memory),
		Peer:  func() weir.Store { return over(t, memory) },
		Keys: func() (live, everlasting int) {
			memory.Sweep()
			return int(memory.Stats().Keys), 0
		},
	}
}

// batched is onMemory, but each decision that can goes in a batch.
func batched(t testing.TB, clock func() weir.Instant) storetest.Handle {
	h := onMemory(t, clock)
	h.Store = coalesce.Batched{Store: h.Store.(*coalesce.Store)}
	return h
}

func onRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		options := []redisstore.Option{redisstore.WithPrefix(weir.NewLeaseID()), redisstore.WithTimeout(time.Minute),
			redisstore.WithClock(clock)}
		open := func() weir.Store {
			store, err := redisstore.Open(context.Background(), server.URL(), options...)
			if err != nil {
				t.Fatal(err)
			}
			return over(t, store)
		}
		return storetest.Handle{Store: open(), Peer: open}
	}
}

func TestVectors(t *testing.T)        { storetest.Vectors(t, onMemory) }
func TestStore(t *testing.T)          { storetest.Run(t, onMemory) }
func TestVectorsBatched(t *testing.T) { storetest.Vectors(t, batched) }
func TestStoreBatched(t *testing.T)   { storetest.Run(t, batched) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, onRedis(t)) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, onRedis(t)) }

// counted counts the calls that reach a store, and lets others run during each of them, as a round call does.
type counted struct {
	*memstore.Store
	calls, requests, asked atomic.Int64
}

func (c *counted) call(requests, asked int64) {
	c.calls.Add(1)
	c.requests.Add(requests)
	c.asked.Add(asked)
	for range 50 {
		runtime.Gosched()
	}
}

func (c *counted) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	c.call(1, times)
	defer c.call(0, 0)
	return c.Store.Decide(ctx, claims, times, decisions)
}

func (c *counted) DecideBatch(ctx context.Context, requests []weir.Request) {
	for i := range requests {
		c.asked.Add(requests[i].Times)
	}
	c.call(int64(len(requests)), 0)
	c.Store.DecideBatch(ctx, requests)
	c.call(0, 0)
}

// An ask is the input and output of one caller of a hot key.
type ask struct {
	op   string // take, peek, refund, reset
	cost int64
}

type got struct{ granted, remaining int64 }

const room = 30 // of the limit in the histories

// account is one key with room units, as porcupine wants it: a state of units used.
var account = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		used, in, out := state.(int64), input.(ask), output.(got)
		var granted int64
		switch in.op {
		case "take":
			if used+in.cost <= room {
				used, granted = used+in.cost, 1
			}
		case "refund":
			used = max(0, used-in.cost)
		case "reset":
			return true, int64(0)
		}
		return out == got{granted, room - used}, used
	},
}

func (a ask) on(store weir.Store, limit *weir.Limit) (out got, err error) {
	claims, decisions := []weir.Claim{{Key: "hot", Limit: limit, Cost: a.cost}}, make([]weir.Decision, 1)
	switch a.op {
	case "take":
		out.granted, err = store.Decide(context.Background(), claims, 1, decisions)
	case "peek":
		_, err = store.Decide(context.Background(), claims, 0, decisions)
	case "refund":
		err = store.Refund(context.Background(), claims, epoch, decisions)
	case "reset":
		return out, store.Reset(context.Background(), claims)
	}
	out.remaining = decisions[0].Remaining
	return out, err
}

const epoch = 1_790_000_000_000_000

func still() weir.Instant { return epoch }

// Many callers of one key, so that they are merged, with others that pass by them.
func TestMergedIsLinearizable(t *testing.T) {
	limit := weir.MustLimit("hot", weir.FixedWindow{Limit: room, Window: time.Hour})
	store := &counted{Store: memstore.New(memstore.WithClock(still))}
	s := over(t, store)
	const clients, each = 20, 4
	for n := range histories {
		random := rand.New(rand.NewPCG(1, uint64(n)))
		history := play(t, clients, each, random, func(a ask) (got, error) { return a.on(s, limit) })
		if result := porcupine.CheckOperationsTimeout(account, history, 20*time.Second); result == porcupine.Illegal {
			t.Fatalf("history %d: no order of these calls explains their answers (%s): %v", n, result, history)
		}
		if _, err := (ask{op: "reset"}).on(s, limit); err != nil {
			t.Fatal(err)
		}
	}
	if merged := store.asked.Load() - store.requests.Load(); merged < histories*clients {
		t.Errorf("of %d decisions %d went along with others: too few for this test to say anything",
			store.asked.Load(), merged)
	}
}

// play lets clients ask at once, each one thing after the other.
func play(t *testing.T, clients, each int, random *rand.Rand, do func(ask) (got, error)) []porcupine.Operation {
	ops := []string{"take", "take", "take", "take", "take", "take", "peek", "refund"}
	if random.IntN(4) == 0 {
		ops = append(ops, "reset")
	}
	history := make([]porcupine.Operation, clients*each)
	var done sync.WaitGroup
	ready, start := make(chan struct{}), time.Now()
	for i := range clients {
		mine := history[i*each:][:each]
		for j := range mine {
			mine[j] = porcupine.Operation{ClientId: i, Input: ask{ops[random.IntN(len(ops))], 1 + random.Int64N(2)}}
		}
		done.Go(func() {
			<-ready
			for j := range mine {
				mine[j].Call = time.Since(start).Nanoseconds()
				out, err := do(mine[j].Input.(ask))
				mine[j].Output, mine[j].Return = out, time.Since(start).Nanoseconds()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(ready)
	done.Wait()
	return history
}

// Concurrent callers are granted exactly what there is: of one key and of many, and for costs that do not divide it.
func TestSumIsExact(t *testing.T) {
	var calls, asked int64
	for _, keys := range []int{1, 7, 300} {
		store := &counted{Store: memstore.New(memstore.WithClock(still))}
		s := coalesce.NewLanes(store, 3)
		limit := weir.MustLimit("limit", weir.TokenBucket{Capacity: 100, Refill: 1, Period: time.Hour})
		granted := make([]atomic.Int64, keys)
		crowd(t, 100, keys*150/100, func(random *rand.Rand) error {
			key := random.IntN(keys)
			n, err := s.Decide(context.Background(), []weir.Claim{{Key: fmt.Sprint(key), Limit: limit, Cost: 1}}, 1,
				nil)
			granted[key].Add(n)
			return err
		})
		for key := range granted {
			more := fill(t, s, weir.Claim{Key: fmt.Sprint(key), Limit: limit, Cost: 1})
			if got := granted[key].Load() + more; got != 100 {
				t.Errorf("%d keys: %d units of key %d were granted, it has 100", keys, got, key)
			}
		}
		calls, asked = calls+store.calls.Load(), asked+store.asked.Load()
	}
	if calls >= asked { // how many share a call is up to the scheduler
		t.Errorf("%d calls for %d decisions", calls, asked)
	}
}

// crowd lets goroutines do a thing some times each.
func crowd(t *testing.T, goroutines, each int, do func(*rand.Rand) error) {
	t.Helper()
	errs := make([]error, goroutines)
	var done sync.WaitGroup
	for i := range goroutines {
		done.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for range each {
				errs[i] = errors.Join(errs[i], do(random))
			}
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// fill asks until it is refused.
func fill(t *testing.T, s weir.Store, claim weir.Claim) (granted int64) {
	t.Helper()
	for range 1000 {
		n, err := s.Decide(context.Background(), []weir.Claim{claim}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return granted
		}
		granted++
	}
	t.Fatal("never refused")
	return 0
}

// The same on Redis, whose clock moves: the bucket refills less than a unit meanwhile.
func TestSumIsExactOnRedis(t *testing.T) {
	store, err := redisstore.Open(t.Context(), redistest.Start(t).URL(), redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	s := over(t, store)
	defer s.Close()
	claims := []weir.Claim{{Key: "hot", Limit: weir.MustLimit("limit",
		weir.SlidingLog{Limit: 777, Window: 24 * time.Hour}), Cost: 1}}
	var granted atomic.Int64
	crowd(t, 100, 20, func(*rand.Rand) error {
		n, err := s.Decide(context.Background(), claims, 1, nil)
		granted.Add(n)
		return err
	})
	if granted.Load() != 777 {
		t.Errorf("granted %d of 2000, want 777", granted.Load())
	}
}

// A lone caller costs no memory.
func TestLoneCallerAllocatesNothing(t *testing.T) {
	s := over(t, memstore.New())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claims := []weir.Claim{
		{Key: "lone", Limit: weir.MustLimit("a", weir.PerSecond(1000)), Cost: 1},
		{Key: "lone", Limit: weir.MustLimit("b", weir.PerHour(10)), Cost: 1},
	}
	decisions := make([]weir.Decision, len(claims))
	for name, claims := range map[string][]weir.Claim{"one claim": claims[:1], "two claims": claims} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := s.Decide(ctx, claims, 1, decisions[:len(claims)]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}
