package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/weirproject/weir/internal/pause"
)

const (
	failedChecks = 2                // in a row, after which an address is left out
	maxCheck     = 10 * time.Second // or the interval, if that is shorter
	maxSpread    = time.Second      // of the first checks
)

// check checks an address until the context ends.
func (w *watcher) check(ctx context.Context, m *member) {
	every := w.spec.CheckInterval
	failed := 0
	for wait := rand.N(min(every, maxSpread)); pause.For(wait, ctx.Done()); {
		err := w.checkOnce(ctx, m)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = 0
			if m.down.Swap(false) {
				m.well()
				w.log.Info("address of a service is used again: its check passed", "service", w.spec.Name, "address",
					m.host)
			}
		default:
			if failed++; failed >= failedChecks && !m.down.Swap(true) {
				w.log.Warn("address of a service is left out: its checks fail", "service", w.spec.Name, "address",
					m.host, "error", err)
			}
		}
		wait = every - every/10 + rand.N(every/5)
	}
}

func (w *watcher) checkOnce(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, min(w.spec.CheckInterval, maxCheck))
	defer cancel()
	target, err := url.Parse(w.spec.CheckPath)
	if err != nil {
		return err
	}
	target.Scheme, target.Host = m.URL.Scheme, m.host
	if target.Scheme == h2c {
		target.Scheme = "http"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	r.Host = m.URL.Host
	r.Header.Set("User-Agent", "weir health check")
	response, err := w.checks.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // the connection is kept if the answer is short
	want := w.spec.CheckStatus
	if got := response.StatusCode; want != 0 && got != want || want == 0 && (got < 200 || got > 399) {
		return fmt.Errorf("the status is %d", got)
	}
	return nil
}
