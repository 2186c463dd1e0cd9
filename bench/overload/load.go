package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The classes of requests, with their shares.
var (
	classes = []string{"critical", "default", "batch"}
	shares  = []float64{0.1, 0.6, 0.3}
)

// clientsWait is how long a client waits for its answer.
const clientsWait = time.Second

// A phase is a part of a run.
type phase struct {
	length time.Duration
	halved bool
	counts bool
}

// phases begin with a start that is not counted.
func phases() []phase {
	return []phase{
		{5 * time.Second, false, false},
		{9 * time.Second, false, true},
		{6 * time.Second, true, true},
		{9 * time.Second, false, true},
	}
}

// A request that has ended.
type ended struct {
	phase, class int
	answered     bool
	took         time.Duration
}

// A load sends requests at random times with a mean rate, whether earlier requests are answered or not, each to a
// random gateway.
type load struct {
	client   *http.Client
	gateways []string
	rate     float64
	change   func(halved bool) error

	mu  sync.Mutex
	all []ended
}

func newLoad(gateways []string, rate float64, change func(bool) error) *load {
	return &load{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}},
		gateways: gateways, rate: rate, change: change}
}

// run sends the requests of phases, and waits for the last one.
func (l *load) run(phases []phase) error {
	var requests sync.WaitGroup
	defer l.client.CloseIdleConnections()
	due := time.Now()
	for i, p := range phases {
		if err := l.change(p.halved); err != nil {
			return err
		}
		for end := due.Add(p.length); due.Before(end); {
			due = due.Add(time.Duration(rand.ExpFloat64() / l.rate * float64(time.Second)))
			time.Sleep(time.Until(due))
			at := due
			requests.Go(func() { l.send(i, p.counts, at) })
		}
	}
	requests.Wait()
	return nil
}

// send sends one request, which was due at a time.
func (l *load) send(phase int, counts bool, due time.Time) {
	e := ended{phase: phase}
	for p := rand.Float64(); e.class < len(shares)-1 && p >= shares[e.class]; e.class++ {
		p -= shares[e.class]
	}
	e.answered = l.ask(l.gateways[rand.IntN(len(l.gateways))], classes[e.class])
	if e.took = time.Since(due); !counts {
		return
	}
	l.mu.Lock()
	l.all = append(l.all, e)
	l.mu.Unlock()
}

// ask reports whether the answer is 200.
func (l *load) ask(gateway, class string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), clientsWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway, nil)
	if err != nil {
		return false
	}
	r.Header.Set("X-Criticality", class)
	response, err := l.client.Do(r)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// figures are the results of a run.
type figures struct {
	goodput  float64 // answers a second within the time that is good
	p99      time.Duration
	lost     []float64 // percent, by class
	critical float64   // percent that critical requests lost while the capacity was whole
}

// figures counts answers within a time as good.
func (l *load) figures(phases []phase, good time.Duration) (f figures) {
	var within float64
	var took []time.Duration
	sent, lost := make([]float64, len(classes)), make([]float64, len(classes))
	var critical [2]float64 // sent and lost
	for _, e := range l.all {
		failed := 1.0
		if e.answered {
			failed = 0
			took = append(took, e.took)
			if e.took <= good {
				within++
			}
		}
		sent[e.class]++
		lost[e.class] += failed
		if e.class == 0 && !phases[e.phase].halved {
			critical[0]++
			critical[1] += failed
		}
	}
	var seconds float64
	for _, p := range phases {
		if p.counts {
			seconds += p.length.Seconds()
		}
	}
	f.goodput, f.p99 = within/seconds, percentile(took, 0.99)
	for i := range sent {
		f.lost = append(f.lost, 100*lost[i]/sent[i])
	}
	f.critical = 100 * critical[1] / critical[0]
	return f
}

// percentile returns the longest time for an empty list.
func percentile(list []time.Duration, p float64) time.Duration {
	if len(list) == 0 {
		return math.MaxInt64
	}
	slices.Sort(list)
	return list[int(p*float64(len(list)-1))]
}
