// Package tally counts decisions: by rule and outcome, and by latency. Metrics and telemetry read the same
// counters, so that a decision is counted once.
package tally

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets of latencies: 8 of equal width in each power of two of nanoseconds, so that a bucket is at most 1/8
// of its lower bound wide. The first one holds all below 256 ns, the last all from 2^34 ns (17 s) on.
const (
	subBits    = 3
	firstPower = 8
	lastPower  = 34
	numBuckets = 1 + (lastPower-firstPower)<<subBits + 1
)

// bucketOf is the index of a latency's bucket.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	power := bits.Len64(n) - 1
	switch {
	case power < firstPower:
		return 0
	case power >= lastPower:
		return numBuckets - 1
	}
	sub := n >> (power - subBits) & (1<<subBits - 1)
	return 1 + (power-firstPower)<<subBits + int(sub)
}

// lowerBound is the smallest latency in a bucket.
func lowerBound(bucket int) time.Duration {
	if bucket == 0 {
		return 0
	}
	power, sub := firstPower+(bucket-1)>>subBits, (bucket-1)&(1<<subBits-1)
	return time.Duration(1<<subBits+sub) << (power - subBits)
}

// Buckets are the numbers of latencies in each bucket, without zeros, in ascending order. nil is empty.
type Buckets []Bucket

// A Bucket is a number of latencies.
type Bucket struct {
	Index uint8  `json:"index"`
	Count uint64 `json:"count"`
}

// Add adds other buckets.
func (b Buckets) Add(other Buckets) Buckets {
	sum := make(Buckets, 0, len(b)+len(other))
	for len(b) > 0 && len(other) > 0 {
		switch {
		case b[0].Index < other[0].Index:
			sum, b = append(sum, b[0]), b[1:]
		case b[0].Index > other[0].Index:
			sum, other = append(sum, other[0]), other[1:]
		default:
			sum = append(sum, Bucket{b[0].Index, b[0].Count + other[0].Count})
			b, other = b[1:], other[1:]
		}
	}
	return append(append(sum, b...), other...)
}

// Minus is the difference to earlier buckets of the same latencies.
func (b Buckets) Minus(earlier Buckets) (list Buckets) {
	for _, now := range b {
		for len(earlier) > 0 && earlier[0].Index < now.Index {
			earlier = earlier[1:]
		}
		if len(earlier) > 0 && earlier[0].Index == now.Index {
			now.Count -= earlier[0].Count
		}
		if now.Count > 0 {
			list = append(list, now)
		}
	}
	return list
}

// Total is the number of latencies.
func (b Buckets) Total() (n uint64) {
	for i := range b {
		n += b[i].Count
	}
	return n
}

// Cumulative are the numbers of latencies below powers of two, in seconds, for a histogram of Prometheus, whose
// bounds are 1 ns less. Each power is there, so that all nodes have the same series.
func (b Buckets) Cumulative() map[float64]uint64 {
	list := make(map[float64]uint64, lastPower-firstPower+1)
	var n uint64
	for power := firstPower; power <= lastPower; power++ {
		for len(b) > 0 && lowerBound(int(b[0].Index)) < 1<<power {
			n, b = n+b[0].Count, b[1:]
		}
		list[time.Duration(1<<power).Seconds()] = n
	}
	return list
}

// Quantile is the middle of the bucket with the quantile q, 0 to 1: within 1/16 of the exact one, from 256 ns to
// 17 s. It is 0 if there are no latencies.
func (b Buckets) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(b.Total()))
	for i := range b {
		if n := b[i].Count; rank < n || i == len(b)-1 {
			return middle(int(b[i].Index))
		} else {
			rank -= n
		}
	}
	return 0
}

func middle(bucket int) time.Duration {
	if bucket == numBuckets-1 {
		return lowerBound(bucket)
	}
	return (lowerBound(bucket) + lowerBound(bucket+1)) / 2
}

// stripes is the number of copies of a Latency. Concurrent requests use different ones, because a counter that
// several processors write moves between their caches.
const (
	stripeBits = 2
	stripes    = 1 << stripeBits
)

// A Latency counts latencies. The zero Latency is empty. It is safe for concurrent use.
type Latency struct {
	stripe [stripes]struct {
		sum    atomic.Uint64 // nanoseconds
		counts [numBuckets]atomic.Uint64
		_      [64]byte // keeps stripes on lines of their own
	}
}

// Observe counts a latency. Calls with different lanes mostly write different memory; a lane may be an address. The
// result is as good as random for drawing a sample: a hash of counters that each call changes. A generator would be one
// more word for all to write.
func (l *Latency) Observe(d time.Duration, lane uintptr) (noise uint64) {
	const a, b = 0x9e3779b97f4a7c15, 0xd1342543de82ef95
	s := &l.stripe[uint64(lane)*a>>(64-stripeBits)]
	noise = s.sum.Add(uint64(max(d, 0)))*a ^ s.counts[bucketOf(d)].Add(1)*b
	return (noise ^ noise>>32) * a
}

// Read returns the counts so far, and the sum of the latencies.
func (l *Latency) Read() (counts Buckets, sum time.Duration) {
	for bucket := range numBuckets {
		var n uint64
		for i := range l.stripe {
			n += l.stripe[i].counts[bucket].Load()
		}
		if n > 0 {
			counts = append(counts, Bucket{uint8(bucket), n})
		}
	}
	for i := range l.stripe {
		sum += time.Duration(l.stripe[i].sum.Load())
	}
	return counts, sum
}
