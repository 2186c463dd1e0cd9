//go:build !race

package memstore_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// At a million keys a bucket costs no more than 64 bytes beside its key.
func TestBytesAKey(t *testing.T) {
	const keys = 1_000_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("ip:%015d", i)
	}
	store, _ := driven(t, keys)
	l := limiter(t, store, weir.TokenBucket{Capacity: 10, Refill: 1, Period: time.Hour})
	before := heap()
	for _, name := range names {
		allow(t, l, name)
	}
	used := float64(heap()-before) / keys
	if beside := used - float64(len(names[0])); beside > 64 {
		t.Errorf("a key costs %.1f bytes, %.1f beside its %d bytes of name", used, beside, len(names[0]))
	} else {
		t.Logf("a key costs %.1f bytes, %.1f beside its name", used, beside)
	}
	if store.Stats().Overflow != 0 {
		t.Error("a million keys did not fit under a ceiling of a million")
	}
	runtime.KeepAlive(names)
}
