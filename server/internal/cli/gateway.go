package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/server/internal/gateway"
)

func (v *server) openGateway(l *listener) error {
	upstream, err := v.upstream()
	if err != nil {
		return err
	}
	if err = v.openAccessLog(); err != nil {
		return err
	}
	counts := v.count(l)
	o := v.byRules(counts, gateway.TrustsPeer)
	o.Read, o.GRPCStatus, o.Pages, o.Decoders = gateway.Read, true, true, gateway.Decoders()
	o.Observe = v.access.observer(v.observed(counts))
	o.Service = func(r *http.Request) string { return cmp.Or(gateway.ServiceOf(r), v.engine.Service) }
	limit, err := httplimit.ByRules(v.engine.Gate, o)
	if err != nil {
		return err
	}
	sent := v.engine.Metrics.Gateway()
	v.engine.Metrics.Upstreams(v.upstreams.Services, v.upstreams.Routes)
	handler, err := gateway.New(upstream, limit, gateway.Config{
		Form:         v.engine.Form,
		StrictQuery:  v.engine.StrictQuery,
		Clients:      v.engine.Clients,
		Untrusted:    v.untrustedPeers(counts).look,
		UpstreamHost: v.engine.UpstreamHost,
		Transport:    v.transport(upstream),
		Upstreams:    v.upstreams,
		Wrap:         v.wrapper(),
		Answered:     sent.Answered,
		Overrides:    v.engine.ForwardOverrides,
		MaxRequests:  v.engine.UpstreamRequests,
		User:         o.User,
		Log:          v.log,
		Observe:      func(status int, _ error) { sent.Failed(strconv.Itoa(status)) },
	})
	if err != nil {
		return fmt.Errorf("server.upstream: %w", err)
	}
	handler = v.access.wrap(handler)
	server := newHTTPServer(l.listener, handler, 0, counts, v.log).traced(v, l)
	v.frontEnds = append(v.frontEnds, server.frontEnd("gateway"))
	return nil
}

// upstream is the URL of the upstream; nil without one.
func (v *server) upstream() (*url.URL, error) {
	target := v.engine.Upstream
	if target == "" {
		return nil, nil
	}
	if target == demo {
		var err error
		if target, err = startDemo(); err != nil {
			return nil, err
		}
	}
	upstream, err := url.Parse(target)
	if err != nil {
		return nil, program.Usagef("server.upstream is %.200q; allowed: demo, or a URL such as http://127.0.0.1:3000",
			v.engine.Upstream)
	}
	return upstream, nil
}

// transport has at most as many connections as requests are allowed.
func (v *server) transport(upstream *url.URL) http.RoundTripper {
	if upstream == nil {
		return nil
	}
	t := gateway.NewTransport(upstream)
	t.MaxConnsPerHost = v.engine.UpstreamRequests
	t.MaxIdleConnsPerHost = min(t.MaxIdleConnsPerHost, v.engine.UpstreamRequests)
	return t
}

// count registers the metrics of a listener.
func (v *server) count(l *listener) *servermetrics.Server {
	return v.engine.Metrics.Server(l.name, l.counts.Open, l.counts.Refused)
}

// byRules are the options of front ends that decide HTTP requests.
func (v *server) byRules(counts *servermetrics.Server, trusts func(*http.Request) bool) *httplimit.RuleOptions {
	o := v.engine.HTTPOptions()
	o.Observe = v.afterwards(counts)
	if name := v.engine.Service; name != "" {
		o.Service = func(*http.Request) string { return name }
	}
	if name := v.engine.UserHeader; name != "" {
		o.User = func(r *http.Request) string {
			if !trusts(r) { // any client can send the header
				return ""
			}
			return r.Header.Get(name)
		}
	}
	return o
}

// observed notes decisions of the gateway, and failures after a grant.
func (v *server) observed(counts *servermetrics.Server) func(*http.Request, httplimit.Event) {
	afterwards := v.afterwards(counts)
	return func(r *http.Request, e httplimit.Event) {
		gateway.Decided(r, e)
		afterwards(r, e)
	}
}

// afterwards logs and counts failures after a grant.
func (v *server) afterwards(counts *servermetrics.Server) func(*http.Request, httplimit.Event) {
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
