// Package adaptive limits the concurrent requests to a service by its latency: more while the service answers as
// fast as without load, fewer while requests wait inside it.
//
// The limit follows the gradient of latency, as Envoy's adaptive concurrency filter and Netflix's concurrency-limits
// do:
//
//	limit = limit × tolerance × latency without load ÷ latency + headroom
//
// Requests in progress are the throughput times the latency (J. Little, 1961), so the first term is the throughput
// times the latency without load: the number of requests that the service works on. The headroom adds a few that wait.
// Unlike in the references, the latency without load is measured even if the load never ends: see control.go. With
// [AIMD] the limit follows refusals and errors of the service instead, as TCP follows lost packets.
//
// A [Limiter] serves one process. Each of several processes before one service has its own limit. All of them measure
// at the same times of the wall clock, so that they relieve the service together.
//
// References: docs of Envoy, HTTP filters, Adaptive Concurrency; github.com/Netflix/concurrency-limits,
// Gradient2Limit; RFC 5681 (additive increase, multiplicative decrease); B. Maurer, Fail at Scale, ACM Queue 13(8),
// 2015, for the queue.
package adaptive

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// ErrRefused is the error of a refused request: the limit is reached, and the queue is full, or the request's time in
// the queue has passed.
var ErrRefused = errors.New("adaptive: the limit of concurrent requests is reached")

// An Algorithm selects the signals that a limit follows.
type Algorithm uint8

const (
	// Gradient follows the latency, and [Overloaded] outcomes.
	Gradient Algorithm = iota
	// AIMD follows [Overloaded] outcomes alone: the limit grows while it is used, and shrinks by a tenth when more than
	// one in fifty requests has that outcome.
	AIMD
)

// A Config configures a Limiter.
type Config struct {
	Algorithm Algorithm
	Min, Max  int     // bounds of the limit, from 1 to 1,000,000; it starts at Min. Equal bounds fix it
	Classes   []Class // the most important first, at most 16; nil: one class
	Queue     Queue
}

// A Class groups requests of the same importance.
type Class struct {
	Name    string
	Reserve float64 // share of the limit that the class leaves free, from 0 to 1; the rest is at least one request
}

// A Queue holds requests for a short time while the limit is reached. With the zero Queue, requests do not wait.
type Queue struct {
	For  time.Duration // how long a request may wait, up to a minute
	Most int           // number of requests that may wait, up to 100,000
}

// An Outcome classifies the end of a request.
type Outcome uint8

const (
	// Answered means that the latency of the request shows the load of the service.
	Answered Outcome = iota
	// Overloaded means that the service refused the request because of its load, or answered too late.
	Overloaded
	// Ignored means that the end of the request has other causes than the load.
	Ignored
	// Abandoned means that the client left before the answer: the answer would have taken longer. Its latency counts
	// only if it is longer than the latency without load. Otherwise clients that leave early would pretend a low
	// latency; and if it never counted, clients with a timeout would hide that the service is too slow.
	Abandoned
)

// A Limiter limits concurrent requests. It is safe for concurrent use, and starts no goroutines.
type Limiter struct {
	classes []Class
	start   time.Time // origin of the monotonic clock
	unix    int64     // start as Unix time in ns

	mu       sync.Mutex
	before   *Limiter // its requests in flight count, too; nil: none
	control  control
	inFlight int
	room     []int // by class: the number of requests in flight at which the class has to wait
	queue    queue
	admitted []uint64 // by class
	refused  []uint64
	overload uint64 // outcomes
}

// New returns a limiter. An error is a *weir.InputError.
func New(config Config) (*Limiter, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.Classes == nil {
		config.Classes = []Class{{}}
	}
	n := len(config.Classes)
	l := &Limiter{classes: slices.Clone(config.Classes), start: time.Now(), control: newControl(config),
		queue: queue{Queue: config.Queue, classes: make([]line, n)}, room: make([]int, n),
		admitted: make([]uint64, n), refused: make([]uint64, n)}
	l.queue.pool.New = newWaiter
	l.unix = l.start.UnixNano()
	l.resize()
	return l, nil
}

