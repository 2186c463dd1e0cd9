package adaptive_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/adaptive"
)

func fixed(t testing.TB, limit int, q adaptive.Queue, classes ...adaptive.Class) *adaptive.Limiter {
	l, err := adaptive.New(adaptive.Config{Min: limit, Max: limit, Queue: q, Classes: classes})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *adaptive.Limiter, class int) {
	t.Helper()
	if err := l.Acquire(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}

func TestClassesLeaveTheirReserve(t *testing.T) {
	l := fixed(t, 10, adaptive.Queue{}, adaptive.Class{Name: "critical"}, adaptive.Class{Name: "batch", Reserve: 0.25})
	for range 7 { // 10 less 2.5, rounded up
		acquire(t, l, 1)
	}
	if err := l.Acquire(t.Context(), 1); !errors.Is(err, adaptive.ErrRefused) {
		t.Errorf("the eighth of batch: %v, want ErrRefused", err)
	}
	for range 3 {
		acquire(t, l, 0)
	}
	if err := l.Acquire(t.Context(), 0); !errors.Is(err, adaptive.ErrRefused) {
		t.Errorf("the eleventh: %v, want ErrRefused", err)
	}
	s := l.State()
	if s.InFlight != 10 || s.Classes[0].Refused != 1 || s.Classes[1].Refused != 1 || s.Classes[1].Admitted != 7 {
		t.Errorf("state is %+v", s)
	}
}

func TestEachClassHasOneRequest(t *testing.T) {
	l := fixed(t, 1, adaptive.Queue{}, adaptive.Class{}, adaptive.Class{Reserve: 1})
	acquire(t, l, 1)
	l.Release(adaptive.Answered, 0)
	acquire(t, l, 7) // is the last class
}

// order starts requests that wait, and reports in which order they are admitted.
func order(t *testing.T, l *adaptive.Limiter, classes ...int) func() []int {
	var mu sync.Mutex
	var list []int
	for i, class := range classes {
		go func() {
			if l.Acquire(context.Background(), class) != nil {
				return
			}
			mu.Lock()
			list = append(list, i)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			l.Release(adaptive.Answered, 0)
		}()
		synctest.Wait()
	}
	return func() []int {
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

func TestQueueServesByClassThenTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(t, 1, adaptive.Queue{For: 50 * time.Millisecond, Most: 10}, adaptive.Class{}, adaptive.Class{})
		acquire(t, l, 0)
		served := order(t, l, 1, 0, 1, 0)
		l.Release(adaptive.Answered, 0)
		if got, want := served(), []int{3, 1, 2, 0}; !equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestFullQueueRefusesTheOldestOfTheLeastImportantClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(t, 1, adaptive.Queue{For: 50 * time.Millisecond, Most: 2}, adaptive.Class{}, adaptive.Class{})
		acquire(t, l, 0)
		served := order(t, l, 1, 1, 0, 0, 1)
		l.Release(adaptive.Answered, 0)
		if got, want := served(), []int{3, 2}; !equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
		if s := l.State(); s.Classes[1].Refused != 3 || s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("state is %+v", s)
		}
	})
}

func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(t, 1, adaptive.Queue{For: 50 * time.Millisecond, Most: 10})
		acquire(t, l, 0)
		began := time.Now()
		if err := l.Acquire(t.Context(), 0); !errors.Is(err, adaptive.ErrRefused) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("%v after %v, want ErrRefused after 50ms", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := l.Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
		if s := l.State(); s.Waiting != 0 || s.InFlight != 1 || s.Classes[0].Refused != 1 {
			t.Errorf("state is %+v: a client that left is not refused", s)
		}
	})
}

// In a queue that was not empty for its time, requests wait a tenth of it.
func TestStandingQueueRefusesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(t, 1, adaptive.Queue{For: 100 * time.Millisecond, Most: 10})
		acquire(t, l, 0)
		go l.Acquire(context.Background(), 0)
		time.Sleep(60 * time.Millisecond)
		go l.Acquire(context.Background(), 0)
		time.Sleep(60 * time.Millisecond)
		began := time.Now()
		if err := l.Acquire(t.Context(), 0); err == nil || time.Since(began) != 10*time.Millisecond {
			t.Errorf("%v after %v, want a refusal after 10ms", err, time.Since(began))
		}
		time.Sleep(time.Second) // the others end, too
	})
}

