package adaptive

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/bounds"
)

// A load is a service that gets three times the requests that it can work on. Between the 23rd and the 43rd second it
// has half of its capacity.
type load struct {
	name     string
	capacity float64 // requests a second
	workers  int
	service  func(*rand.Rand, float64) float64
	parallel func(*rand.Rand, float64) float64
	slower   bool // half of the capacity is twice the time; otherwise half of the workers
	latency  float64
}

var loads = []load{
	{name: "exponential", capacity: 800, workers: 32, service: exponential(40), latency: 40},
	{name: "constant", capacity: 800, workers: 32, service: constant(40), latency: 40},
	{name: "lognormal, deviation 3 times the mean", capacity: 800, workers: 32, service: lognormal(40, 3), latency: 40},
	{name: "8 workers", capacity: 800, workers: 8, service: exponential(10), latency: 10},
	{name: "slower", capacity: 800, workers: 32, service: exponential(40), latency: 40, slower: true},
	{name: "a lock", capacity: 1000, workers: 1, service: constant(1), parallel: constant(9), latency: 10, slower: true},
}

func halved(at float64) bool { return at >= 23 && at < 43 }

func (l *load) model(over float64, nodes ...*Limiter) *model {
	m := &model{random: rand.New(rand.NewPCG(1, 2)), limiters: nodes, shares: []float64{0.1, 0.6, 0.3}, seconds: 60,
		from: 5, parallel: l.parallel, rate: func(float64) float64 { return over * l.capacity }}
	m.workers = func(at float64) int {
		if halved(at) && !l.slower {
			return l.workers / 2
		}
		return l.workers
	}
	m.service = func(r *rand.Rand, at float64) float64 {
		if halved(at) && l.slower {
			return 2 * l.service(r, at)
		}
		return l.service(r, at)
	}
	return m
}

const mostLimit = bounds.InProgress

var threeClasses = []Class{{"critical", 0}, {"default", 0.2}, {"batch", 0.5}}

var shortQueue = Queue{For: 50 * time.Millisecond, Most: 100}

func limiters(t *testing.T, n int, c Config) (list []*Limiter) {
	for range n {
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

func (l *load) unloaded(t *testing.T) float64 {
	r := l.model(0.1, limiters(t, 1, Config{Min: mostLimit, Max: mostLimit, Classes: threeClasses})...).run()
	return r.p99()
}

// best is the largest goodput of a fixed limit with the same classes and queue.
func (l *load) best(t *testing.T, nodes int, good float64) (goodput, limit int) {
	concurrency := l.capacity * l.latency / 1000 / float64(nodes)
	for _, times := range []float64{1, 1.25, 1.5, 2} {
		fixed := int(times * concurrency)
		m := l.model(3, limiters(t, nodes, Config{Min: fixed, Max: fixed, Classes: threeClasses, Queue: shortQueue})...)
		m.good = good
		if r := m.run(); r.goodput() > goodput {
			goodput, limit = r.goodput(), fixed
		}
	}
	return goodput, limit
}

// lost is the refused part of a class in percent.
func lost(r *result, class int) float64 {
	return 100 * float64(r.lost[class]) / float64(r.offered[class])
}

func TestGoodputIsNearThatOfTheBestFixedLimit(t *testing.T) {
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			unloaded := l.unloaded(t)
			good := 2*unloaded + 50
			best, fixed := l.best(t, 1, good)
			m := l.model(3, limiters(t, 1, Config{Min: 5, Max: 5000, Classes: threeClasses, Queue: shortQueue})...)
			m.good = good
			r := m.run()
			without := l.model(3, limiters(t, 1, Config{Min: mostLimit, Max: mostLimit, Classes: threeClasses})...)
			without.good = good
			w := without.run()
			t.Logf("%.1f %% of the best fixed limit, %d; p99 %.0f ms, unloaded %.0f ms; lost: critical %.3f %%, default "+
				"%.0f %%, batch %.0f %%; without: %.1f %%, p99 %.0f ms", 100*float64(r.goodput())/float64(best), fixed,
				r.p99(), unloaded, lost(&r, 0), lost(&r, 1), lost(&r, 2), 100*float64(w.goodput())/float64(best), w.p99())
			if r.goodput()*10 < best*9 {
				t.Errorf("goodput is %d, less than 90 %% of %d, that of the best fixed limit", r.goodput(), best)
			}
			if r.p99() > good {
				t.Errorf("p99 is %.1f ms, more than %.1f: twice the unloaded %.1f and the time of the queue", r.p99(),
					good, unloaded)
			}
			if c := r.critical; c[1]*1000 >= c[0] {
				t.Errorf("%d of %d critical requests were refused at three times the capacity; allowed: 0.1 %%", c[1], c[0])
			}
		})
	}
}

