// Package faulttest asks a store for decisions while what the store stands on breaks, and
// accounts for every answer: how long it took, whether Redis decided, and whether what was
// charged is what was granted.
package faulttest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	tick = time.Millisecond

	// burst bounds what is asked at once after this process stood still: the rest of what
	// was due is left out, or a busy machine's pause would be a fault of its own.
	burst = 50 * time.Millisecond

	// patience is how many budgets make an answer late. A decision over slots of a Cluster may
	// take three: one to ask, and two to give back what another slot refused. The rest is for
	// a machine that is short of processors; what hangs, hangs for seconds.
	patience = 20
)

// A Load asks a store at a steady rate, whether answers come or not: each decision has a
// goroutine of its own, so a store that hangs is seen as what it would be to a server.
// All it charges is under keys that begin with the prefix it was started with.
type Load struct {
	store   weir.Store
	budget  time.Duration
	traffic *traffic
	books   *books

	stop    chan struct{}
	stopped sync.Once
	answers sync.WaitGroup // all that is under way
	late    atomic.Int64
}

// Start begins to ask, rate times a second. budget is how long an answer may take: the
// store's timeout.
func Start(store weir.Store, prefix string, rate int, budget time.Duration) *Load {
	b := newBooks()
	l := &Load{store: store, budget: budget, traffic: newTraffic(prefix, b), books: b, stop: make(chan struct{})}
	l.answers.Go(func() { l.pace(rate) })
	return l
}

func (l *Load) pace(rate int) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last, owed := time.Now(), 0.0
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		now := time.Now()
		owed += min(now.Sub(last), burst).Seconds() * float64(rate)
		last = now
		if due := int(owed); due > 0 {
			owed -= float64(due)
			l.begin(due)
		}
	}
}

// begin asks n times, and has a control wait beside them.
func (l *Load) begin(n int) {
	open := new(atomic.Int64)
	open.Store(int64(n))
	for range n {
		ask := l.traffic.next()
		l.answers.Go(func() {
			defer open.Add(-1)
			l.ask(ask)
		})
	}
	l.answers.Go(func() { l.control(open) })
}

// control sleeps as long as an answer may take, and calls what is still open then late. It
// is held up by a busy machine as the answers are; it sleeps in pieces, because one pause of
// the whole process would end one long sleep and the wait for an answer alike.
func (l *Load) control(open *atomic.Int64) {
	for range 4 * patience {
		if open.Load() == 0 {
			return
		}
		time.Sleep(l.budget / 4)
	}
	l.late.Add(open.Load())
}

func (l *Load) ask(a ask) {
	begun := time.Now()
	granted, err := l.store.Decide(context.Background(), a.claims, 1, nil)
	l.books.enter(a, begun, granted, err)
}

// Mark says that from now on the faults are those of the next report's outage.
func (l *Load) Mark() { l.books.mark() }

// Flowing reports whether Redis decided about every lasting key since the given time.
func (l *Load) Flowing(since time.Time) bool { return l.books.flowing(since) }

// Spent reports whether every tight key has been refused: it has nothing left.
func (l *Load) Spent() bool { return l.books.spent() }

// Degraded is how many answers were errors so far.
func (l *Load) Degraded() int64 { return l.books.degraded() }

// End asks no more and waits for what is under way. It reports whether all was answered
// within ten seconds. It may be called again.
func (l *Load) End() bool {
	l.stopped.Do(func() { close(l.stop) })
	done := make(chan struct{})
	go func() {
		l.answers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

// Failed is how many answers so far were errors that say this.
func (l *Load) Failed(saying string) (n int64) {
	for text, times := range l.Report().Failures {
		if strings.Contains(text, saying) {
			n += times
		}
	}
	return n
}

// Keys are the keys that are asked for all the time.
func (l *Load) Keys() []string {
	var keys []string
	for _, one := range l.books.lasting() {
		keys = append(keys, one.key)
	}
	return keys
}
