package breaker

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/internal/timeout"
)

// An Option changes what New makes.
type Option func(*config)

type config struct {
	slow    time.Duration
	share   float64
	within  time.Duration
	least   int64
	burst   int64
	first   time.Duration
	most    time.Duration
	ramp    time.Duration
	changed func(Change)
}

// WithSlow is from when on a call counts as slow, which is to fail. The default is three quarters
// of the store's timeout, where the store tells it, as redisstore does; over any other store the
// option is required. (A fixed default would take a store that is well, but farther away than that,
// for a dead one for ever.) It bounds probes too. Callers whose deadlines are shorter look after
// themselves: what they give up before says nothing about the store.
func WithSlow(slow time.Duration) Option { return func(c *config) { c.slow = slow } }

// WithRate opens the breaker when a share of the requests (more than 0, at most 1) of so long
// a time failed, and they were at least so many; the default is half of 20 or more in a second.
// Under half, a Cluster of three that lost a master would be taken for lost as a whole.
func WithRate(share float64, within time.Duration, least int64) Option {
	return func(c *config) { c.share, c.within, c.least = share, within, least }
}

// WithBurst opens the breaker when so many requests in a row failed and none was answered for
// as long as a call may take before it is slow; the default is 5.
func WithBurst(n int64) Option { return func(c *config) { c.burst = n } }

// WithProbes says how long after opening the first probe is made, and how long at most after
// one that failed the next; the defaults are 50ms and 500ms. In between it is a twentieth of the
// time for which the store has been gone. Each waits for half to all of that.
func WithProbes(first, most time.Duration) Option {
	return func(c *config) { c.first, c.most = first, most }
}

// WithRamp is how long it takes from the first probe that goes well until all calls are let in;
// the default is 250ms.
func WithRamp(d time.Duration) Option { return func(c *config) { c.ramp = d } }

// WithObserver has changed told of each change of the state, one after the other. It runs while
// the change is made, perhaps in a caller's way: it must be quick, and must not close the store.
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
	told := c.slow > 0
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case next == nil:
		return c, bad("next", "nil", "a store")
	case c.slow == 0 && !told:
		return c, bad("slow", "none", "WithSlow, more than 0: this store does not tell its timeout")
	case c.slow <= 0:
		return c, bad("slow", c.slow, "more than 0")
	case !(c.share > 0 && c.share <= 1):
		return c, bad("share of failures", c.share, "more than 0, at most 1")
	case c.within < time.Millisecond:
		return c, bad("time in which failures are counted", c.within, "1ms or more")
	case c.least < 1:
		return c, bad("least number of requests", c.least, "1 or more")
	case c.burst < 1:
		return c, bad("burst", c.burst, "1 or more")
	case c.first <= 0 || c.most < c.first:
		return c, bad("probes", c.first.String()+" to "+c.most.String(), "first more than 0, most not less than first")
	case c.ramp <= 0:
		return c, bad("ramp", c.ramp, "more than 0")
	}
	return c, nil
}

func bad(field string, given any, allowed string) error {
	return &weir.InputError{Field: field, Given: given, Allowed: allowed}
}
