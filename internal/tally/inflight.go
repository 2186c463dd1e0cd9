package tally

import "sync/atomic"

// An InFlight finds calls that do not return. It counts the calls in progress in two generations. A new generation
// begins when no call of the previous one is left, so that a call that hangs keeps its generation alive. The calls
// themselves read no clock. The zero InFlight is ready to use. Its methods are safe for concurrent use, but Tick is for
// one goroutine.
type InFlight struct {
	stripe [stripes]struct {
		calls [2]atomic.Int64 // of each generation
		_     [48]byte        // keeps stripes on lines of their own
	}
	generation atomic.Uint32
	ticks      int
}

// Begin counts the beginning of a call. The caller adds −1 to the result at its end. Calls with different lanes
// mostly write different memory; a lane may be an address.
func (f *InFlight) Begin(lane uintptr) *atomic.Int64 {
	const a = 0x9e3779b97f4a7c15
	n := &f.stripe[uint64(lane)*a>>(64-stripeBits)].calls[f.generation.Load()%2]
	n.Add(1)
	return n
}

// Tick returns the number of ticks before this one that a call in progress has seen. It counts ticks instead of reading
// a clock, because a process that was stopped for a minute has no call that hangs.
func (f *InFlight) Tick() int {
	now := f.generation.Load()
	var old int64
	for i := range f.stripe {
		old += f.stripe[i].calls[(now+1)%2].Load()
	}
	if old == 0 {
		f.generation.Store(now + 1)
		f.ticks = 0
		return 0
	}
	f.ticks++
	return f.ticks
}
