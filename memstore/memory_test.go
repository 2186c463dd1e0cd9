//go:build !race

package memstore_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// A counter's or a log's key costs no more than 150 bytes while its numbers are small.
func TestBytesOfACounterAndALog(t *testing.T) {
	const keys = 100_000
	for _, spec := range []weir.Spec{
		weir.SlidingCounter{Limit: 100_000, Window: time.Hour, Slices: 10},
		weir.SlidingLog{Limit: 100, Window: time.Hour},
	} {
		store, _ := driven(t, keys)
		l := limiter(t, store, spec)
		before := heap()
		for i := range keys {
			allow(t, l, name(i))
			allow(t, l, name(i))
		}
		used, counted := float64(heap()-before)/keys, float64(store.Stats().Bytes)/keys
		if used > 150 || counted < 0.9*used || counted > 1.1*used {
			t.Errorf("%v: %.1f bytes each, %.1f by Stats", spec, used, counted)
		}
	}
}

// A bucket's key costs no more than 64 bytes, all told, at any number of keys and whatever its length.
func TestBytesAKey(t *testing.T) {
	const keys = 1_000_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("ip:%018d", i)
	}
	store, _ := driven(t, keys)
	l := limiter(t, store, weir.TokenBucket{Capacity: 10, Refill: 7, Period: time.Hour})
	before := heap()
	for i, name := range names {
		allow(t, l, name)
		if i+1 == 700_000 || i+1 == 850_000 || i+1 == keys {
			used := float64(heap()-before) / float64(i+1)
			if used > 64 {
				t.Errorf("%d keys: %.1f bytes each", i+1, used)
			}
			t.Logf("%d keys: %.1f bytes each, %.1f by Stats", i+1, used, float64(store.Stats().Bytes)/float64(i+1))
		}
	}
	if store.Stats().Overflow != 0 {
		t.Error("a million keys did not fit under a ceiling of a million")
	}
	runtime.KeepAlive(names)
}
