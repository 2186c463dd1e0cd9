package simulate

import (
	"container/heap"
	"context"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir/internal/clock"
)

// A scheduler is the clock.Driver of a simulation: it computes time, and runs one goroutine at a time in an order that
// depends on nothing but its inputs. The goroutines are coroutines, so that switching takes no lock.
type scheduler struct {
	epoch  time.Time
	now    time.Duration // since the epoch
	random *rand.PCG

	events  events
	count   uint64     // of events so far; it orders those of one instant
	ready   []*process // to run, in order
	waiting []*process // for channels
	idle    []*process // without work, to be used again
	running *process
}

var _ clock.Driver = (*scheduler)(nil)

func newScheduler(epoch time.Time, seed uint64) *scheduler {
	return &scheduler{epoch: epoch, random: rand.NewPCG(seed, 1)}
}

// A process is a goroutine of the scheduler.
type process struct {
	work  func()
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	turn        uint64 // how often it was parked: a wake-up of an earlier turn is void
	ready, done <-chan struct{}
}

// An event happens at a time: it wakes a process, if that is still parked, or calls a function.
type event struct {
	at      time.Duration
	order   uint64
	process *process
	turn    uint64
	do      func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }

func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *scheduler) push(e event) {
	s.count++
	e.at, e.order = max(e.at, s.now), s.count
	heap.Push(&s.events, e)
}

// at calls do at a time since the epoch. do must not wait.
func (s *scheduler) at(when time.Duration, do func()) { s.push(event{at: when, do: do}) }

// wake lets a parked process go on at a time, unless something else does earlier.
func (s *scheduler) wake(p *process, turn uint64, when time.Duration) {
	s.push(event{at: when, process: p, turn: turn})
}

// run runs everything that happens, until nothing is left.
func (s *scheduler) run() {
	for {
		s.settle()
		if len(s.events) == 0 {
			return
		}
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		if e.do != nil {
			e.do()
			s.wakeReady()
		} else if e.turn == e.process.turn {
			e.process.turn++
			s.ready = append(s.ready, e.process)
		}
	}
}

// settle runs the processes until all wait.
func (s *scheduler) settle() {
	for i := 0; i < len(s.ready); i++ {
		s.running = s.ready[i]
		s.running.next()
		s.running = nil
		s.wakeReady()
	}
	s.ready = s.ready[:0]
}

// wakeReady lets the processes go on whose channels are ready.
func (s *scheduler) wakeReady() {
	kept := s.waiting[:0]
	for _, p := range s.waiting {
		if isReady(p.ready) || isReady(p.done) {
			s.ready = append(s.ready, p)
		} else {
			kept = append(kept, p)
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
}

// isReady reports whether a receive would not block, without taking a value: nobody sends meanwhile.
func isReady(c <-chan struct{}) bool {
	if c == nil || len(c) > 0 {
		return c != nil
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop ends the goroutines. The simulation must have come to its end.
func (s *scheduler) stop() {
	for _, p := range s.idle {
		p.stop()
	}
	s.idle = nil
}

// park suspends the current process until a wake-up of its turn.
func (s *scheduler) park() { s.running.yield(struct{}{}) }

// sleep suspends the current process.
func (s *scheduler) sleep(d time.Duration) {
	s.wake(s.running, s.running.turn, s.now+d)
	s.park()
}

// Now implements clock.Driver.
func (s *scheduler) Now() time.Time { return s.epoch.Add(s.now) }

// Uint64 implements clock.Driver.
func (s *scheduler) Uint64() uint64 { return s.random.Uint64() }

// Go implements clock.Driver.
func (s *scheduler) Go(f func()) {
	if len(s.idle) == 0 {
		s.idle = append(s.idle, s.newProcess())
	}
	p := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	p.work = f
	s.ready = append(s.ready, p)
}

func (s *scheduler) newProcess() *process {
	p := new(process)
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		for more := true; more; more = yield(struct{}{}) {
			p.work()
			p.work = nil
			s.idle = append(s.idle, p)
		}
	})
	return p
}

// Wait implements clock.Driver.
func (s *scheduler) Wait(ready <-chan struct{}, ctx context.Context) {
	p := s.running
	p.ready, p.done = ready, nil
	if ctx != nil {
		p.done = ctx.Done()
	}
	if isReady(p.ready) || isReady(p.done) {
		return
	}
	s.waiting = append(s.waiting, p)
	s.park()
}

// A timed context ends at a time of the scheduler.
type timed struct {
	context.Context // its parent, whose end ends no Wait before the deadline
	end             time.Time
	done            chan struct{}
	err             error
}

// WithDeadline implements clock.Driver.
func (s *scheduler) WithDeadline(parent context.Context, end time.Time) (context.Context, context.CancelFunc) {
	if earlier, ok := parent.Deadline(); ok && earlier.Before(end) {
		end = earlier
	}
	c := &timed{Context: parent, end: end, done: make(chan struct{})}
	s.at(end.Sub(s.epoch), func() { c.finish(context.DeadlineExceeded) })
	return c, func() { c.finish(context.Canceled) }
}

func (c *timed) finish(err error) {
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// Deadline implements context.Context.
func (c *timed) Deadline() (time.Time, bool) { return c.end, true }

// Done implements context.Context.
func (c *timed) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *timed) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.Context.Err()
}
