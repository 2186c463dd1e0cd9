package breaker

import (
	"time"

	"github.com/weirproject/weir"
)

// An Option changes a Config.
type Option func(*Config)

// NewWith is New with options.
func NewWith(next weir.Store, options ...Option) *Breaker {
	var config Config
	for _, option := range options {
		option(&config)
	}
	return New(next, config)
}

// WithSlow sets Config.Slow.
func WithSlow(slow time.Duration) Option { return func(c *Config) { c.Slow = slow } }

// WithObserver sets Config.Changed.
func WithObserver(changed func(Change)) Option { return func(c *Config) { c.Changed = changed } }

// WithBurst sets how many failures in a row open the breaker.
func WithBurst(n int64) Option { return func(c *Config) { c.burst = n } }

// WithProbes sets the first and the longest interval between probes.
func WithProbes(first, most time.Duration) Option {
	return func(c *Config) { c.first, c.most = first, most }
}

// WithRamp sets the time from the first successful probe until all calls are admitted.
func WithRamp(d time.Duration) Option { return func(c *Config) { c.ramp = d } }
