package backtest

import (
	"cmp"
	"math"
	"slices"
)

// keys has the peaks of a rule's keys: the largest number of units in a window that slides over the log, exactly.
type keys struct {
	window int64 // µs
	table  *sampled[key]
	// charges are the charges in the window of the last request, in the order of time, in a ring: from first, used of
	// them.
	charges []charge
	first   int
	used    int
	max     int // of charges
	waiting []observed
	touched int64 // keeps the compiler from leaving out the look-ups
}

// observed is a request that is not counted yet.
type observed struct {
	id, client uint64
	at, units  int64
	good       bool
}

// observe notes the units of a request, which count counts. Instants do not go back.
func (k *keys) observe(id, client uint64, at, units int64, good bool) {
	k.waiting = append(k.waiting, observed{id, client, at, units, good})
}

// count counts the requests that were noted. The records of all are looked up before the first is changed: so the
// processor waits for many of them at once.
func (k *keys) count() {
	var sum int64
	for i := range k.waiting {
		if x := k.table.known(k.waiting[i].id); x != nil {
			sum += x.sum
		}
	}
	k.touched = sum
	for i := range k.waiting {
		o := &k.waiting[i]
		k.add(o)
	}
	k.waiting = k.waiting[:0]
}

// A key is one of a rule.
type key struct {
	sum, peak int64  // units in the window
	client    uint64 // that of its first request
	good      bool
}

// A charge is units of a key at an instant.
type charge struct {
	at    int64
	place int32 // of the key; −1: it is not kept
	units int32 // more are several charges
}

// maxCharges is the number of charges of all rules together, 16 bytes each; a table of keys has at most a quarter as
// many records.
const maxCharges = 8 << 20

func newKeys(window int64, rules int) *keys {
	most := 1 << 14
	for 2*most*max(1, rules) <= maxCharges {
		most *= 2
	}
	k := &keys{window: window, max: most, charges: make([]charge, 1<<10), table: newSampled[key](most / 4)}
	k.table.moved = func(places []int32) {
		for i := range k.used {
			if c := &k.charges[(k.first+i)&(len(k.charges)-1)]; c.place >= 0 {
				c.place = places[c.place]
			}
		}
	}
	return k
}

// add counts the units of a request.
func (k *keys) add(o *observed) {
	k.expire(o.at)
	place := k.table.place(o.id)
	if place < 0 {
		return
	}
	x := &k.table.items[place].v
	if x.good = x.good || o.good; x.client == 0 {
		x.client = o.client
	}
	x.sum += o.units
	x.peak = max(x.peak, x.sum)
	for units := o.units; units > 0; units -= math.MaxInt32 {
		k.push(charge{o.at, int32(place), int32(min(units, math.MaxInt32))})
	}
}

// expire drops charges outside the window (at − window, at].
func (k *keys) expire(at int64) {
	mask := len(k.charges) - 1
	for k.used > 0 && k.charges[k.first].at <= at-k.window {
		if c := &k.charges[k.first]; c.place >= 0 {
			k.table.items[c.place].v.sum -= int64(c.units)
		}
		k.first = (k.first + 1) & mask
		k.used--
	}
}

// push adds a charge. If there are too many, fewer keys are kept.
func (k *keys) push(c charge) {
	if k.used == len(k.charges) {
		k.grow()
	}
	k.charges[(k.first+k.used)&(len(k.charges)-1)] = c
	k.used++
	for k.used == k.max && len(k.table.items) > 1 {
		k.table.halve()
		k.compact()
	}
}

// grow doubles the ring.
func (k *keys) grow() {
	larger := make([]charge, 2*len(k.charges))
	n := copy(larger, k.charges[k.first:])
	copy(larger[n:], k.charges[:k.first])
	k.charges, k.first = larger, 0
}

// compact drops the charges of keys that are not kept.
func (k *keys) compact() {
	mask, n := len(k.charges)-1, 0
	for i := range k.used {
		if c := k.charges[(k.first+i)&mask]; c.place >= 0 {
			k.charges[(k.first+n)&mask] = c
			n++
		}
	}
	k.used = n
}

// peaks are the keys' peaks, ascending; of good keys only if asked.
func (k *keys) peaks(good bool) (list []int64) {
	for i := range k.table.items {
		if x := &k.table.items[i].v; !good || x.good {
			list = append(list, x.peak)
		}
	}
	slices.Sort(list)
	return list
}

// goodFrom names clients of good keys with at least this peak.
func (k *keys) goodFrom(peak int64, most int) (names []string) {
	for i := range k.table.items {
		if x := &k.table.items[i].v; x.good && x.peak >= peak && len(names) < most {
			names = append(names, nameOf(x.client))
		}
	}
	return names
}

// bars is the histogram of peaks: each number separately up to 10, then about ten bars for each factor of ten. No bar
// has peaks both of at most units and of more, so that those above a limit can be counted.
func bars(peaks []int64, weight, units int64) (list []Bar) {
	for _, peak := range peaks {
		last := len(list) - 1
		if last < 0 || peak > list[last].To {
			from, to := barOf(peak)
			switch {
			case from <= units && peak > units:
				from = units + 1
			case peak <= units && to > units:
				to = units
			}
			list = append(list, Bar{From: from, To: to})
			last++
		}
		list[last].Keys += weight
	}
	return list
}

// barEnds are where bars begin, in a factor of ten.
var barEnds = []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100}

func barOf(n int64) (from, to int64) {
	if n < 10 {
		return n, n
	}
	scale := int64(1)
	for n/scale >= 100 {
		scale *= 10
	}
	i, exact := slices.BinarySearchFunc(barEnds, n, func(end, n int64) int { return cmp.Compare(end*scale, n) })
	if !exact {
		i--
	}
	return barEnds[i] * scale, barEnds[i+1]*scale - 1
}