// A client that stops sending does not hold the place that others need.
func TestClientsThatSendSlowlyFreeTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixed(t, 1, adaptive.Queue{For: time.Second, Most: 10})
		acquire(t, l, 0)
		received := l.Receive()
		began := time.Now()
		acquire(t, l, 0)
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("the other waited %v, want 100ms", waited)
		}
		received()
		received()
		if s := l.State(); s.InFlight != 2 {
			t.Errorf("%d in flight, want both", s.InFlight)
		}
		l.Release(adaptive.Answered, 0)
		l.Release(adaptive.Answered, 0)

		acquire(t, l, 0)
		received = l.Receive()
		received()
		time.Sleep(time.Second)
		if s := l.State(); s.InFlight != 1 {
			t.Errorf("%d in flight, want the one that was sent in time", s.InFlight)
		}
	})
}

// After a change of settings no more requests are in flight than before.
func TestAdoptCountsRequestsInFlight(t *testing.T) {
	old, next := fixed(t, 3, adaptive.Queue{}), fixed(t, 4, adaptive.Queue{})
	for range 3 {
		acquire(t, old, 0)
	}
	next.Adopt(old)
	acquire(t, next, 0)
	if err := next.Acquire(t.Context(), 0); !errors.Is(err, adaptive.ErrRefused) || next.State().InFlight != 4 {
		t.Errorf("%v with %d in flight, want ErrRefused with 4", err, next.State().InFlight)
	}
	for range 3 {
		old.Release(adaptive.Ignored, 0)
	}
	for range 3 {
		acquire(t, next, 0)
	}
	if err := next.Acquire(t.Context(), 0); !errors.Is(err, adaptive.ErrRefused) {
		t.Errorf("%v, want ErrRefused", err)
	}
}

// Requests come and go on many goroutines, some of them cancelled: no place is lost, and none is given twice.
func TestPlacesAreCounted(t *testing.T) {
	l, err := adaptive.New(adaptive.Config{Min: 3, Max: 3, Queue: adaptive.Queue{For: time.Millisecond, Most: 4},
		Classes: []adaptive.Class{{}, {Reserve: 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int64
	var group sync.WaitGroup
	for g := range 16 {
		group.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%3)*time.Millisecond)
				if l.Acquire(ctx, g%2) == nil {
					if n := inside.Add(1); n > 3 {
						t.Errorf("%d requests at once; allowed: 3", n)
					}
					inside.Add(-1)
					l.Release(adaptive.Outcome(i%3), 0)
				}
				cancel()
			}
		})
	}
	group.Wait()
	if s := l.State(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("state is %+v, want nothing in flight or waiting", s)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []adaptive.Config{
		{},
		{Min: 2, Max: 1},
		{Min: 1, Max: 1 << 30},
		{Min: 1, Max: 1, Algorithm: 9},
		{Min: 1, Max: 1, Queue: adaptive.Queue{For: time.Second}},
		{Min: 1, Max: 1, Queue: adaptive.Queue{For: time.Hour, Most: 1}},
		{Min: 1, Max: 1, Queue: adaptive.Queue{For: 1, Most: 1 << 30}},
		{Min: 1, Max: 1, Classes: []adaptive.Class{{Reserve: 2}}},
		{Min: 1, Max: 1, Classes: make([]adaptive.Class, 17)},
	} {
		var input *weir.InputError
		if _, err := adaptive.New(c); !errors.As(err, &input) {
			t.Errorf("%+v: %v, want an InputError", c, err)
		}
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	l, _ := adaptive.New(adaptive.Config{Min: 1, Max: 100, Classes: []adaptive.Class{{}, {Reserve: 0.5}}})
	n := testing.AllocsPerRun(1000, func() {
		if err := l.Acquire(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		if err := l.Acquire(context.Background(), 1); err == nil {
			t.Log("admitted: the limit has grown")
		}
		l.Release(adaptive.Answered, time.Millisecond)
	})
	if n > 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	l, _ := adaptive.New(adaptive.Config{Min: 20, Max: 2000})
	for b.Loop() {
		if err := l.Acquire(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
		l.Release(adaptive.Answered, time.Millisecond)
	}
}

func BenchmarkRequestParallel(b *testing.B) {
	l, _ := adaptive.New(adaptive.Config{Min: 20, Max: 2000})
	b.RunParallel(func(loop *testing.PB) {
		for loop.Next() {
			if l.Acquire(context.Background(), 0) == nil {
				l.Release(adaptive.Answered, time.Millisecond)
			}
		}
	})
}

func BenchmarkRefusal(b *testing.B) {
	l := fixed(b, 1, adaptive.Queue{})
	l.Acquire(context.Background(), 0)
	for b.Loop() {
		l.Acquire(context.Background(), 0)
	}
}
