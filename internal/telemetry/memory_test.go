//go:build !race

package telemetry

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir"
)

// The race detector needs memory and time of its own.

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// mostMemory is what the comment of Recorder states.
const mostMemory = 110 << 20

// Memory stays below the stated one while every rule is asked for by more keys than it counts, half of them refused and
// as long as keys get.
func TestMemoryIsBounded(t *testing.T) {
	n := newNode(t, rulesOf(0, maxWatched), true)
	each := 12_000
	if testing.Short() {
		each = 6_000
	}
	before := heap()
	long := strings.Repeat("x", 100)
	claim := new(weir.Claim)
	claim.Cost = 1
	for round := range each / 500 {
		for _, rule := range n.gate.Rules().Rules() {
			for i := range 500 {
				claim.Key = fmt.Sprintf("user=%d:%d%s", i, round*500+i, long)
				k := n.key(rule, claim, 1, i%2 == 0)
				if i%4 == 0 && !k.counted {
					n.take(&event{rule: rule, keyed: k, key: textOf(claim.Key)}, 1)
				}
			}
		}
		n.pass(tick)
	}
	if used := int64(heap()) - int64(before); used > mostMemory {
		t.Errorf("%d MB, want at most %d", used>>20, mostMemory>>20)
	} else {
		t.Logf("%d MB", used>>20)
	}
	for _, w := range n.watched {
		if keys := len(w.entries) - w.heavy; keys > w.scale.keys || w.heavy > w.scale.heavy || w.level == 0 {
			t.Fatalf("%s has %d keys and %d frequent ones at level %d", w.rule.Name(), keys, w.heavy, w.level)
		}
	}
	runtime.KeepAlive(n)
}

func textOf(s string) (t text) {
	t.set(s)
	return t
}

// A flood of new keys adds no series and, once the sample is full, no memory.
func TestFloodOfKeysAddsNothing(t *testing.T) {
	keys := 10_000_000
	if testing.Short() {
		keys = 500_000
	}
	n := newNode(t, rulesOf(0, 1), true)
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.Recorder)
	claim := &weir.Claim{Cost: 1}
	rule := n.gate.Rules().Rules()[0]
	flood := func(from, to int) (memory uint64, series int) {
		for i := from; i < to; i++ {
			claim.Key = fmt.Sprintf("user=8:%08d", i)
			n.key(rule, claim, 1, false)
			if i%20_000 == 0 {
				n.pass(tick)
			}
		}
		n.pass(tick)
		series, err := testutil.GatherAndCount(registry)
		if err != nil {
			t.Fatal(err)
		}
		return heap(), series
	}
	memory, series := flood(0, keys/10)
	memory2, series2 := flood(keys/10, keys)
	if series != series2 || memory2 > memory+1<<20 {
		t.Errorf("%d series and %d KB became %d series and %d KB", series, memory>>10, series2, memory2>>10)
	}
	distinct := 0.0
	for w, i := n.watched[0], 0; i < len(w.entries); i++ {
		distinct += w.weight(&w.entries[i])
	}
	if d := distinct / float64(keys); d < 0.9 || d > 1.1 {
		t.Errorf("%.0f keys of %d", distinct, keys)
	}
	runtime.KeepAlive(n)
}
