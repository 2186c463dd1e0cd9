package redisstore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/redisslot"
)

// clockStep is the least step of Redis' clock that counts as one: NTP moves clocks by less without stepping them.
const clockStep = time.Second

// clocks compares Redis' clock with this process's monotonic one, by every reply. In a Cluster each master has a clock:
// the offset is noted by slot.
//
// After a step back, buckets, leases and bans that were written before it end later than any rule says, and a state
// does not show it. Until Redis' clock has reached its former instant, scripts shorten such states: see step cap of the
// twins.
type clocks struct {
	warn    func(string)
	start   time.Time
	offsets []atomic.Int64 // of Redis' clock, µs; 0: not known yet
	until   atomic.Int64   // µs since start: states may be of a clock that was ahead
	told    atomic.Int64   // µs since start, of the last warning
	steps   atomic.Int64
}

func newClocks(cluster bool, warn func(string)) *clocks {
	c := &clocks{warn: warn, start: time.Now(), offsets: make([]atomic.Int64, 1)}
	if cluster {
		c.offsets = make([]atomic.Int64, redisslot.Count)
	}
	return c
}

func (c *clocks) now() int64 { return time.Since(c.start).Microseconds() }

// behind reports whether Redis' clock was ahead of its present time.
func (c *clocks) behind() bool {
	until := c.until.Load()
	return until != 0 && c.now() < until
}

// see notes Redis' time in the reply to a call that was sent at an instant and answered now, on a key.
func (c *clocks) see(at, sent int64, key string) {
	offset := &c.offsets[0]
	if len(c.offsets) > 1 {
		offset = &c.offsets[redisslot.Of(key)]
	}
	now, known := c.now(), offset.Load()
	least, most := at-now, at-sent
	switch {
	case known == 0 || least <= known && known <= most:
		if known != 0 {
			return
		}
		known = least
	case known < least:
		c.stepped(least-known, now)
		known = least
	default:
		c.stepped(most-known, now)
		known = most
	}
	offset.Store(known)
}

// stepped notes a step, unless it is as small as a correction by NTP. A warning a minute is enough: in
// a Cluster each slot notices.
func (c *clocks) stepped(by, now int64) {
	step := time.Duration(by) * time.Microsecond
	if step.Abs() <= clockStep {
		return
	}
	c.steps.Add(1)
	if until := now - by; by < 0 && until > c.until.Load() {
		c.until.Store(until)
	}
	last := c.told.Load()
	lately := last != 0 && now-last < time.Minute.Microseconds()
	if c.warn == nil || lately || !c.told.CompareAndSwap(last, max(1, now)) {
		return
	}
	c.warn(fmt.Sprintf("redisstore: the clock of Redis stepped by %v: limits count by it; set it right, and keep it "+
		"so (NTP, no suspended machines). What it charged while it was ahead is shortened where it is found", step))
}

// Behind reports whether Redis' clock was ahead of its present time, as seen by the store: state may be found that
// ends later than any rule says.
func (s *Store) Behind() bool { return s.clocks.behind() }

// ClockSteps is how often Redis' clock stepped by more than a second, as seen by the store.
func (s *Store) ClockSteps() int64 { return s.clocks.steps.Load() }
