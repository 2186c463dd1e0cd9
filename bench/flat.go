package main

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

const flatName = "lock-free table of 16-byte entries, one bucket"

// flatRow is what no limiter of many keys can beat by much: one array of hashes and full instants, of a fixed size, half
// empty, from which nothing is ever dropped. Two keys whose hashes are equal share a bucket.
func flatRow() row {
	return row{name: flatName, refuses: true, open: func(q Quota) (Peer, error) {
		return shared(newFlat(q).take, nil), nil
	}}
}

type flat struct {
	seed        maphash.Seed
	start       time.Time
	unit, burst int64
	entries     []flatEntry
}

type flatEntry struct{ hash, full atomic.Int64 }

func newFlat(q Quota) *flat {
	return &flat{seed: maphash.MakeSeed(), start: time.Now(), unit: q.Every.Microseconds(), burst: q.Every.Microseconds() * q.Burst,
		entries: make([]flatEntry, 1<<21)}
}

func (f *flat) take(key string) (bool, error) {
	now := time.Since(f.start).Microseconds() + 1
	hash := int64(maphash.String(f.seed, key)) | 1
	i := uint64(hash) >> 43
	for f.entries[i].hash.Load() != hash {
		if f.entries[i].hash.CompareAndSwap(0, hash) {
			break
		}
		if f.entries[i].hash.Load() != hash {
			i = (i + 1) & (1<<21 - 1)
		}
	}
	for {
		full := f.entries[i].full.Load()
		next := max(full, now) + f.unit
		if next-now > f.burst {
			return false, nil
		}
		if f.entries[i].full.CompareAndSwap(full, next) {
			return true, nil
		}
	}
}
