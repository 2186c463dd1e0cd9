// Package inprogress has the place of a request in an adaptive limit, which HTTP and gRPC servers give back alike.
package inprogress

import (
	"sync"
	"time"

	"github.com/weirproject/weir/adaptive"
)

// A Place is a unit of a limit that one request holds. It is safe for concurrent use: a handler may respond while one
// of its goroutines reads.
type Place struct {
	limiter *adaptive.Limiter
	began   time.Time

	mu       sync.Mutex
	free     bool
	waited   time.Duration // in which the handler waited for its client
	received func()        // ends the last wait; nil: there was none
}

// Admitted is the place of a request that limiter.Acquire has admitted just now.
func Admitted(limiter *adaptive.Limiter) Place {
	return Place{limiter: limiter, began: time.Now()}
}

// Wait begins a wait for the client, which is no part of the latency; ended ends it. Both have no effect after Release.
func (p *Place) Wait() (ended func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free {
		return func() {}
	}
	began, received := time.Now(), p.limiter.Receive()
	p.received = received
	return func() {
		received()
		p.mu.Lock()
		p.waited += time.Since(began)
		p.mu.Unlock()
	}
}

// Release gives the place back. Only the first call has an effect.
func (p *Place) Release(outcome adaptive.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free {
		return
	}
	p.free = true
	if p.received != nil {
		p.received()
	}
	p.limiter.Release(outcome, time.Since(p.began)-p.waited)
}
