package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A running door is one that listens.
type running struct {
	name     string
	serve    func() error                    // returns when the door is shut, or on an error
	shutdown func(ctx context.Context) error // accepts no more, and waits for what is in flight
	cut      func()                          // ends what still is
}

// A lifecycle is when doors open and shut.
type lifecycle struct {
	doors   []running
	drain   time.Duration // from a signal to the moment that doors shut
	timeout time.Duration // from there until what is in flight is cut off
	unready func()        // called at once when the end begins
	log     *slog.Logger
}

// run serves until a signal or until a door fails, and then ends in good order. A second
// signal ends it at once.
func (l *lifecycle) run(signals <-chan os.Signal) error {
	failed := make(chan error, len(l.doors))
	for _, door := range l.doors {
		go func() {
			if err := door.serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", door.name, err)
			}
		}()
	}
	var failure error
	select {
	case received := <-signals:
		l.log.Info("ending: finishing what is in flight", "signal", received.String(), "timeout", l.timeout)
		l.unready()
		failure = l.wait(signals)
	case failure = <-failed:
		l.unready()
	}
	return errors.Join(failure, l.end(signals, failure != nil))
}

// errTwice is what a second signal ends with.
var errTwice = errors.New("ended at once by a second signal; what was in flight was cut off")

// wait gives load balancers time to see that the server is not ready any more.
func (l *lifecycle) wait(signals <-chan os.Signal) error {
	if l.drain <= 0 {
		return nil
	}
	select {
	case <-signals:
		return errTwice
	case <-time.After(l.drain):
		return nil
	}
}

// end shuts all doors, together.
func (l *lifecycle) end(signals <-chan os.Signal, atOnce bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	if atOnce {
		cancel()
	}
	finished := make(chan error, 1)
	go func() { finished <- l.shut(ctx) }()
	select {
	case err := <-finished:
		return err
	case <-signals:
		cancel()
		<-finished
		return errTwice
	}
}

// shut returns when every door is shut: by itself, or cut off when ctx ends.
func (l *lifecycle) shut(ctx context.Context) error {
	late := make([]error, len(l.doors))
	var doors sync.WaitGroup
	for i, door := range l.doors {
		doors.Go(func() {
			err := door.shutdown(ctx)
			door.cut()
			if err != nil {
				late[i] = fmt.Errorf("%s: requests were still in flight after %v and were cut off; --shutdown-timeout gives them longer", door.name, l.timeout)
			}
		})
	}
	doors.Wait()
	return errors.Join(late...)
}
