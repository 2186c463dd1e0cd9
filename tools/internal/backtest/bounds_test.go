package backtest

import (
	"math/rand/v2"
	"testing"
)

// A table that is too small estimates the number of ids, and keeps the same ones whatever their order.
func TestSampledTableEstimates(t *testing.T) {
	const ids, most = 100_000, 4096
	forward, backward := newSampled[int](most), newSampled[int](most)
	for i := range uint64(ids) {
		for _, x := range []struct {
			table *sampled[int]
			id    uint64
		}{{forward, i}, {backward, ids - 1 - i}} {
			if place := x.table.place(x.id); place >= 0 {
				x.table.items[place].v++
			}
		}
	}
	for _, table := range []*sampled[int]{forward, backward} {
		got := int64(len(table.items)) * table.weight()
		if len(table.items) > most || got < ids*95/100 || got > ids*105/100 {
			t.Errorf("%d records of weight %d for %d ids", len(table.items), table.weight(), ids)
		}
	}
	for i := range forward.items {
		x := &forward.items[i]
		if other := backward.known(x.id); other == nil || x.v != 1 || *other != 1 {
			t.Errorf("id %d: %d, %v", x.id, x.v, other)
		}
	}
	if place := forward.place(forward.items[7].id); place != 7 {
		t.Errorf("the eighth record is at %d", place)
	}
}

// With too many charges in a window fewer keys are kept, and the peaks of these stay exact.
func TestPeaksStayExactWhereKeysAreDropped(t *testing.T) {
	all, few := newKeys(1000, 1), newKeys(1000, 1)
	few.max = 1 << 8
	r := rand.New(rand.NewPCG(1, 2))
	at := int64(0)
	for range 50_000 {
		at += int64(r.IntN(2))
		id, units := r.Uint64N(500), int64(1+r.IntN(3))
		all.observe(id, 0, at, units, false)
		few.observe(id, 0, at, units, false)
		if r.IntN(100) == 0 {
			all.count()
			few.count()
		}
		if few.used > few.max {
			t.Fatalf("%d charges; at most %d", few.used, few.max)
		}
	}
	all.count()
	few.count()
	if all.table.shift != 0 || few.table.shift == 0 {
		t.Fatalf("1 of 2^%d keys is kept, and 1 of 2^%d", all.table.shift, few.table.shift)
	}
	for i := range few.table.items {
		x := &few.table.items[i]
		if exact := all.table.known(x.id); exact.peak != x.v.peak {
			t.Errorf("key %d has the peak %d, want %d", x.id, x.v.peak, exact.peak)
		}
	}
}

// Steps of a timeline grow with the log, and nothing is lost.
func TestTimelineGrows(t *testing.T) {
	line := newTimeline(2)
	for i := range int64(50_000) {
		line.add(int(i%2), line.at((1_800_000_123+i*17)*second))
	}
	var sums [2]int64
	for r := range sums {
		row := line.row(r, line.length())
		for _, n := range row {
			sums[r] += n
		}
		if len(row) > maxSteps {
			t.Errorf("%d steps", len(row))
		}
	}
	if sums != [2]int64{25_000, 25_000} || line.start%steps[line.step] != 0 || line.stepText() != "30m0s" {
		t.Errorf("%v, %d, %s", sums, line.start, line.stepText())
	}
}

func TestIDsOfClients(t *testing.T) {
	for id, want := range map[uint64]string{idV4 | 0xc0000207: "192.0.2.7", 0x20010db8_00010002: "2001:db8:1:2::/64",
		idUnknown: "unknown"} {
		if got := nameOf(id); got != want {
			t.Errorf("%x is %s, want %s", id, got, want)
		}
		if id != idUnknown && idOf(prefixOf(id).Addr()) != id {
			t.Errorf("%s has the id %x, want %x", want, idOf(prefixOf(id).Addr()), id)
		}
	}
}

// A window is half open: what was charged exactly a window ago is out of it.
func TestWindowOfPeaksIsHalfOpen(t *testing.T) {
	for second, want := range map[int64]int64{999: 2, 1000: 1} {
		k := newKeys(1000, 1)
		k.observe(7, 0, 0, 1, false)
		k.observe(7, 0, second, 1, false)
		if k.count(); k.peaks(false)[0] != want {
			t.Errorf("two requests %d µs apart have the peak %d, want %d", second, k.peaks(false)[0], want)
		}
	}
}
