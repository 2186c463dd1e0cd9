package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// A running door is one that listens.
type frontEnd struct {
	name     string
	serve    func() error                        // returns when the door is shut, or on an error
	drain    func()                              // asks clients to leave, and goes on serving
	shutdown func(ctx context.Context) (cut int) // accepts no more, and waits for what is in flight; what is left then
	cut      func()                              // ends what still is
}

// A lifecycle is when doors open and shut.
type lifecycle struct {
	frontEnds []frontEnd
	drain     time.Duration // from a signal to the moment that doors shut
	timeout   time.Duration // from there until what is in flight is cut off
	unready   func()        // called at once when the end begins
	log       *slog.Logger
}

// run serves until a signal or until a door fails, and then ends in good order. A second
// signal ends it at once.
func (l *lifecycle) run(signals <-chan os.Signal) error {
	failed := make(chan error, len(l.frontEnds))
	for _, door := range l.frontEnds {
		go func() {
			if err := door.serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", door.name, err)
			}
		}()
	}
	select {
	case received := <-signals:
		l.log.Info("ending: finishing what is in flight", "signal", received.String(), "timeout", l.timeout)
		l.leave()
		if !l.wait(signals) {
			return twice(l.atOnce())
		}
		return l.end(signals)
	case failure := <-failed:
		l.leave()
		if cut := l.atOnce(); len(cut) > 0 {
			l.log.Warn("what was in flight was cut off", "requests", strings.Join(cut, ", "))
		}
		return failure
	}
}

// leave tells load balancers and clients that the end has begun.
func (l *lifecycle) leave() {
	l.unready()
	for _, door := range l.frontEnds {
		door.drain()
	}
}

// wait gives load balancers time to see that the server is not ready any more. A signal ends
// it, and then it is false.
func (l *lifecycle) wait(signals <-chan os.Signal) bool {
	if l.drain <= 0 {
		return true
	}
	select {
	case <-signals:
		return false
	case <-time.After(l.drain):
		return true
	}
}

// end shuts all doors, together.
func (l *lifecycle) end(signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	finished := make(chan []string, 1)
	go func() { finished <- l.shut(ctx) }()
	select {
	case cut := <-finished:
		if len(cut) == 0 {
			return nil
		}
		return fmt.Errorf("%s: requests were still in flight after %v and were cut off; --shutdown-timeout gives them longer", strings.Join(cut, ", "), l.timeout)
	case <-signals:
		cancel()
		return twice(<-finished)
	}
}

// closeGrace is how long a server that ends at once gives connections on which nothing is in flight.
const closeGrace = 50 * time.Millisecond

func (l *lifecycle) atOnce() (cut []string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return l.shut(ctx)
}

// twice is the end by a second signal, with what it has cut off.
func twice(cut []string) error {
	if len(cut) == 0 {
		return errors.New("ended at once by a second signal; nothing was in flight")
	}
	return fmt.Errorf("ended at once by a second signal; what was in flight was cut off: %s", strings.Join(cut, ", "))
}

// shut returns when every door is shut: by itself, or cut off when ctx ends. It says what was
// cut off where.
func (l *lifecycle) shut(ctx context.Context) (cut []string) {
	left := make([]int, len(l.frontEnds))
	var doors sync.WaitGroup
	for i, door := range l.frontEnds {
		doors.Go(func() {
			left[i] = door.shutdown(ctx)
			door.cut()
		})
	}
	doors.Wait()
	for i, n := range left {
		if n > 0 {
			cut = append(cut, fmt.Sprintf("%s (%d)", l.frontEnds[i].name, n))
		}
	}
	return cut
}
