package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/rules"
)

const (
	failedChecks = 2                // in a row, after which an address is left out
	longestCheck = 10 * time.Second // or the interval, if that is shorter
	mostSpread   = time.Second      // of the first checks
)

// A checker checks the addresses of a service: see docs/gateway.md, Health. The connections are its own, so that it
// needs no place among those of requests.
type checker struct {
	spec      *rules.Service
	pool      *pool
	transport *http.Transport
	log       *slog.Logger
	cancel    context.CancelFunc // nil: it does not run
}

func newChecker(s *service, log *slog.Logger) *checker {
	c := &checker{spec: s.spec, pool: s.pool, log: log}
	if s.spec.CheckPath != "" {
		c.transport = s.transport.Clone()
		c.transport.MaxConnsPerHost = 0
	}
	return c
}

// start begins the checks, if the service has any and they do not run.
func (c *checker) start() {
	if c.transport == nil || c.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for i := range c.pool.members {
		go c.run(ctx, &c.pool.members[i])
	}
}

func (c *checker) stop() {
	if c.cancel != nil {
		c.cancel()
		c.transport.CloseIdleConnections()
	}
}

// run checks an address until the context ends.
func (c *checker) run(ctx context.Context, m *member) {
	every := c.spec.CheckInterval
	failed := 0
	for wait := rand.N(min(every, mostSpread)); pause.For(wait, ctx.Done()); {
		err := c.check(ctx, m)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = 0
			if m.down.Swap(false) {
				m.well()
				c.log.Info("address of a service is used again: its check passed", "service", c.spec.Name, "address",
					m.URL.Host)
			}
		default:
			if failed++; failed >= failedChecks && !m.down.Swap(true) {
				c.log.Warn("address of a service is left out: its checks fail", "service", c.spec.Name, "address",
					m.URL.Host, "error", err)
			}
		}
		wait = every - every/10 + rand.N(every/5)
	}
}

// check sends one check.
func (c *checker) check(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, min(c.spec.CheckInterval, longestCheck))
	defer cancel()
	target, err := url.Parse(c.spec.CheckPath)
	if err != nil {
		return err
	}
	target.Scheme, target.Host = m.URL.Scheme, m.URL.Host
	if target.Scheme == h2c {
		target.Scheme = "http"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "weir health check")
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // the connection is kept if the answer is short
	want := c.spec.CheckStatus
	if got := response.StatusCode; want != 0 && got != want || want == 0 && (got < 200 || got > 399) {
		return fmt.Errorf("the status is %d", got)
	}
	return nil
}
