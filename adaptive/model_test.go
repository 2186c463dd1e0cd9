package adaptive

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A model is a service behind limiters, as a simulation of events with a time of its own. Requests arrive at random, and
// are worked on in the order of their arrival by so many workers as there are at the time (M/G/k).
type model struct {
	random   *rand.Rand
	limiters []*Limiter                             // nodes before the service, which take turns
	rate     func(at float64) float64               // requests a second; at in seconds
	shares   []float64                              // of classes
	workers  func(at float64) int                   // of the service
	service  func(r *rand.Rand, at float64) float64 // ms of a worker
	parallel func(r *rand.Rand, at float64) float64 // ms before a worker is needed; nil: none
	answers  func(inside int, at float64) Outcome   // nil: all are Answered
	good     float64                                // ms: a later answer is worth nothing; 0: any
	from     float64                                // s: earlier requests are not counted
	seconds  float64

	now     int64
	events  events
	waiting []*visit // in the service
	working int
	added   int
	inside  int
	queued  []*visit // before the service
	result  result
}

type result struct {
	critical            [2]int // offered and lost while the service had its whole capacity
	offered, lost, good []int  // by class
	latencies           []float64
}

type visit struct {
	node, class     int
	arrived, passed int64
	waiter          *waiter
	left            bool
}

type event struct {
	at   int64
	kind int
	v    *visit
	seq  int
}

const (
	arrives = iota
	needsWorker
	worked
	turnedAway
	expires
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const ms = float64(time.Millisecond)

func (m *model) add(at int64, kind int, v *visit) {
	m.added++
	heap.Push(&m.events, event{at, kind, v, m.added})
}

// at is the time in seconds.
func (m *model) at() float64 { return float64(m.now) / 1e9 }

func (m *model) run() result {
	n := len(m.shares)
	m.result = result{offered: make([]int, n), lost: make([]int, n), good: make([]int, n)}
	m.next()
	for len(m.events) > 0 {
		e := heap.Pop(&m.events).(event)
		m.now = e.at
		if m.at() > m.seconds {
			break
		}
		switch e.kind {
		case arrives:
			m.next()
			m.arrive()
		case needsWorker:
			m.waiting = append(m.waiting, e.v)
		case worked:
			m.working--
			m.finish(e.v)
		case turnedAway:
			m.lose(e.v)
			m.limiters[e.v.node].leave(m.now, Overloaded, time.Millisecond)
			m.answered()
		case expires:
			m.expire(e.v)
		}
		m.work()
	}
	return m.result
}

func (m *model) next() {
	rate := m.rate(m.at())
	m.add(m.now+int64(m.random.ExpFloat64()/rate*1e9), arrives, nil)
}

func (m *model) counts() bool { return m.at() >= m.from }

func (m *model) arrive() {
	v := &visit{node: m.random.IntN(len(m.limiters)), arrived: m.now}
	for p := m.random.Float64(); v.class < len(m.shares)-1 && p >= m.shares[v.class]; v.class++ {
		p -= m.shares[v.class]
	}
	if m.counts() {
		m.result.offered[v.class]++
		if v.class == 0 && !halved(m.at()) {
			m.result.critical[0]++
		}
	}
	l := m.limiters[v.node]
	if l.enter(v.class) {
		m.begin(v)
		return
	}
	if v.waiter = l.enqueueAt(m.now, v.class); v.waiter == nil {
		m.lose(v)
		return
	}
	m.queued = append(m.queued, v)
	m.add(v.waiter.until, expires, v)
	m.answered()
}

// answered looks which of the queued requests have an answer.
func (m *model) answered() {
	m.queued = slices.DeleteFunc(m.queued, func(v *visit) bool {
		select {
		case admitted := <-v.waiter.answered:
			m.limiters[v.node].queue.pool.Put(v.waiter)
			v.left = true
			if admitted {
				m.begin(v)
			} else {
				m.lose(v)
			}
			return true
		default:
			return false
		}
	})
}

func (m *model) expire(v *visit) {
	if v.left {
		return
	}
	v.left = true
	m.limiters[v.node].queue.remove(v.waiter)
	m.queued = slices.DeleteFunc(m.queued, func(q *visit) bool { return q == v })
	m.lose(v)
}

func (m *model) lose(v *visit) {
	if m.counts() {
		m.result.lost[v.class]++
		if v.class == 0 && !halved(m.at()) {
			m.result.critical[1]++
		}
	}
}

func (m *model) begin(v *visit) {
	v.passed = m.now
	m.inside++
	if m.answers != nil && m.answers(m.inside, m.at()) == Overloaded {
		m.inside--
		m.add(m.now+int64(time.Millisecond), turnedAway, v)
		return
	}
	if m.parallel != nil {
		m.add(m.now+int64(m.parallel(m.random, m.at())*ms), needsWorker, v)
		return
	}
	m.waiting = append(m.waiting, v)
}

func (m *model) work() {
	for len(m.waiting) > 0 && m.working < m.workers(m.at()) {
		v := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.working++
		m.add(m.now+int64(m.service(m.random, m.at())*ms), worked, v)
	}
}

func (m *model) finish(v *visit) {
	m.inside--
	l := m.limiters[v.node]
	l.leave(m.now, Answered, time.Duration(m.now-v.passed))
	if m.counts() {
		latency := float64(m.now-v.arrived) / ms
		m.result.latencies = append(m.result.latencies, latency)
		if m.good == 0 || latency <= m.good {
			m.result.good[v.class]++
		}
	}
	m.answered()
}

// p99 in ms.
func (r *result) p99() float64 {
	slices.Sort(r.latencies)
	if len(r.latencies) == 0 {
		return math.Inf(1)
	}
	return r.latencies[len(r.latencies)*99/100]
}

func (r *result) goodput() (n int) {
	for _, g := range r.good {
		n += g
	}
	return n
}

func exponential(mean float64) func(*rand.Rand, float64) float64 {
	return func(r *rand.Rand, _ float64) float64 { return r.ExpFloat64() * mean }
}

func constant(mean float64) func(*rand.Rand, float64) float64 {
	return func(*rand.Rand, float64) float64 { return mean }
}

// lognormal has a standard deviation of cv times the mean.
func lognormal(mean, cv float64) func(*rand.Rand, float64) float64 {
	s2 := math.Log(1 + cv*cv)
	return func(r *rand.Rand, _ float64) float64 { return mean * math.Exp(r.NormFloat64()*math.Sqrt(s2)-s2/2) }
}
