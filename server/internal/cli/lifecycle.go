package cli

import (
	"context"
	"errors"
	"fmt"
	"github.com/weirproject/weir/rules"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A frontEnd is a server that listens.
type frontEnd struct {
	name     string
	serve    func() error                        // returns after shutdown, or on an error
	drain    func()                              // asks clients to disconnect, and continues to serve
	shutdown func(ctx context.Context) (cut int) // stops accepting, and waits for requests in flight; how many are left
	cut      func()                              // closes the remaining connections
}

// A lifecycle runs the front ends from start to shutdown.
type lifecycle struct {
	frontEnds []frontEnd
	drain     atomic.Int64 // time.Duration from a signal to the shutdown
	timeout   atomic.Int64 // time.Duration of the shutdown, until requests in flight are cut off
	unready   func()       // called first when the shutdown begins
	log       *slog.Logger
}

// set takes the settings, which may change while it runs.
func (l *lifecycle) set(s *rules.Server) {
	l.drain.Store(int64(s.Drain))
	l.timeout.Store(int64(s.ShutdownTimeout))
}

// run serves until a signal or until a front end fails, and then shuts down. A second signal ends
// the shutdown at once.
func (l *lifecycle) run(signals <-chan os.Signal) error {
	failed := make(chan error, len(l.frontEnds))
	for _, f := range l.frontEnds {
		go func() {
			if err := f.serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", f.name, err)
			}
		}()
	}
	select {
	case received := <-signals:
		l.log.Info("shutting down: waiting for requests in flight", "signal", received.String(), "timeout",
			time.Duration(l.timeout.Load()))
		l.leave()
		if !l.wait(signals) {
			return twice(l.atOnce())
		}
		return l.end(signals)
	case failure := <-failed:
		l.leave()
		if cut := l.atOnce(); len(cut) > 0 {
			l.log.Warn("requests in flight were cut off", "requests", strings.Join(cut, ", "))
		}
		return failure
	}
}

// leave tells load balancers and clients about the shutdown.
func (l *lifecycle) leave() {
	l.unready()
	for _, f := range l.frontEnds {
		f.drain()
	}
}

// wait gives load balancers time to see that the server is not ready. It returns false if a signal
// ended the wait.
func (l *lifecycle) wait(signals <-chan os.Signal) bool {
	drain := time.Duration(l.drain.Load())
	if drain <= 0 {
		return true
	}
	select {
	case <-signals:
		return false
	case <-time.After(drain):
		return true
	}
}

// end shuts all front ends down, in parallel.
func (l *lifecycle) end(signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(l.timeout.Load()))
	defer cancel()
	began := time.Now()
	finished := make(chan []string, 1)
	go func() { finished <- l.shut(ctx) }()
	select {
	case cut := <-finished:
		if len(cut) == 0 {
			return nil
		}
		return fmt.Errorf("%s: requests in flight were cut off after %v; raise server.shutdown_timeout",
			strings.Join(cut, ", "), time.Since(began).Round(time.Millisecond))
	case <-signals:
		cancel()
		return twice(<-finished)
	}
}

// closeGrace is how long an immediate exit waits for idle connections to close.
const closeGrace = 50 * time.Millisecond

func (l *lifecycle) atOnce() (cut []string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return l.shut(ctx)
}

// errTwice is the reason of an exit without a wait.
var errTwice = errors.New("exit at once after a second signal")

// twice is the error of an exit by a second signal, with the requests that it cut off.
func twice(cut []string) error {
	if len(cut) == 0 {
		return fmt.Errorf("%w; no requests were in flight", errTwice)
	}
	return fmt.Errorf("%w; requests in flight were cut off: %s", errTwice, strings.Join(cut, ", "))
}

// hangGrace is how long a front end may take to close its connections.
const hangGrace = time.Second

// shut returns when every front end is shut down, or cut off when ctx ends. It returns the front ends with
// requests that were cut off. A front end that hangs is not waited for.
func (l *lifecycle) shut(ctx context.Context) (cut []string) {
	type end struct{ frontEnd, left int }
	ends := make(chan end, len(l.frontEnds))
	for i, f := range l.frontEnds {
		go func() {
			left := f.shutdown(ctx)
			f.cut()
			ends <- end{i, left}
		}()
	}
	late, hangs := context.WithCancel(context.Background())
	defer hangs()
	context.AfterFunc(ctx, func() { time.AfterFunc(hangGrace, hangs) })
	results := make([]string, len(l.frontEnds))
	for i, f := range l.frontEnds {
		results[i] = f.name + " (hangs)"
	}
	for range l.frontEnds {
		select {
		case e := <-ends:
			results[e.frontEnd] = ""
			if e.left > 0 {
				results[e.frontEnd] = fmt.Sprintf("%s (%d)", l.frontEnds[e.frontEnd].name, e.left)
			}
		case <-late.Done():
		}
	}
	return slices.DeleteFunc(results, func(text string) bool { return text == "" })
}

// Times to close the parts after the front ends: the state file, history, audit, traces, the store.
const (
	closeTime      = 10 * time.Second
	closeTimeStuck = time.Second // of a store that is known to hang
)

// bounded calls last, which closes the rest. It does not wait for longer than most, nor after another signal: a
// process that was told to end has to end, whatever hangs in it.
func bounded(last func() error, most time.Duration, signals <-chan os.Signal) error {
	closed := make(chan error, 1)
	go func() { closed <- last() }()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return fmt.Errorf("the store and the files did not close within %v: exit without waiting for them; what was "+
			"not saved is lost", most)
	case <-signals:
		return errors.New("exit at once after another signal: the store and the files were not closed")
	}
}
