package memstore

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// wallStep is the least step of the wall clock that counts as one: clocks are kept right by less without a step.
	wallStep = time.Second
	// lookEvery is how often the clocks are compared, while requests come.
	lookEvery = time.Second
)

// WithWarn sets a function that is told of a step of the wall clock, which windows of calendars and epochs follow.
func WithWarn(warn func(string)) Option { return func(s *Store) { s.wall.warn = warn } }

// wall compares the wall clock with the store's, which is monotonic: a machine may start with a wrong time.
type wall struct {
	micros func(time.Time) int64 // Time.UnixMicro, but in tests
	warn   func(string)          // nil: nobody is told
	ahead  atomic.Int64          // µs by which the wall clock is ahead
	look   atomic.Int64          // µs by the store's clock, before which they are not compared
}

// A moment is an instant of a store's clock.
type moment struct {
	at   int64 // µs since 1970
	grid int64 // that of window.State
}

// now is the store's clock. time.Since reads one clock where time.Now reads two.
func (s *Store) now() moment {
	if s.clock != nil {
		return moment{at: int64(s.clock())}
	}
	at := s.epoch + time.Since(s.start).Microseconds()
	if at >= s.wall.look.Load() {
		s.compare(at)
	}
	return moment{at, s.wall.ahead.Load()}
}

// compare notes a step of the wall clock. It reads the clocks twice, as a goroutine may be interrupted between the two
// of one reading.
func (s *Store) compare(now int64) {
	look := s.wall.look.Load()
	if now < look || !s.wall.look.CompareAndSwap(look, now+lookEvery.Microseconds()) {
		return // another goroutine does
	}
	before := s.wall.ahead.Load()
	step := s.drift() - before
	if again := s.drift() - before; max(again, -again) < max(step, -step) {
		step = again
	}
	by := time.Duration(step) * time.Microsecond
	if by.Abs() <= wallStep {
		return
	}
	s.wall.ahead.Store(before + step)
	if s.wall.warn != nil {
		s.wall.warn(fmt.Sprintf("memstore: the clock of this machine stepped by %v: windows of calendars and epochs "+
			"begin by it from now on; what is counted, leases and bans last as long as before",
			by.Round(time.Millisecond)))
	}
}

// drift is by how much the wall clock is ahead of the store's.
func (s *Store) drift() int64 {
	now := time.Now()
	return s.wall.micros(now) - s.epoch - now.Sub(s.start).Microseconds()
}
