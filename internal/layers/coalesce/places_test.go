package coalesce_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
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
		s, err := coalesce.New(&thirds{frozen{memstore.New(), timeout * 15 / 16}}, coalesce.WithTimeout(timeout),
			coalesce.WithPlaces(3, nodeOf))
		if err != nil {
			t.Fatal(err)
		}
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

func TestTableHasRoom(t *testing.T) {
	var input *weir.InputError
	if _, err := coalesce.New(memstore.New(), coalesce.WithPlaces(0, nodeOf)); !errors.As(err, &input) ||
		input.Field != "places" {
		t.Errorf("no place: %v", err)
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
	s, err := coalesce.New(redis, coalesce.WithPlaces(redisstore.Places, redisstore.Place))
	if err != nil {
		t.Fatal(err)
	}
	var frozen, others [][]weir.Claim
	for i := range 200 { // the places in which the first master's slots end are another's, too
		claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: plenty, Cost: 1}}
		if place, end := redisstore.Place(claims), redisstore.Places/3; place < end {
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