// Four processes have a limit each, and the service has no queue that grows.
func TestProcessesShareAService(t *testing.T) {
	for _, l := range loads[:3] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			good := 2*l.unloaded(t) + 50
			best, fixed := l.best(t, 4, good)
			nodes := limiters(t, 4, Config{Min: 2, Max: 5000, Classes: threeClasses, Queue: shortQueue})
			m := l.model(3, nodes...)
			m.good = good
			r := m.run()
			var limits []int
			for _, node := range nodes {
				limits = append(limits, node.State().Limit)
			}
			t.Logf("%.1f %% of the best fixed limit, %d; p99 %.0f ms of %.0f; lost: critical %.3f %%; limits %v",
				100*float64(r.goodput())/float64(best), fixed, r.p99(), good, lost(&r, 0), limits)
			if r.goodput()*10 < best*9 {
				t.Errorf("goodput is %d, less than 90 %% of %d, that of the best fixed limit", r.goodput(), best)
			}
			if slices.Max(limits) > 6*slices.Min(limits) {
				t.Errorf("limits are %v; allowed: the largest is at most six times the smallest", limits)
			}
		})
	}
}

// Small limits refuse more critical requests, fixed ones too; a larger reserve keeps room for them.
func TestALargerReserveKeepsCriticalRequestsOfManyProcesses(t *testing.T) {
	l := loads[0]
	good := 2*l.unloaded(t) + 50
	for _, n := range []int{1, 4, 8} {
		best, fixed := l.best(t, n, good)
		critical := func(least, most int, reserve float64) float64 {
			classes := []Class{{"critical", 0}, {"default", reserve}, {"batch", 0.5}}
			m := l.model(3, limiters(t, n, Config{Min: least, Max: most, Classes: classes, Queue: shortQueue})...)
			m.good = good
			r := m.run()
			t.Logf("%d processes, limits from %d to %d, default leaves %.0f %%: %.1f %% of the best fixed limit, p99 "+
				"%.0f ms of %.0f, critical lost %.2f %%", n, least, most, 100*reserve,
				100*float64(r.goodput())/float64(best), r.p99(), good, lost(&r, 0))
			return lost(&r, 0)
		}
		small, large := critical(2, 5000, 0.2), critical(2, 5000, 0.4)
		if fixed := critical(fixed, fixed, 0.2); large > 0.5 || n > 1 && (large >= small || large >= fixed) {
			t.Errorf("%d processes lose %.2f %% of the critical requests, %.2f %% with a small reserve, and %.2f %% with "+
				"fixed limits; allowed: 0.5 %%, and less than the others", n, large, small, fixed)
		}
	}
}

// A service that refuses what is too much, at once, and has the same latency up to there.
func TestAIMDFollowsRefusals(t *testing.T) {
	l := loads[0]
	m := l.model(3, limiters(t, 1, Config{Algorithm: AIMD, Min: 2, Max: 5000})...)
	m.shares = []float64{1}
	m.workers = func(float64) int { return mostLimit }
	m.answers = func(inside int, at float64) Outcome {
		if inside > 32 || halved(at) && inside > 16 {
			return Overloaded
		}
		return Answered
	}
	r := m.run()
	passed := r.good[0]
	most := int(35*800 + 20*400) // in 55 s
	limit := m.limiters[0].State().Limit
	t.Logf("answered %d of %d that the service can; limit %d", passed, most, limit)
	if passed*10 < most*9 || limit < 24 || limit > 40 {
		t.Errorf("%d answers of %d that the service can give, limit %d; allowed: 90 %%, 24 to 40", passed, most, limit)
	}
}

// A service that refuses excess requests refuses critical ones, too, so the limit is rarely raised above the service's
// own.
func TestServicesRarelyRefuseCriticalRequests(t *testing.T) {
	l := loads[0]
	for _, algorithm := range []Algorithm{Gradient, AIMD} {
		m := l.model(3, single(t, Config{Algorithm: algorithm, Min: 5, Max: 5000, Classes: threeClasses,
			Queue: shortQueue}))
		m.answers = func(inside int, _ float64) Outcome {
			if inside > 48 {
				return Overloaded
			}
			return Answered
		}
		r := m.run()
		passed, most := r.goodput(), int(35*800+20*400) // in 55 s
		t.Logf("algorithm %d: answered %d of %d, critical lost %.2f %%", algorithm, passed, most, lost(&r, 0))
		if passed*10 < most*9 || lost(&r, 0) > 2.5 {
			t.Errorf("algorithm %d: %d answers of %d that the service can give, and %.2f %% of the critical requests are "+
				"lost; allowed: 90 %%, 2.5 %%", algorithm, passed, most, lost(&r, 0))
		}
	}
}
