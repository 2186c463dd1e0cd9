//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

const (
	outageRate = 5000 // decisions a second
	budget     = 50 * time.Millisecond
)

// An outage asks through all layers, at a steady rate, while Redis is stopped (SIGSTOP) and
// goes on again.
type outage struct {
	limiter *weir.Limiter
	standIn *weir.Limiter // over this process' own store
	names   *names
	asked   int
	under   sync.WaitGroup
}

// A phase is what came of the decisions that were asked for in it.
type phase struct {
	mu         sync.Mutex
	took       histogram
	failed     int
	lastFailed time.Duration // since its beginning: the last that Redis did not decide
}

// layeredStore is what weir serve puts before a Redis, for limits without leases.
func layeredStore(s *server) (shared, local weir.Store, err error) {
	redis, err := redisstore.Open(context.Background(), s.url, redisstore.WithTimeout(budget))
	if err != nil {
		return nil, nil, err
	}
	stack, err := layers.New(redis, layers.Options{Local: memstore.New(),
		Terms: func(*weir.Limit) layers.Terms { return layers.Terms{Local: true} }})
	if err != nil {
		return nil, nil, err
	}
	return stack.Store, stack.Local, nil
}

// overOutage measures one, of a Redis that this run started.
func overOutage(out io.Writer, s *server) ([]bar, error) {
	if s.command == nil {
		return nil, fmt.Errorf("only a Redis of its own is stopped: leave out -redis")
	}
	o := &outage{names: newNames("", tenThousand)}
	store, local, err := layeredStore(s)
	if err != nil {
		return nil, err
	}
	defer local.Close()
	defer store.Close()
	if o.limiter, err = weir.New(store, "outage", bucketOf(generous)); err != nil {
		return nil, err
	}
	if o.standIn, err = weir.New(local, "outage", bucketOf(generous)); err != nil {
		return nil, err
	}
	well := o.ask(2 * time.Second)
	goroutines := runtime.NumGoroutine()
	process := s.command.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	first, open := o.ask(time.Second), o.ask(3*time.Second)
	if err := process.Signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	back := o.ask(4 * time.Second)
	o.under.Wait()
	fmt.Fprintf(out, "## A Redis that is stopped\n\n%d decisions a second through all layers; the store's timeout is %v. Goroutines: %d before, %d after.\n\n", outageRate, budget, goroutines, runtime.NumGoroutine())
	t := table{head: []string{"", "decisions", "degraded", "p50 us", "p99 us", "p99.9 us"}}
	for _, line := range []struct {
		what string
		p    *phase
	}{{"Redis is well", well}, {"the first second without it", first}, {"the next three", open}, {"it is back, four seconds", back}} {
		t.add(line.what, fmt.Sprint(line.p.took.n), fmt.Sprint(line.p.failed), micros(float64(line.p.took.percentile(0.5))), micros(float64(line.p.took.percentile(0.99))), micros(float64(line.p.took.percentile(0.999))))
	}
	t.print(out)
	return []bar{
		{what: "Redis stopped: p99 in the first second, in ms", ratio: first.took.percentile(0.99).Seconds() * 1e3, bound: 50, measured: "5000/s"},
		{what: "Redis stopped: p99 once the breaker is open, in ms", ratio: open.took.percentile(0.99).Seconds() * 1e3, bound: 1, measured: "5000/s"},
		{what: "Redis goes on: s until it decides all again", ratio: back.lastFailed.Seconds(), bound: 2, measured: "5000/s"},
	}, nil
}

// ask asks for some time. It does not wait for answers: who comes does not know of those
// before. A late answer belongs to the phase in which it was asked for.
func (o *outage) ask(length time.Duration) *phase {
	p := new(phase)
	began := time.Now()
	for n := 0; ; n++ {
		due := time.Duration(n) * time.Second / outageRate
		if due >= length {
			break
		}
		if early := due - time.Since(began); early > 0 {
			time.Sleep(early)
		}
		name := o.names.at(o.asked % o.names.n)
		o.asked++
		o.under.Go(func() { p.decide(o, name, began) })
	}
	time.Sleep(budget) // those on their way
	return p
}

func (p *phase) decide(o *outage, name string, began time.Time) {
	start := time.Now()
	_, err := o.limiter.Allow(context.Background(), name)
	degraded := err != nil
	if errors.Is(err, weir.ErrUnavailable) {
		_, err = o.standIn.Allow(context.Background(), name)
	}
	took := time.Since(start)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took.record(took)
	if err != nil || degraded {
		p.failed++
		p.lastFailed = max(p.lastFailed, start.Sub(began))
	}
}
