package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// A service works on requests with workers, and each request that waits makes the work of the others longer, as memory
// and switches between threads do. Waiting requests leave when their clients do.
type service struct {
	name     string
	parallel time.Duration // of each request, before it needs a worker
	work     time.Duration // mean time of a worker
	random   bool          // the time of a worker is exponential
	workers  int
	most     int // requests inside; others are refused with 503; 0: no bound

	permits chan struct{}
	inside  atomic.Int64
	slow    atomic.Bool // the capacity is halved
}

// services returns the measured services.
func services() []*service {
	return []*service{
		{name: "pool", work: 80 * time.Millisecond, random: true, workers: 32},
		{name: "lock", parallel: 45 * time.Millisecond, work: 5 * time.Millisecond, workers: 1},
		{name: "refuses", work: 80 * time.Millisecond, random: true, workers: 32, most: 48},
	}
}

func serviceOf(name string) *service {
	for _, s := range services() {
		if s.name == name {
			s.permits = make(chan struct{}, s.workers)
			return s
		}
	}
	return nil
}

// capacity is the number of requests a second.
func (s *service) capacity() float64 { return float64(s.workers) / s.work.Seconds() }

// concurrency is the number of requests in progress at that capacity while none waits.
func (s *service) concurrency() float64 { return s.capacity() * (s.parallel + s.work).Seconds() }

// waitingCosts is the fraction by which each waiting request makes the work of others longer.
const waitingCosts = 0.001

// ServeHTTP implements http.Handler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/halve":
		s.slow.Store(true)
		return
	case "/restore":
		s.slow.Store(false)
		return
	}
	inside := s.inside.Add(1)
	defer s.inside.Add(-1)
	if s.most > 0 && inside > int64(s.most) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	time.Sleep(s.parallel)
	if s.serve(r.Context(), inside) {
		w.Write([]byte("done\n"))
	}
}

// serve waits for a worker, and works. It reports whether the client has waited for it.
func (s *service) serve(ctx context.Context, inside int64) bool {
	select {
	case s.permits <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-s.permits }()
	took := float64(s.work) * (1 + waitingCosts*max(0, float64(inside)-s.concurrency()))
	if s.random {
		took *= rand.ExpFloat64()
	}
	if s.slow.Load() {
		took *= 2
	}
	time.Sleep(time.Duration(took))
	return true
}