// mostWait is the longest time that a request may wait.
const mostWait = time.Minute

func (c *Config) check() error {
	wrong := func(field string, given any, allowed string) error {
		return &weir.InputError{Field: field, Given: given, Allowed: allowed}
	}
	switch q := c.Queue; {
	case c.Algorithm > AIMD:
		return wrong("Algorithm", c.Algorithm, "Gradient or AIMD")
	case c.Min < 1 || c.Min > bounds.InProgress:
		return wrong("Min", c.Min, "1 to 1000000")
	case c.Max < c.Min || c.Max > bounds.InProgress:
		return wrong("Max", c.Max, "Min to 1000000")
	case len(c.Classes) > bounds.Classes:
		return wrong("Classes", len(c.Classes), "at most 16")
	case q.For < 0 || q.For > mostWait:
		return wrong("Queue.For", q.For, "0 to 1m")
	case q.Most < 0 || q.Most > bounds.Waiting:
		return wrong("Queue.Most", q.Most, "0 to 100000")
	case (q.For == 0) != (q.Most == 0):
		return wrong("Queue", q, "both For and Most, or neither")
	}
	for _, class := range c.Classes {
		if !(class.Reserve >= 0 && class.Reserve <= 1) {
			return wrong("Reserve", class.Reserve, "0 to 1")
		}
	}
	return nil
}

// Acquire admits a request. class is an index of Config.Classes; an index beyond them means the last class. If the
// limit is reached, the request waits in the queue. After a nil error, call Release once, when the request is over. The
// other errors are ErrRefused and the cause of the end of ctx.
func (l *Limiter) Acquire(ctx context.Context, class int) error {
	class = min(max(class, 0), len(l.classes)-1)
	l.mu.Lock()
	if l.enter(class) {
		l.mu.Unlock()
		return nil
	}
	w := l.enqueue(class)
	l.mu.Unlock()
	if w == nil {
		return ErrRefused
	}
	return l.await(ctx, w)
}

// Release ends a request that Acquire admitted. took is its latency, which counts with the outcomes Answered and
// Abandoned.
func (l *Limiter) Release(outcome Outcome, took time.Duration) {
	now := l.now()
	l.mu.Lock()
	l.leave(now, outcome, took)
	l.mu.Unlock()
}

// aheadUnit is the unit in which the limiter notices that the wall clock was set.
const aheadUnit = 100 * time.Millisecond

// patience is how long a client holds a place while it sends its request.
const patience = 100 * time.Millisecond

// Receive says that the client of an admitted request has not sent the whole request. Clients that send slowly or stop
// would otherwise hold all places without any load on the service. So after 100 ms the place is free for others until
// received is called, which takes one again, even beyond the limit. Call received before Release; more calls have no
// effect.
func (l *Limiter) Receive() (received func()) {
	over, free := false, false
	timer := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !over {
			free = true
			l.inFlight--
			l.admit()
		}
	})
	return func() {
		timer.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		if free && !over {
			l.inFlight++
			l.control.peak = max(l.control.peak, l.inFlight)
		}
		over = true
	}
}

// now is the Unix time in ns by the monotonic clock: it ignores changes of the wall clock since New.
func (l *Limiter) now() int64 { return l.unix + int64(time.Since(l.start)) }

// enter admits a request, if its class has room. The queue does not matter here: leave admits waiting requests as soon
// as there is room for them.
func (l *Limiter) enter(class int) bool {
	if l.inFlight+l.earlier() >= l.room[class] {
		l.control.bound = true
		return false
	}
	l.inFlight++
	l.admitted[class]++
	l.control.peak = max(l.control.peak, l.inFlight)
	return true
}

