package weir

import (
	"sync/atomic"
	"time"
)

// meanHold is the mean time for which units of a concurrency limit are held, as this process saw it.
type meanHold struct {
	mean   atomic.Int64 // ns, weighted towards the last ones; 0: no release was seen
	wanted atomic.Bool  // a wait was asked for: only then each release is worth reading a clock
}

// Advice is the wait to send to a refused client, if wait is the decision's RetryAfter. For most limits it is wait. For
// a [Concurrency] limit wait is an upper bound, the time until leases expire without a release: there Advice is the
// spec's RetryAfter, else the mean time between a grant and its release in this process, from 1 s to wait. Before the
// first release it is a tenth of the time-to-live.
func (l *Limit) Advice(wait time.Duration) time.Duration {
	if wait == 0 || wait == Never || !l.Leases() {
		return wait
	}
	if own, _ := l.spec.(Concurrency); own.RetryAfter > 0 {
		return min(wait, own.RetryAfter)
	}
	if !l.hold.wanted.Load() {
		l.hold.wanted.Store(true)
	}
	usual := time.Duration(l.hold.mean.Load())
	if usual == 0 {
		usual = time.Duration(l.period) * time.Microsecond / 10
	}
	return min(wait, max(time.Second, usual))
}

// Held tells the limit, for Advice, that a lease was released. held is the time since its grant; it is called only if
// Advice needs it.
func (l *Limit) Held(held func() time.Duration) {
	before := l.hold.mean.Load()
	if before != 0 && !l.hold.wanted.Load() {
		return
	}
	now := int64(min(max(1, held()), time.Duration(l.period)*time.Microsecond))
	if before != 0 {
		now = before + (now-before)/8
	}
	l.hold.mean.Store(now) // of two at once, one may be lost
}
