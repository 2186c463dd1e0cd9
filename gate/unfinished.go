package gate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

const (
	maxUnfinished   = 10_000
	firstRepetition = 50 * time.Millisecond
	lastRepetition  = time.Second      // between repetitions
	repeatFor       = 10 * time.Second // then a call is given up
)

// unfinished are calls after a response that the store surely did not execute. One goroutine repeats them in order,
// while there are any.
type unfinished struct {
	mu    sync.Mutex
	calls []repeated
	busy  bool // the goroutine runs
}

// A repeated call.
type repeated struct {
	call  func(context.Context) error
	most  time.Duration // of one call
	end   func(error)   // called once, when the call was executed or is given up
	until time.Time
}

// add queues a call that failed, if it may be repeated, and reports whether it did.
func (u *unfinished) add(failed error, most time.Duration, call func(context.Context) error, end func(error)) bool {
	if !errors.Is(failed, weir.ErrNotExecuted) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.calls) == maxUnfinished {
		return false
	}
	u.calls = append(u.calls, repeated{call, most, end, time.Now().Add(repeatFor)})
	if !u.busy {
		u.busy = true
		go u.run()
	}
	return true
}

// run repeats calls until no call is left.
func (u *unfinished) run() {
	for wait := firstRepetition; ; wait = min(2*wait, lastRepetition) {
		time.Sleep(wait)
		for {
			u.mu.Lock()
			if u.busy = len(u.calls) > 0; !u.busy {
				u.calls = nil
				u.mu.Unlock()
				return
			}
			first := u.calls[0]
			u.mu.Unlock()
			if !first.repeat() {
				break
			}
			u.mu.Lock()
			u.calls[0] = repeated{}
			u.calls = u.calls[1:]
			u.mu.Unlock()
			wait = firstRepetition
		}
	}
}

// repeat calls the store again. It reports whether the call is over: executed, perhaps executed, or too late.
func (r *repeated) repeat() bool {
	ctx, cancel := context.WithTimeout(context.Background(), r.most)
	defer cancel()
	err := r.call(ctx)
	if errors.Is(err, weir.ErrNotExecuted) && time.Now().Before(r.until) {
		return false
	}
	r.end(err)
	return true
}