// earlier is the number of requests in flight that adopted limiters admitted.
func (l *Limiter) earlier() int {
	old := l.before
	if old == nil {
		return 0
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	n := old.inFlight + old.earlier()
	if n == 0 && old.queue.size == 0 {
		l.before = nil
	}
	return n
}

// enqueue puts a request into the queue; nil: the request is refused.
func (l *Limiter) enqueue(class int) *waiter {
	if l.queue.Most == 0 {
		l.refused[class]++
		return nil
	}
	return l.enqueueAt(l.now(), class)
}

func (l *Limiter) enqueueAt(now int64, class int) *waiter {
	w, evicted := l.queue.add(now, class)
	if evicted != nil {
		l.refused[evicted.class]++
	}
	if w == nil {
		l.refused[class]++
	}
	return w
}

// leave ends a request, and admits others in its place.
func (l *Limiter) leave(now int64, outcome Outcome, took time.Duration) {
	l.inFlight--
	if outcome == Overloaded {
		l.overload++
	}
	if l.control.done(now, outcome, float64(took), l.inFlight) {
		l.control.ahead = time.Duration(time.Now().UnixNano() - l.now()).Round(aheadUnit)
		l.resize()
	}
	l.admit()
}

// admit admits waiting requests: the most important class first, and within a class the latest request first.
func (l *Limiter) admit() {
	for class := 0; l.queue.size > 0 && class < len(l.classes); class++ {
		for l.queue.waits(class) && l.enter(class) {
			l.queue.take(class).answer(true)
		}
	}
}

// resize computes the room of each class. While the latency without load is measured, the most important class of
// several has the whole limit.
func (l *Limiter) resize() {
	limit, whole := l.control.allowed()
	for i, class := range l.classes {
		l.room[i] = max(1, limit-int(math.Ceil(class.Reserve*float64(limit))))
	}
	if len(l.classes) > 1 {
		l.room[0] = max(1, whole-int(math.Ceil(l.classes[0].Reserve*float64(whole))))
	}
}

// A State is a snapshot of a limiter.
type State struct {
	Limit      int           // requests that may be in flight now
	InFlight   int           // admitted and not released
	Waiting    int           // requests in the queue
	Latency    time.Duration // mean of the last window; 0: not known yet
	Unloaded   time.Duration // latency without load; 0: not known yet
	Measuring  bool          // the limit is lowered to measure the latency without load
	Overloaded uint64        // requests that ended with the outcome Overloaded
	Why        string        // last reason: start, demand, latency, overload; steady or "": no change
	Classes    []ClassState
}

// A ClassState counts the requests of a class.
type ClassState struct {
	Name              string
	Room              int // number of requests in flight at which the class has to wait now
	Admitted, Refused uint64
}

// State returns the state of the limiter.
func (l *Limiter) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, _ := l.control.allowed()
	s := State{Limit: limit, InFlight: l.inFlight + l.earlier(), Waiting: l.queue.size,
		Latency: time.Duration(l.control.latency), Unloaded: time.Duration(l.control.unloaded),
		Measuring: l.control.probe.on, Overloaded: l.overload, Why: l.control.why}
	for i, class := range l.classes {
		s.Classes = append(s.Classes, ClassState{class.Name, l.room[i], l.admitted[i], l.refused[i]})
	}
	return s
}

// Adopt copies the counts of another limiter of the same service and, of the same algorithm, its measurements. Requests
// that are in flight there count here until they end. The limiter must not be in use yet.
func (l *Limiter) Adopt(old *Limiter) {
	old.mu.Lock()
	defer old.mu.Unlock()
	l.start, l.unix = old.start, old.unix // the adopted times of the control are of this clock
	l.before, l.overload = old, old.overload
	if l.control.algorithm == old.control.algorithm {
		l.control.adopt(&old.control)
	}
	for i, class := range l.classes {
		if j := slices.IndexFunc(old.classes, func(c Class) bool { return c.Name == class.Name }); j >= 0 {
			l.admitted[i], l.refused[i] = old.admitted[j], old.refused[j]
		}
	}
	l.resize()
}
