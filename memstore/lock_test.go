package memstore

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// A refusal or a peek goes on while somebody holds every mutex that writers take.
func TestRefusalsTakeNoWriteLock(t *testing.T) {
	for _, specs := range [][]weir.Spec{
		{weir.PerHour(1)},
		{weir.TokenBucket{Capacity: 1, Refill: 7, Period: time.Hour, Overdraft: 1}},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Hour, Mode: weir.Step}},
		{weir.FixedWindow{Limit: 1, Window: time.Hour}},
		{weir.Calendar{Limit: 1, Unit: weir.Year}},
		{weir.SlidingLog{Limit: 1, Window: time.Hour}},
		{weir.SlidingCounter{Limit: 1, Window: time.Hour, Slices: 10}},
		{weir.PerHour(1), weir.SlidingLog{Limit: 5, Window: time.Hour}},
	} {
		store := New()
		l, err := weir.New(store, "test", specs...)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			l.Allow(t.Context(), "key")
		}
		if !refusedUnderLock(t, store, l) {
			t.Errorf("%v: the refusal waited for a writer's mutex", specs)
		}
	}
}

// refusedUnderLock refuses and peeks while all mutexes are held.
func refusedUnderLock(t *testing.T, store *Store, l *weir.Limiter) bool {
	for i := range store.shards {
		store.shards[i].mu.Lock()
		defer store.shards[i].mu.Unlock()
	}
	done := make(chan error, 1)
	go func() {
		answer, err := l.Allow(context.Background(), "key")
		if err == nil && answer.Allowed {
			t.Error("allowed")
		}
		l.Peek(context.Background(), "never used")
		done <- err
	}()
	select {
	case err := <-done:
		return err == nil
	case <-time.After(time.Minute):
		return false
	}
}
