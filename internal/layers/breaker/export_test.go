package breaker

import "time"

// WithBurst sets how many failures in a row open the breaker.
func WithBurst(n int64) Option { return func(c *config) { c.burst = n } }

// WithProbes sets the first and the longest interval between probes.
func WithProbes(first, most time.Duration) Option {
	return func(c *config) { c.first, c.most = first, most }
}

// WithRamp sets the time from the first successful probe until all calls are admitted.
func WithRamp(d time.Duration) Option { return func(c *config) { c.ramp = d } }
