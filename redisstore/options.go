package redisstore

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// An Option changes what Open and New do.
type Option func(*config)

type config struct {
	prefix  string
	timeout time.Duration
	clock   func() weir.Instant // nil: Redis' own TIME
	tls     *tls.Config
	warn    func(string)
}

// WithPrefix replaces "weir:" at the beginning of every key.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithTimeout bounds each call of the store; the default is 50ms. Redis has at least 14/16 of
// it, so that the caller has the answer in time. It must leave room for one round trip;
// connections are made in the background and may take longer.
func WithTimeout(timeout time.Duration) Option { return func(c *config) { c.timeout = timeout } }

// WithClock drives the store by a given clock instead of Redis' own TIME: for tests.
// Stores that share keys must share the clock.
func WithClock(clock func() weir.Instant) Option { return func(c *config) { c.clock = clock } }

// WithTLS is the TLS configuration for a rediss:// URL, to which the URL's parameters are added.
func WithTLS(tls *tls.Config) Option { return func(c *config) { c.tls = tls } }

// WithWarn receives Open's warnings about the server's configuration; the default is slog.Warn, and nil drops them.
func WithWarn(warn func(text string)) Option { return func(c *config) { c.warn = warn } }

func newConfig(opts []Option) (config, error) {
	c := config{
		prefix: "weir:", timeout: redisconn.DefaultTimeout,
		warn: func(text string) { slog.Warn(text) },
	}
	for _, opt := range opts {
		opt(&c)
	}
	if c.timeout <= 0 {
		return c, &weir.InputError{Field: "timeout", Given: c.timeout, Allowed: "more than 0"}
	}
	return c, nil
}

func (c *config) connection() redisconn.Config {
	return redisconn.Config{Timeout: c.timeout, TLS: c.tls, Warn: c.warn}
}

// Open connects to the Redis that a URL names and makes a Store of it:
//
//	redis://user:password@host:6379/0             one server
//	unix://user:password@/path/to/redis.sock?db=0
//	redis+cluster://user:password@host1:6379,host2:6379,host3
//	redis+sentinel://user:password@sentinel1:26379,sentinel2,sentinel3/mymaster/0
//
// rediss instead of redis speaks TLS, with the parameters ca, cert and key (PEM files), server_name, and
// any_name=true, which accepts certificates for any name. The
// credentials of Sentinels are sentinel_user and sentinel_password. User and password are percent-encoded.
//
// Open asks the server for its version, which must be 6.2 or later (or any Valkey), and
// warns of settings that make Redis forget limits. It gives up when ctx ends.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	config, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	conn, err := redisconn.Open(ctx, url, config.connection())
	if err != nil {
		return nil, err
	}
	store, err := New(conn, opts...)
	if err != nil {
		conn.Close()
	}
	return store, err
}
