package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weirproject/weir/doors/proxy"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/observe"
)

func (v *server) openGateway(listener net.Listener) error {
	upstream, err := v.upstream()
	if err != nil {
		return err
	}
	counts := v.count(&v.flags.gateway)
	limit, err := httplimit.ByRules(v.gate, append(v.byRules(counts), httplimit.WithClients(v.setup.clients))...)
	if err != nil {
		return err
	}
	sent := v.metrics.Gateway()
	opts := []proxy.Option{
		proxy.WithForm(v.setup.form), proxy.WithClientAddress(v.setup.clients), proxy.WithLog(v.log),
		proxy.WithMaxRequests(v.flags.upstreamRequests), proxy.WithTransport(v.transport(upstream, sent)),
		proxy.WithObserver(func(status int, _ error) { sent.Failed(strconv.Itoa(status)) }),
	}
	if v.flags.upstreamHost {
		opts = append(opts, proxy.WithUpstreamHost())
	}
	if v.flags.overrides {
		opts = append(opts, proxy.WithOverrides())
	}
	if v.flags.strictQuery {
		opts = append(opts, proxy.WithStrictQuery())
	}
	handler, err := proxy.New(upstream, limit, opts...)
	if err != nil {
		return fmt.Errorf("--upstream: %w", err)
	}
	v.frontEnds = append(v.frontEnds, newHTTPServer(listener, v.untrustedPeers(counts).before(handler), 0, counts, v.log).frontEnd("gateway"))
	return nil
}

// upstream is where requests are sent.
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
		return nil, usagef("--upstream is %.200q; allowed: demo, or a URL such as http://127.0.0.1:3000", v.flags.upstream)
	}
	return upstream, nil
}

// transport has no more connections than there may be requests, and times the upstream.
func (v *server) transport(upstream *url.URL, sent *observe.Gateway) http.RoundTripper {
	t := proxy.NewTransport(upstream)
	t.MaxConnsPerHost = v.flags.upstreamRequests
	t.MaxIdleConnsPerHost = min(t.MaxIdleConnsPerHost, v.flags.upstreamRequests)
	return &timed{t, sent}
}

// A timed transport tells how long the upstream took to answer.
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

// count has the metrics count a door.
func (v *server) count(door *listenerFlags) *observe.Server {
	refused := door.counts.Refused
	if door.name == "resp" { // which counts them itself
		refused = nil
	}
	return v.metrics.Server(door.name, door.counts.Open, refused)
}

// byRules is what the doors that see requests of HTTP tell the rules of them.
func (v *server) byRules(counts *observe.Server) []httplimit.Option {
	opts := append([]httplimit.Option{httplimit.WithPathForm(v.setup.form), httplimit.WithObserver(v.afterwards(counts))}, v.setup.methods...)
	if name := v.flags.service; name != "" {
		opts = append(opts, httplimit.WithService(func(*http.Request) string { return name }))
	}
	if name := v.flags.userHeader; name != "" {
		opts = append(opts, httplimit.WithUser(func(r *http.Request) string {
			if !v.setup.clients.TrustsPeer(r) { // anybody can write a header
				return ""
			}
			return r.Header.Get(name)
		}))
	}
	return opts
}

// afterwards tells of what goes wrong with requests that were granted.
func (v *server) afterwards(counts *observe.Server) func(*http.Request, httplimit.Event) {
	return func(_ *http.Request, e httplimit.Event) {
		switch e.Outcome {
		case httplimit.Unsettled:
			counts.Unsettled(observe.Settle)
			v.repeated.warn("the cost of a request is not settled: it stays as it was charged", "error", e.Err)
		case httplimit.Unreleased:
			counts.Unsettled(observe.Release)
			v.repeated.warn("a lease is not released: it lasts to its time-to-live", "error", e.Err)
		case httplimit.Unrenewed:
			counts.Unsettled(observe.Renew)
			v.repeated.warn("a lease is not renewed", "error", e.Err)
		}
	}
}
