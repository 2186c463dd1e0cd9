// Package clock is the time that the gate and the layers live in: the process's own, or that of a driver, such as a
// simulation, in which time is computed and one goroutine runs at a time.
//
// Code that may be driven reads no other clock, starts no other goroutine, and calls Wait before it blocks:
//
//	c.Wait(done, ctx)
//	select {
//	case <-done:
//	case <-ctx.Done():
//	}
//
// With the process's clock Wait returns at once. A driver runs other goroutines until one of the channels is ready, so
// that the select does not block.
package clock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/pause"
)

// A Driver computes time. Its methods are called by the goroutines that it runs, of which one runs at a time.
type Driver interface {
	// Now is the current time.
	Now() time.Time
	// Go runs f in a goroutine of the driver, after the caller waits or ends.
	Go(f func())
	// Wait returns when ready has a value or is closed, or ctx is done. Either may be nil, which is never.
	Wait(ready <-chan struct{}, ctx context.Context)
	// WithDeadline is context.WithDeadline.
	WithDeadline(parent context.Context, end time.Time) (context.Context, context.CancelFunc)
	// Uint64 is a random number.
	Uint64() uint64
}

// A Clock is the time of the process, if its Driver is nil, or of the driver.
type Clock struct{ Driver Driver }

// Now is time.Now.
func (c Clock) Now() time.Time {
	if c.Driver == nil {
		return time.Now()
	}
	return c.Driver.Now()
}

// Since is time.Since.
func (c Clock) Since(t time.Time) time.Duration {
	if c.Driver == nil {
		return time.Since(t)
	}
	return c.Driver.Now().Sub(t)
}

// Go runs f in a goroutine.
func (c Clock) Go(f func()) {
	if c.Driver == nil {
		go f()
		return
	}
	c.Driver.Go(f)
}

// Wait is called before a goroutine blocks on the two: see the comment of the package.
func (c Clock) Wait(ready <-chan struct{}, ctx context.Context) {
	if c.Driver != nil {
		c.Driver.Wait(ready, ctx)
	}
}

// WithDeadline is context.WithDeadline.
func (c Clock) WithDeadline(parent context.Context, end time.Time) (context.Context, context.CancelFunc) {
	if c.Driver == nil {
		return context.WithDeadline(parent, end)
	}
	return c.Driver.WithDeadline(parent, end)
}

// WithTimeout is context.WithTimeout.
func (c Clock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.WithDeadline(parent, c.Now().Add(d))
}

// Pause waits for d, and reports whether that time passed before done was ready.
func (c Clock) Pause(d time.Duration, done <-chan struct{}) bool {
	if c.Driver == nil {
		return pause.For(d, done)
	}
	timer, cancel := c.Driver.WithDeadline(context.Background(), c.Driver.Now().Add(d))
	defer cancel()
	c.Driver.Wait(done, timer)
	return timer.Err() != nil
}

// Int64N is rand.Int64N.
func (c Clock) Int64N(n int64) int64 {
	if c.Driver == nil {
		return rand.Int64N(n)
	}
	return rand.New(c.Driver).Int64N(n)
}

// A Group is a sync.WaitGroup for the goroutines of a clock. Set Clock before the first use.
type Group struct {
	Clock Clock

	real sync.WaitGroup
	left int           // goroutines of a driver
	idle chan struct{} // closed when there is none left; nil: nobody waits
}

// Go runs f in a goroutine of the group.
func (g *Group) Go(f func()) {
	if g.Clock.Driver == nil {
		g.real.Go(f)
		return
	}
	g.left++
	g.Clock.Driver.Go(func() {
		f()
		if g.left--; g.left == 0 && g.idle != nil {
			close(g.idle)
			g.idle = nil
		}
	})
}

// Wait waits until all goroutines of the group have ended. One goroutine may wait at a time.
func (g *Group) Wait() {
	if g.left > 0 {
		g.idle = make(chan struct{})
		g.Clock.Driver.Wait(g.idle, nil)
	}
	g.real.Wait()
}
