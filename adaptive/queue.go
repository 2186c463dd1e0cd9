package adaptive

import (
	"context"
	"sync"
	"time"
)

// A queue has the requests that wait. Of a class the latest is served first, because it has the longest time left, and
// the oldest is refused first. It has no lock.
type queue struct {
	Queue
	size    int
	classes []line
	pool    sync.Pool // of *waiter
}

// A line has the waiting requests of a class, from the oldest to the latest.
type line struct {
	oldest, latest *waiter
	since          int64 // Unix time in ns at which the line was empty the last time
}

// A waiter is a request that waits. It is pooled.
type waiter struct {
	class        int
	until        int64 // Unix time in ns
	waiting      bool
	older, newer *waiter
	answered     chan bool // whether it is admitted
	timer        *time.Timer
}

func newWaiter() any {
	w := &waiter{answered: make(chan bool, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// standing is the part of the time that a request waits in a line that was not empty for that time: few of its
// requests are served, so the others are refused soon.
const standing = 10

// add adds a request. A full queue evicts the oldest request of the least important class; a nil w means that all
// waiting requests are more important.
func (q *queue) add(now int64, class int) (w, evicted *waiter) {
	if q.size >= q.Most {
		if evicted = q.evict(class); evicted == nil {
			return nil, nil
		}
	}
	l := &q.classes[class]
	if l.latest == nil {
		l.since = now
	}
	w = q.pool.Get().(*waiter)
	w.class, w.waiting, w.until = class, true, now+int64(q.For)
	if now-l.since >= int64(q.For) {
		w.until = now + int64(q.For)/standing
	}
	w.older, w.newer = l.latest, nil
	if l.latest != nil {
		l.latest.newer = w
	} else {
		l.oldest = w
	}
	l.latest = w
	q.size++
	return w, evicted
}

// evict refuses the oldest request of the least important class, if that is not more important than class.
func (q *queue) evict(class int) *waiter {
	for i := len(q.classes) - 1; i >= class; i-- {
		if w := q.classes[i].oldest; w != nil {
			q.remove(w)
			w.answer(false)
			return w
		}
	}
	return nil
}

func (q *queue) waits(class int) bool { return q.classes[class].latest != nil }

// take removes the latest request of a class.
func (q *queue) take(class int) *waiter {
	w := q.classes[class].latest
	q.remove(w)
	return w
}

func (q *queue) remove(w *waiter) {
	l := &q.classes[w.class]
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		l.latest = w.older
	}
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		l.oldest = w.newer
	}
	w.older, w.newer, w.waiting = nil, nil, false
	q.size--
}

// answer tells a request whether it is admitted.
func (w *waiter) answer(admitted bool) { w.answered <- admitted }

// await waits until a request is admitted or refused.
func (l *Limiter) await(ctx context.Context, w *waiter) error {
	w.timer.Reset(time.Duration(w.until - l.now()))
	defer func() {
		w.timer.Stop()
		l.queue.pool.Put(w)
	}()
	var admitted bool
	select {
	case admitted = <-w.answered:
	case <-w.timer.C:
		admitted = l.withdraw(w, 1)
	case <-ctx.Done():
		if l.withdraw(w, 0) {
			l.Release(Ignored, 0)
		}
		return context.Cause(ctx)
	}
	if !admitted {
		return ErrRefused
	}
	return nil
}

// withdraw takes a request out of the queue, and reports whether it was admitted before. Otherwise it is counted as so
// many refused ones.
func (l *Limiter) withdraw(w *waiter, refused uint64) (admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.waiting {
		return <-w.answered
	}
	l.queue.remove(w)
	l.refused[w.class] += refused
	return false
}
