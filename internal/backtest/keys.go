package backtest

import (
	"cmp"
	"slices"
)

// keys has the peaks of a rule's keys: the largest number of units in a window that slides over the log, exactly.
type keys struct {
	window int64 // µs
	table  *sampled[key]
	nodes  []node // of all keys' lists
	free   int32  // the first free node; 0: none
	used   int
	max    int // of nodes
}

// A key is one of a rule.
type key struct {
	head, tail int32 // of its units in the window, the oldest first; 0: none
	sum, peak  int64
	second     int64 // of its last request
	inSecond   int32
	cluster    int32 // its most requests in a second
	good       bool
	refused    bool
}

// A node is units at one instant.
type node struct {
	at    int64
	units int64
	next  int32
}

// maxNodes is the number of nodes of all rules together, 24 bytes each; a table of keys has at most a quarter as many.
const maxNodes = 8 << 20

func newKeys(window int64, rules int) *keys {
	most := max(1<<14, maxNodes/max(1, rules))
	k := &keys{window: window, max: most, nodes: make([]node, 1), table: newSampled[key](most / 4)}
	k.table.drop = k.release
	return k
}

// add counts the units of a request. Instants do not go back.
func (k *keys) add(id uint64, at, units int64, good, refused bool) {
	place := k.table.place(id)
	if place < 0 {
		return
	}
	x := &k.table.items[place]
	x.good = x.good || good
	x.refused = x.refused || refused
	if s := floorDiv(at, second); s != x.second || x.inSecond == 0 {
		x.second, x.inSecond = s, 0
	}
	x.inSecond++
	x.cluster = max(x.cluster, x.inSecond)
	k.expire(x, at)
	if x.tail != 0 && k.nodes[x.tail].at == at {
		k.nodes[x.tail].units += units
	} else {
		k.push(x, at, units)
	}
	x.sum += units
	x.peak = max(x.peak, x.sum)
	if k.used > k.max {
		k.shrink(at)
	}
}

// expire drops what is out of the window (at − window, at].
func (k *keys) expire(x *key, at int64) {
	for x.head != 0 && k.nodes[x.head].at <= at-k.window {
		head := x.head
		n := &k.nodes[head]
		x.sum -= n.units
		if x.head = n.next; x.head == 0 {
			x.tail = 0
		}
		n.next, k.free = k.free, head
		k.used--
	}
}

func (k *keys) push(x *key, at, units int64) {
	i := k.free
	if i != 0 {
		k.free = k.nodes[i].next
	} else {
		i = int32(len(k.nodes))
		k.nodes = append(k.nodes, node{})
	}
	k.nodes[i] = node{at: at, units: units}
	if x.tail != 0 {
		k.nodes[x.tail].next = i
	} else {
		x.head = i
	}
	x.tail = i
	k.used++
}

// release frees the nodes of a key that is dropped.
func (k *keys) release(x *key) { k.expire(x, 1<<62) }

// shrink makes room: first by what is out of the window, then by keeping fewer keys.
func (k *keys) shrink(at int64) {
	for i := range k.table.items {
		k.expire(&k.table.items[i], at)
	}
	for k.used > k.max/2 && len(k.table.items) > 1 {
		k.table.halve()
	}
}

// peaks are the keys' peaks, ascending; of good keys only if asked.
func (k *keys) peaks(good bool) (list []int64) {
	for i := range k.table.items {
		if x := &k.table.items[i]; !good || x.good {
			list = append(list, x.peak)
		}
	}
	slices.Sort(list)
	return list
}

// bars is the histogram of peaks: each number by itself up to 10, then about ten bars for each factor of ten.
func bars(peaks []int64, weight int64) (list []Bar) {
	for _, peak := range peaks {
		last := len(list) - 1
		if last < 0 || peak > list[last].To {
			from, to := barOf(peak)
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
