// Package faulttest loads a store with decisions while its server or network fails, and accounts for every
// answer: its time, its origin, and whether Redis charged exactly the grants.
package faulttest

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	tick = time.Millisecond

	// burst bounds the decisions begun at once after a pause of this process. The rest is dropped, or the pause
	// of a busy machine would act as a fault of its own.
	burst = 50 * time.Millisecond

	// most is the number of budgets in which as many decisions begin as may be under way. A decision takes three at
	// most, so a machine does not keep up where there are more.
	most = 4

	// leastRate is where a load is not eased further.
	leastRate = 20

	// patience is the number of budgets after which an answer is late. A decision over slots of a Cluster may
	// take three budgets: one to decide, two to refund. The rest allows for a machine short of processors; a
	// hanging call hangs for seconds.
	patience = 20
)

// A Load begins decisions at a steady rate, whether answers come or not, unless the machine does not keep up: each has
// its own goroutine, so a hanging store has the effect that it has on a server. All of its keys begin with the prefix.
type Load struct {
	store    weir.Store
	budget   time.Duration
	traffic  *traffic
	accounts *accounts
	slots    *slots
	rate     atomic.Int64 // decisions a second
	open     atomic.Int64 // decisions under way
	begun    int          // only in pace

	stop    chan struct{}
	stopped sync.Once
	answers sync.WaitGroup // goroutines under way
	late    atomic.Int64
}

// Start begins rate decisions a second. budget is the allowed time of an answer: the store's timeout.
func Start(store weir.Store, prefix string, rate int, budget time.Duration) *Load {
	b := newAccounts()
	l := &Load{store: store, budget: budget, traffic: newTraffic(prefix, b), accounts: b, stop: make(chan struct{})}
	l.slots = newSlots(store, prefix)
	l.rate.Store(int64(rate))
	l.answers.Go(l.pace)
	return l
}

func (l *Load) pace() {
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
		rate := float64(l.rate.Load())
		owed += min(now.Sub(last), burst).Seconds() * rate
		last = now
		due := int(owed)
		owed -= float64(due)
		if room := int(most*l.budget.Seconds()*rate) - int(l.open.Load()); min(due, room) > 0 {
			l.begin(min(due, room))
		}
	}
}

// ease halves the rate.
func (l *Load) ease() { l.rate.Store(max(l.rate.Load()/2, leastRate)) }

// begin begins n decisions, and a control beside them.
func (l *Load) begin(n int) {
	open := new(atomic.Int64)
	open.Store(int64(n))
	l.open.Add(int64(n))
	for range n {
		ask := l.traffic.next()
		if l.begun++; l.begun%slotEvery == 0 {
			l.answers.Go(func() { l.slots.hold(l.budget) })
		}
		l.answers.Go(func() {
			defer l.open.Add(-1)
			defer open.Add(-1)
			l.ask(ask)
		})
	}
	l.answers.Go(func() { l.control(open) })
}

// control sleeps for as long as an answer may take and counts the open answers as late. A busy machine delays
// it like the answers. It sleeps in pieces, because one pause of the whole process would end a long sleep and
// the wait for an answer alike, and lets all go first that can: who was woken up by the clock goes before them.
func (l *Load) control(open *atomic.Int64) {
	for range 4 * patience {
		if open.Load() == 0 {
			return
		}
		time.Sleep(l.budget / 4)
		runtime.Gosched()
	}
	l.late.Add(open.Load())
}

func (l *Load) ask(a ask) {
	begun := time.Now()
	granted, err := l.store.Decide(context.Background(), a.claims, 1, nil)
	l.accounts.enter(a, begun, granted, err)
}

// Mark begins the time of which the next report states the outage.
func (l *Load) Mark() { l.accounts.mark() }

// Flowing reports whether Redis has decided about every lasting key since the given time.
func (l *Load) Flowing(since time.Time) bool { return l.accounts.flowing(since) }

// Spent reports whether every tight key has been refused.
func (l *Load) Spent() bool { return l.accounts.spent() }

// Degraded is the number of answers so far that were errors.
func (l *Load) Degraded() int64 { return l.accounts.degraded() }

// End stops the load and waits for calls under way. It reports whether they ended. It may be called again.
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
	case <-time.After(await):
		return false
	}
}

// Failed is the number of errors so far that contain a text.
func (l *Load) Failed(saying string) (n int64) {
	for text, times := range l.Report().Failures {
		if strings.Contains(text, saying) {
			n += times
		}
	}
	return n
}

// Keys are the keys that are used all the time.
func (l *Load) Keys() []string {
	var keys []string
	for _, one := range l.accounts.lasting {
		keys = append(keys, one.key)
	}
	return keys
}
