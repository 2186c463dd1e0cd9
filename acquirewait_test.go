package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// work waits for a slot and holds it for a time.
func work(ctx context.Context, l *weir.Limiter, d time.Duration) error {
	lease, err := l.AcquireWait(ctx, "key")
	if err != nil {
		return err
	}
	time.Sleep(d)
	return lease.Release(context.WithoutCancel(ctx))
}

// Callers get slots in the order of their arrival, as soon as another one is released, with one call for each.
func TestAcquireWaitServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		l, p := limiterOn(t, store, weir.Concurrency{Limit: 2, TTL: time.Minute}), newPassing()
		var want []string
		for i := range 20 {
			name := fmt.Sprint(i)
			want = append(want, name)
			p.wait(name, func() error { return work(t.Context(), l, time.Second) })
			time.Sleep(time.Millisecond)
		}
		p.Wait()
		if !slices.Equal(p.names, want) || p.at["19"] > 10*time.Second+100*time.Millisecond {
			t.Errorf("passed in the order %v, the last after %v", p.names, p.at["19"])
		}
		if calls := store.calls.Load(); calls > 120 {
			t.Errorf("%d calls for 20 callers that waited 9 s", calls)
		}
		if got := peekLimit(t, store, l.Limits()[0]); got != 2 || l.Queues() != 0 {
			t.Errorf("%d slots are free and %d queues are left", got, l.Queues())
		}
	})
}

// A slot that another process releases is found by polling, which becomes rare.
func TestAcquireWaitPollsForOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		mine, other := limiterOn(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour}),
			limiterOn(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour})
		lease, err := other.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		p := newPassing()
		for i := range 200 {
			p.wait(fmt.Sprint(i), func() error { return work(t.Context(), mine, 0) })
		}
		before := store.calls.Load()
		time.Sleep(time.Minute)
		if calls := store.calls.Load() - before; calls < 100 || calls > 300 {
			t.Errorf("%d calls in a minute for 200 callers that wait, want some 160", calls)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		p.Wait()
		if took := time.Since(released); took > time.Second {
			t.Errorf("the last caller passed %v after the release", took)
		}
	})
}

// A rate and slots are one decision: 10 a second, 3 at once.
func TestAcquireWaitForRateAndSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, memstore.New(), weir.GCRA(1, 10, time.Second), weir.Concurrency{Limit: 3, TTL: time.Minute})
		var held, most atomic.Int64
		p := newPassing()
		for i := range 60 {
			p.wait(fmt.Sprint(i), func() error {
				lease, err := l.AcquireWait(t.Context(), "key")
				if err != nil {
					return err
				}
				most.Store(max(most.Load(), held.Add(1)))
				time.Sleep(200 * time.Millisecond)
				held.Add(-1)
				return lease.Release(t.Context())
			})
		}
		p.Wait()
		if took := time.Since(p.start); len(p.names) != 60 || most.Load() > 3 || took < 5900*time.Millisecond ||
			took > 7*time.Second {
			t.Errorf("%d passed in %v, at most %d at once; want 60 in 6 s, 3 at once", len(p.names), took, most.Load())
		}
	})
}

// A caller whose context ends holds nothing, and refusals by a slot tell no time after which a wait would be in vain.
func TestAcquireWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		l := limiterOn(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour})
		lease, err := l.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		p := newPassing()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for i := range 5 {
			p.wait(fmt.Sprint(i), func() error { return work(ctx, l, 0) })
		}
		p.Wait()
		for name, err := range p.errs {
			if !errors.Is(err, context.DeadlineExceeded) || p.at[name] != 3*time.Second {
				t.Errorf("%s: %v after %v", name, err, p.at[name])
			}
		}
		// The store decides slowly, and the caller leaves before the answer.
		store.takes.Store(int64(time.Second))
		p.wait("left", func() error {
			short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			return work(short, l, 0)
		})
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		time.Sleep(10 * time.Second)
		if got := peekLimit(t, store, l.Limits()[0]); got != 1 || l.Queues() != 0 {
			t.Errorf("%d slots are free and %d queues are left", got, l.Queues())
		}
	})
}

func TestAcquireWaitRefusesWhatIsNeverGranted(t *testing.T) {
	l := limiterOn(t, memstore.New(), weir.PerHour(1))
	if _, err := l.AcquireWait(t.Context(), "key"); !isInput(err) {
		t.Errorf("without a concurrency limit: %v", err)
	}
	held := limiterOn(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	if err := held.Wait(t.Context(), "key"); !isInput(err) {
		t.Errorf("Wait with a concurrency limit: %v", err)
	}
}
