//go:build !race

package telemetry

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// A sketch has no concurrency: the race detector would only be slow.

// The sketch must find the top 50 in a flood of keys that appear once or a few times.
func TestSketchFindsTheTopKeysInAFlood(t *testing.T) {
	events, keys := 10_000_000, uint64(1_000_000)
	if testing.Short() {
		events, keys = 1_000_000, 100_000
	}
	for seed := range uint64(1) {
		random, h, s := rand.New(rand.NewPCG(seed, 7)), newHasher(seed), newSketch(8192)
		exact := make(map[uint64]uint32)
		var key [16]byte
		for range events {
			n := random.Uint64N(keys)
			if random.IntN(10) == 0 { // a tenth of the events: 50 keys, the nth as often as 1/n
				n = keys + uint64(math.Pow(51, random.Float64()))
				exact[n]++
			}
			name := fmt.Appendf(key[:0], "%d", n)
			s.add(h.sum(string(name)), string(name), 1)
		}
		for i, k := range s.sorted()[:50] {
			n, _ := strconv.ParseUint(k.key, 10, 64)
			if want := exact[n]; k.count > want || float64(k.count) < 0.97*float64(want) {
				t.Errorf("seed %d: place %d is key %s with %d events, want %d", seed, i, k.key, k.count, want)
			}
		}
	}
}

func TestSketchListsEachKeyOnce(t *testing.T) {
	h, s := newHasher(1), newSketch(64)
	for i := range 100_000 {
		key := fmt.Sprint(i * i % 977)
		s.add(h.sum(key), key, 1)
		if i%1000 != 0 {
			continue
		}
		seen := make(map[string]bool)
		for j, k := range s.top {
			if seen[k.key] || s.place[k.hash] != j || j > 0 && s.top[(j-1)/2].count > k.count {
				t.Fatalf("after %d events, place %d: %+v", i, j, k)
			}
			seen[k.key] = true
		}
		if len(s.place) != len(s.top) {
			t.Fatalf("%d places of %d keys", len(s.place), len(s.top))
		}
	}
	if s.reset(); len(s.sorted()) != 0 || s.rows[0][0] != (cell{}) {
		t.Error("reset leaves keys")
	}
}

func TestHashesOfKeysDiffer(t *testing.T) {
	a, b := newHasher(1), newHasher(2)
	seen := make(map[uint64]string)
	same, below := 0, 0
	for i := range 200_000 {
		key := fmt.Sprintf("%.*s%d", i%40, "a long prefix of keys, longer than a block", i)
		sum := a.sum(key)
		if other, is := seen[sum]; is {
			t.Fatalf("%q and %q have one hash", key, other)
		}
		seen[sum] = key
		if sum == b.sum(key) {
			same++
		}
		if sum < 1<<62 {
			below++
		}
		if sum == 0 || sum&1 == 1 {
			t.Fatalf("%q: %d", key, sum)
		}
	}
	if same > 0 || below < 49_000 || below > 51_000 {
		t.Errorf("%d hashes are the same with another seed, %d of 200000 are in the lowest quarter", same, below)
	}
}

// sorted are the top keys, the most frequent first.
func (s *sketch) sorted() []heavyKey {
	list := slices.Clone(s.top)
	slices.SortFunc(list, func(a, b heavyKey) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.hash, b.hash))
	})
	return list
}
