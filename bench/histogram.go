package main

import (
	"math/bits"
	"time"
)

// A histogram counts durations in steps of 1/16 of a power of two: its percentiles are at
// most 6 % too high.
type histogram struct {
	counts [64 * steps]int64
	n      int64
}

const (
	stepBits = 4
	steps    = 1 << stepBits
)

func step(ns uint64) int {
	if ns < steps {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - stepBits
	return (shift+1)<<stepBits + int(ns>>shift) - steps
}

// above is the smallest number of nanoseconds of the next step.
func above(i int) uint64 {
	i++
	if i < steps {
		return uint64(i)
	}
	shift := i>>stepBits - 1
	return uint64(i&(steps-1)+steps) << shift
}

func (h *histogram) record(d time.Duration) {
	h.counts[step(uint64(max(0, d)))]++
	h.n++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
}

// percentile is a duration that p of 1 did not exceed.
func (h *histogram) percentile(p float64) time.Duration {
	rest := int64(p * float64(h.n))
	for i, n := range h.counts {
		if rest -= n; rest < 0 {
			return time.Duration(above(i) - 1)
		}
	}
	return 0
}
