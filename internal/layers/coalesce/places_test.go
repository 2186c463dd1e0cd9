package coalesce_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// thirds is a Cluster of three, of which the first is frozen: its calls end with their
// timeout, those of the others after a millisecond. A batch ends with the last of its calls.
type thirds struct{ frozen }

func nodeOf(claims []weir.Claim) int {
	n, _ := strconv.Atoi(claims[0].Key)
	return n % 3
}

func (f *thirds) Decide(ctx context.Context, claims []weir.Claim, _ int64, _ []weir.Decision) (int64, error) {
	if nodeOf(claims) == 0 {
		return 0, f.hang(ctx)
	}
	select {
	case <-time.After(time.Millisecond):
		return 1, nil
	case <-ctx.Done():
		return 0, weir.ErrUnavailable
	}
}

func (f *thirds) DecideBatch(ctx context.Context, requests []weir.Request) {
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			r := &requests[i]
			if r.Err = ctx.Err(); r.Err == nil {
				r.Granted, r.Err = f.Decide(ctx, r.Claims, r.Times, r.Decisions)
			}
		})
	}
	all.Wait()
}

// Callers of one server do not wait for another, frozen one.
func TestPlacesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Millisecond
		s := coalesce.NewAt(&thirds{frozen{memstore.New(), timeout * 15 / 16}}, timeout, 3, nodeOf)
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				began, claims := time.Now(), []weir.Claim{{Key: strconv.Itoa(i % 50), Limit: hour, Cost: 1}}
				_, err := s.Decide(t.Context(), claims, 1, nil)
				took := time.Since(began)
				if nodeOf(claims) == 0 {
					if !errors.Is(err, weir.ErrUnavailable) || took > timeout {
						t.Errorf("a key of the frozen server: %v after %v", err, took)
					}
				} else if err != nil || took > 2*time.Millisecond {
					t.Errorf("a key of another server: %v after %v", err, took)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		s.Close()
	})
}

// The place is that of the slot of the last claim's state, also where a key has a tag of its own.
func TestPlace(t *testing.T) {
	seen := make(map[int]bool)
	for i := range 2000 {
		key := strconv.Itoa(i)
		place := coalesce.Place([]weir.Claim{{Key: "GLOBAL"}, {Key: key}})
		if want := int(redisslot.Of("weir:limit:b:{"+key+"}")) * coalesce.Places / redisslot.Count; place != want {
			t.Fatalf("the place of %s is %d, want %d", key, place, want)
		}
		if tagged := coalesce.Place([]weir.Claim{{Key: "{" + key + "}:search"}}); tagged != place {
			t.Fatalf("with a tag it is %d, without %d", tagged, place)
		}
		seen[place] = true
	}
	if len(seen) != coalesce.Places {
		t.Errorf("2000 keys are in %d places of %d", len(seen), coalesce.Places)
	}
}

// A master of three is frozen: keys of the other two are decided meanwhile.
func TestFrozenMasterDelaysOnlyItsKeys(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	for _, node := range cluster.Nodes {
		node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	redis, err := redisstore.Open(t.Context(), cluster.URL(), redisstore.WithTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	s := coalesce.New(redis, coalesce.Config{Cluster: true})
	var frozen, others [][]weir.Claim
	for i := range 200 { // the places in which the first master's slots end are another's, too
		claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: plenty, Cost: 1}}
		if place, end := coalesce.Place(claims), coalesce.Places/3; place < end {
			frozen = append(frozen, claims)
		} else if place > end {
			others = append(others, claims)
		}
		if _, err := s.Decide(t.Context(), claims, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Nodes[0].Stop()
	var waiting sync.WaitGroup
	var ended atomic.Int64
	for _, claims := range frozen {
		waiting.Go(func() {
			s.Decide(t.Context(), claims, 1, nil)
			ended.Add(1)
		})
	}
	redistest.Await(t, "calls of the frozen master",
		func() bool { _, calls := s.Waiting(); return calls >= coalesce.EnoughTrips })
	for range 3 {
		for _, claims := range others {
			if granted, err := s.Decide(t.Context(), claims, 1, nil); granted != 1 || err != nil {
				t.Fatalf("key %s: granted %d, %v", claims[0].Key, granted, err)
			}
		}
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d calls of the frozen master ended before those of the others", n)
	}
	cluster.Nodes[0].Cont()
	waiting.Wait()
	s.Close()
}

// TestShardsFollowTheCores: and in a Cluster, the ranges of slots.
func TestShardsFollowTheCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	for _, c := range []struct {
		config coalesce.Config
		want   int
	}{
		{coalesce.Config{}, 4},
		{coalesce.Config{Cluster: true}, coalesce.Places},
	} {
		if n := coalesce.New(memstore.New(), c.config).Shards(); n != c.want {
			t.Errorf("%+v: %d shards, want %d", c.config, n, c.want)
		}
	}
}
