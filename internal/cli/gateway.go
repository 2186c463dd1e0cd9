package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/server/gateway"
	"github.com/weirproject/weir/observe"
)

func (v *server) openGateway(l *listenerFlags) error {
	upstream, err := v.upstream()
	if err != nil {
		return err
	}
	counts := v.count(l)
	limit, err := httplimit.ByRules(v.engine.Gate, v.byRules(counts)...)
	if err != nil {
		return err
	}
	sent := v.engine.Metrics.Gateway()
	handler, err := gateway.New(upstream, limit, gateway.Config{
		Form:         v.engine.Form,
		StrictQuery:  v.flags.strictQuery,
		Clients:      v.engine.Clients,
		UpstreamHost: v.flags.upstreamHost,
		Transport:    v.transport(upstream, sent),
		Overrides:    v.flags.overrides,
		MaxRequests:  v.flags.upstreamRequests,
		Log:          v.log,
		Observe:      func(status int, _ error) { sent.Failed(strconv.Itoa(status)) },
	})
	if err != nil {
		return fmt.Errorf("--upstream: %w", err)
	}
	server := newHTTPServer(l.listener, v.untrustedPeers(counts).before(handler), 0, counts, v.log).traced(v, l)
	v.frontEnds = append(v.frontEnds, server.frontEnd("gateway"))
	return nil
}

// upstream is the URL of the upstream.
func (v *server) upstream() (*url.URL, error) {
	target := v.flags.upstream
	if target == demo {
		var err error
		if target, err = startDemo(); err != nil {
			return nil, err
		}
	}
	upstream, err := url.Parse(target)
	if err != nil {
		return nil, usagef("--upstream is %.200q; allowed: demo, or a URL such as http://127.0.0.1:3000",
			v.flags.upstream)
	}
	return upstream, nil
}

// transport has at most as many connections as requests are allowed, and times the upstream.
func (v *server) transport(upstream *url.URL, sent *observe.Gateway) http.RoundTripper {
	t := gateway.NewTransport(upstream)
	t.MaxConnsPerHost = v.flags.upstreamRequests
	t.MaxIdleConnsPerHost = min(t.MaxIdleConnsPerHost, v.flags.upstreamRequests)
	if v.otlp != nil {
		return v.otlp.Transport(&timed{t, sent})
	}
	return &timed{t, sent}
}

// A timed transport measures the latency of the upstream.
type timed struct {
	http.RoundTripper
	sent *observe.Gateway
}

// RoundTrip implements http.RoundTripper.
func (t *timed) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		t.sent.Answered(time.Since(began))
	}
	return response, err
}

// count registers the metrics of a listener.
func (v *server) count(l *listenerFlags) *observe.Server {
	refused := l.counts.Refused
	if l.name == "resp" { // it counts them itself
		refused = nil
	}
	return v.engine.Metrics.Server(l.name, l.counts.Open, refused)
}

// byRules are the options of front ends that decide HTTP requests.
func (v *server) byRules(counts *observe.Server) []httplimit.Option {
	opts := append(v.engine.HTTPOptions(), httplimit.WithObserver(v.afterwards(counts)))
	if name := v.flags.service; name != "" {
		opts = append(opts, httplimit.WithService(func(*http.Request) string { return name }))
	}
	if name := v.flags.userHeader; name != "" {
		opts = append(opts, httplimit.WithUser(func(r *http.Request) string {
			if !v.engine.Clients.TrustsPeer(r) { // any client can send the header
				return ""
			}
			return r.Header.Get(name)
		}))
	}
	return opts
}

// afterwards logs and counts failures after a grant.
func (v *server) afterwards(counts *observe.Server) func(*http.Request, httplimit.Event) {
	return func(_ *http.Request, e httplimit.Event) {
		switch e.Outcome {
		case httplimit.Unsettled:
			counts.Unsettled("settle")
			v.repeated.warn("cost of a request not settled: the estimate stays charged", "error", e.Err)
		case httplimit.Unreleased:
			counts.Unsettled("release")
			v.repeated.warn("lease not released: it expires after its TTL", "error", e.Err)
		case httplimit.Unrenewed:
			counts.Unsettled("renew")
			v.repeated.warn("lease not renewed", "error", e.Err)
		}
	}
}
