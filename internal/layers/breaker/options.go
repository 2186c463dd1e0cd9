package breaker

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/timeout"
)

// An Option configures New.
type Option func(*config)

type config struct {
	slow    time.Duration
	changed func(Change)

	// The breaker opens when this share of the requests of a window failed, if there were at least so many. Below a
	// half, the loss of one master of a Cluster of three would count as the loss of the whole.
	share  float64
	within time.Duration
	least  int64

	burst int64 // failures in a row that open the breaker, if none is answered for as long as slow

	// The interval between probes, jittered down to a half: first after opening, then a part of the outage so far.
	first, most time.Duration

	ramp time.Duration // from the first successful probe until all calls are admitted
}

// WithSlow sets the duration from which a call counts as slow, which is a failure. The default is three
// quarters of the store's timeout where the store has one, as redisstore does; over any other store the option
// is required. (A fixed default would take a healthy but distant store for dead.) It bounds probes as well. A
// caller with a shorter deadline gives no evidence about the store when it gives up.
func WithSlow(slow time.Duration) Option { return func(c *config) { c.slow = slow } }

// WithObserver sets a function that receives each change of the state, sequentially. It runs during the change,
// possibly in a caller's goroutine: it must be fast and must not close the store.
func WithObserver(changed func(Change)) Option { return func(c *config) { c.changed = changed } }

func newConfig(next weir.Store, opts []Option) (config, error) {
	c := config{
		share: 0.5, within: time.Second, least: 20,
		burst: 5,
		first: 50 * time.Millisecond, most: 500 * time.Millisecond,
		ramp: 250 * time.Millisecond,
	}
	if next != nil {
		c.slow = timeout.Of(next) / 4 * 3
	}
	known := c.slow > 0
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case next == nil:
		return c, bad("next", "nil", "a store")
	case c.slow == 0 && !known:
		return c, bad("slow", "none", "WithSlow, more than 0: this store has no Timeout method")
	case c.slow <= 0:
		return c, bad("slow", c.slow, "more than 0")
	}
	return c, nil
}

func bad(field string, given any, allowed string) error {
	return &weir.InputError{Field: field, Given: given, Allowed: allowed}
}
