// Package gateway is the gateway: it forwards the requests that a limit grants to an upstream.
//
// The standard library's ReverseProxy does the work: streaming both ways, upgrades to WebSocket,
// trailers, informational responses. This package ensures that the matched request is the forwarded
// one, and that the upstream can trust the forwarding fields.
//
// # Matched is forwarded
//
// A request gets its forwarded form before the limit reads it, so that the limit and
// the upstream read the same:
//
//   - the path is rewritten by pathform and forwarded as that text, byte for byte, after the
//     upstream's own path. A path without a form is answered 400;
//   - the query is forwarded unchanged. ReverseProxy would drop the parameters that Go cannot
//     parse, after a limit has read them. See [Config];
//   - header fields that a client's Connection field names are dropped before the limit and not
//     after: with "Connection: X-Api-Key" a client would be counted by a key that the upstream
//     never receives;
//   - fields that override the path or the method are dropped, unless [Config] forwards them;
//   - the Host is the client's, unless [Config] says otherwise;
//   - the cookie of weir's console is dropped: browsers send it to all ports of a host.
//
// CONNECT and TRACE are answered 501, and "OPTIONS *" is answered by the server; they are not forwarded.
// An upgrade is forwarded to websocket only: any other, such as h2c, would give a client an
// uncounted connection to the upstream.
//
// # Request id
//
// A request has an X-Request-Id from here on: the client's, or the trace id of its traceparent, or, if neither is
// valid, a new one. Limits read it, the service gets it, and a response has it, unless the service states another.
//
// # Forwarding fields
//
// The gateway sets X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto. A client's own values
// of these, of any other X-Forwarded-* field, of X-Real-IP, CF-Connecting-IP and Forwarded do not
// reach the upstream, unless the client is a trusted proxy: see [Config]. As trailers
// these fields and credentials never reach it.
package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/web"
)

// A Config configures a gateway. The zero Config is ready to use.
type Config struct {
	// Form is the form of paths. Give the limit the same form, if it has an option for it.
	Form pathform.Form
	// StrictQuery answers 400 to queries that servers read differently: with a semicolon, which some read as an
	// ampersand; with a number sign, at which some end the query; and with a % without two hexadecimal digits. Use it
	// if limits read the query. By default such queries pass unchanged, since many harmless ones have a semicolon.
	StrictQuery bool
	// Clients has the trusted proxies. The upstream gets the client that it finds as the first address of
	// X-Forwarded-For. With nil no proxy is trusted.
	Clients *clientaddr.Extractor
	// Untrusted, if non-nil, is called for each request of a peer that is no trusted proxy. It must return fast.
	Untrusted func(*http.Request)
	// UpstreamHost sends the upstream's own host as Host, for upstreams that require it. X-Forwarded-Host has the
	// client's.
	UpstreamHost bool
	// Transport reaches the upstream; nil is [NewTransport]'s.
	Transport http.RoundTripper
	// Upstreams are the services and routes of rules; the upstream, which may then be nil, gets the requests without
	// a route. nil: no services. The limit decides by [Read] and [ServiceOf] of a request.
	Upstreams *Upstreams
	// Wrap, if non-nil, wraps what reaches the upstream and the services, for tracing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Answered, if non-nil, is called with the latency of each response of an upstream. It must return fast.
	Answered func(time.Duration)
	// Overrides forwards fields that make some services take another path or method than the request line's:
	// X-Original-URL, X-Rewrite-URL, X-HTTP-Method-Override and similar. By default they are dropped, from trusted
	// proxies too, since proxies pass on their clients' fields.
	Overrides bool
	// MaxRequests bounds the concurrent requests at the upstream; each may be a connection. Requests beyond it
	// are answered 503 and stay charged. 0 is no bound. A rule with a concurrency limit protects the upstream; this
	// protects the file descriptors of the process: one client connection with HTTP/2 takes many.
	MaxRequests int
	// User is the user of a request, by which services may tell classes of requests apart; nil: none.
	User func(*http.Request) string
	// Log gets at most one line a second for each kind of failure, with the method, the status and the error, but no
	// paths and header fields, which may contain secrets. nil is slog.Default().
	Log *slog.Logger
	// Observe, if non-nil, is called for each request without a response from the upstream: 502 the upstream failed,
	// 503 too many concurrent requests, 504 timeout, 400 or 413 the client's body could not be read, 499 the client
	// disconnected (reported here alone). It runs on the goroutine of the request and must return fast.
	Observe func(status int, err error)
}

// New returns a gateway. Requests that limit passes to its handler are forwarded to the upstream, a
// URL such as http://127.0.0.1:9000 or https://example.com/base. The scheme h2c is HTTP/2 without
// TLS, as gRPC servers use it. The path of a request is appended to the URL's path. A mistake in
// the URL is a *weir.InputError.
//
// A refused request opens no connection to the upstream, and its body is not read.
//
// Do not set a WriteTimeout on the server: it would end streams. Set a ReadHeaderTimeout and an
// IdleTimeout.
func New(upstream *url.URL, limit func(http.Handler) http.Handler, config Config) (http.Handler, error) {
	if limit == nil {
		return nil, errors.New("proxy: the limit is nil; give a middleware, such as one of httplimit")
	}
	g := &gateway{Config: config, report: &report{log: config.Log, observe: config.Observe}}
	if upstream != nil || config.Upstreams == nil {
		if err := check(upstream); err != nil {
			return nil, err
		}
		g.setUpstream(upstream)
	}
	if g.Log == nil {
		g.Log, g.report.log = slog.Default(), slog.Default()
	}
	if g.Clients == nil {
		g.Clients = &clientaddr.Extractor{}
	}
	if g.Upstreams == nil {
		g.Upstreams = NewUpstreams(0, g.Log)
	}
	g.reverse = httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: g, BufferPool: &buffers{}, ModifyResponse: opened,
		ErrorHandler: g.fail, ErrorLog: g.report.logger(),
	}
	if g.Wrap != nil {
		g.reverse.Transport = g.Wrap(g)
	}
	g.limited = limit(http.HandlerFunc(g.forward))
	return g, nil
}

// setUpstream sets the upstream of requests without a route.
func (g *gateway) setUpstream(upstream *url.URL) {
	g.upstream = *upstream
	g.upstream.Path = strings.TrimSuffix(upstream.Path, "/")
	g.upstream.RawPath = strings.TrimSuffix(upstream.RawPath, "/")
	if g.upstream.Scheme == h2c {
		g.upstream.Scheme = "http"
	}
	if g.Transport == nil {
		g.Transport = NewTransport(upstream)
	}
	g.report.upstream = upstream.Host
}

// h2c is the scheme of HTTP/2 without TLS.
const h2c = "h2c"

// check returns the mistake in the URL of an upstream.
func check(u *url.URL) error {
	allowed := ""
	switch {
	case u == nil:
		return &weir.InputError{Field: "upstream", Given: "", Allowed: "a URL such as http://127.0.0.1:9000"}
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != h2c:
		allowed = "the scheme http, https or h2c, as in http://127.0.0.1:9000"
	case u.Hostname() == "" || u.Opaque != "":
		allowed = "a URL with a host, such as http://127.0.0.1:9000"
	case u.User != nil:
		allowed = "a URL without user and password: all clients would act as that user"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		allowed = "a URL without query and fragment; its path is joined with the request's"
	}
	if allowed == "" {
		return nil
	}
	return &weir.InputError{Field: "upstream", Given: u.Redacted(), Allowed: allowed}
}

// A gateway is the handler. Its fields do not change after New.
type gateway struct {
	Config
	upstream url.URL // without the final slash of its path; without a host: none
	inFlight atomic.Int64
	report   *report
	reverse  httputil.ReverseProxy
	limited  http.Handler
}

// ServeHTTP brings the request to its form and passes it to the limit.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		answer(w, r, http.StatusNotImplemented, wording.NotForwarded(r.Method))
		return
	}
	p := &routedRequest{Context: r.Context(), table: g.Upstreams.now.Load()}
	formed, err := g.formed(r, p)
	if err != nil {
		answer(w, r, http.StatusBadRequest, wording.Invalid(err))
		return
	}
	if g.Untrusted != nil && !p.trusted {
		g.Untrusted(r)
	}
	if p.choose(formed); p.route == nil && g.upstream.Host == "" {
		answer(w, r, http.StatusNotFound, wording.NoRoute)
		return
	}
	if most := p.maxBody(); most > 0 && r.ContentLength > most { // before a rule is charged
		p.is(invalid)
		answer(w, r, http.StatusRequestEntityTooLarge, wording.TooLarge)
		return
	}
	identify(formed.Header)
	g.limited.ServeHTTP(w, formed)
	p.decided()
}

// identify gives a request its id. It is the server's own header that changes: a copy would cost more than the id.
func identify(h http.Header) {
	id := requestid.For(h)
	if lines := h[requestid.Field]; len(lines) != 1 || lines[0] != id {
		h[requestid.Field] = []string{id}
	}
}

// RoundTrip implements http.RoundTripper: it reaches the service of a request's route, or the upstream.
func (g *gateway) RoundTrip(r *http.Request) (response *http.Response, err error) {
	began := time.Now()
	if p := routedOf(r.Context()); p.route != nil {
		response, err = p.route.service.send(p, r, g.Log, g.UpstreamHost)
		p.answered(r, response, err)
	} else {
		response, err = g.Transport.RoundTrip(r)
	}
	if err == nil && g.Answered != nil {
		g.Answered(time.Since(began))
	}
	return response, err
}

// forward handles a granted request.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request) {
	answer := newResponse(w, r.ProtoMajor)
	defer g.inFlight.Add(-1)
	if inFlight := g.inFlight.Add(1); g.MaxRequests > 0 && inFlight > int64(g.MaxRequests) {
		g.fail(answer, r, errTooMany)
		return
	}
	p := routedOf(r.Context())
	if p.route != nil {
		if err := p.admit(r, g.User); err != nil {
			g.fail(answer, r, err)
			return
		}
		p.is(forwarded)
		defer p.finish()
		if total := p.route.service.spec.Total; total > 0 {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			p.timer = time.AfterFunc(total, func() {
				cancel(errTotal)
				// The transport closes the body before it returns, which waits for a read: a client that stops
				// sending would prolong the time.
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			})
			defer p.timer.Stop()
			r = r.WithContext(ctx)
		}
	}
	if r.ContentLength == 0 {
		g.proxy(answer, r)
		return
	}
	if r.ProtoMajor == 1 {
		// Otherwise the server reads the whole body before the response begins, and a stream in
		// both directions blocks. Test recorders do not support it; the error does not matter.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	answer.body = &upload{ReadCloser: r.Body}
	p.body = answer.body
	if p.admitted {
		p.body.received = p.route.service.limiter.Receive()
	}
	if most := p.maxBody(); most > 0 && r.ContentLength < 0 {
		answer.body.ReadCloser = http.MaxBytesReader(w, r.Body, most)
	}
	if r.Trailer != nil {
		announced := slices.Collect(maps.Keys(r.Trailer))
		g.trimTrailers(r.Trailer, announced)
		answer.body.atEnd = func() { g.trimTrailers(r.Trailer, announced) } // once net/http has read the trailers
	}
	r = r.WithContext(r.Context())
	r.Body = answer.body
	if r.ProtoMajor == 1 {
		defer answer.endUpload(r) // also when ReverseProxy panics to abort a broken response
	}
	g.proxy(answer, r)
}

// proxy forwards a request. ReverseProxy panics when a response breaks off.
func (g *gateway) proxy(w *response, r *http.Request) {
	ended := false
	defer func() {
		if !ended {
			httplimit.Unfinished(w)
			g.brokenOff(r)
		}
	}()
	g.reverse.ServeHTTP(w, r)
	ended = true
}

// brokenOff reports a response that broke off, unless it was the client that left.
func (g *gateway) brokenOff(r *http.Request) {
	p := routedOf(r.Context())
	if p.response.err == nil || p.response.err == io.EOF || r.Context().Err() != nil {
		return
	}
	if _, unread := p.body.used(); unread {
		return // the request did, perhaps because of max_body
	}
	g.report.warn(brokenOff, ServiceOf(r), p.response.err)
	if p.address != nil {
		p.address.attempts[servermetrics.AttemptBrokenOff].Add(1)
	}
}

// opened gets a response before it is copied. It ends the time of timeout.total for a WebSocket that is open.
func opened(response *http.Response) error {
	if response.Request == nil { // of a Transport that does not set it
		return nil
	}
	if response.Header[requestid.Field] == nil {
		response.Header[requestid.Field] = response.Request.Header[requestid.Field]
	}
	p := routedOf(response.Request.Context())
	switch {
	case p == nil: // of a Transport that sets another
	case response.StatusCode != http.StatusSwitchingProtocols:
		p.response.ReadCloser = response.Body
		response.Body = &p.response
	case p.timer != nil:
		p.timer.Stop()
	}
	return nil
}

// rewrite turns the request that ReverseProxy prepared into the one for the upstream.
func (g *gateway) rewrite(p *httputil.ProxyRequest) {
	p.Out.Host = p.In.Host
	if way := routedOf(p.In.Context()); way.route != nil {
		way.rewrite(p.Out.URL, p.In.URL)
	} else {
		g.route(p.Out.URL, p.In.URL)
		if g.UpstreamHost {
			p.Out.Host = g.upstream.Host
		}
	}
	web.DropSession(p.Out.Header)
	p.Out.Header[requestid.Field] = p.In.Header[requestid.Field] // also if Connection names it, as a client's field
	// The same map: net/http fills it in at the end of the body.
	p.Out.Trailer = p.In.Trailer
	if up := p.Out.Header["Upgrade"]; up != nil && !strings.EqualFold(up[0], "websocket") {
		delete(p.Out.Header, "Upgrade")
		delete(p.Out.Header, "Connection")
	}
	g.setForwarding(p)
}

// route joins the paths of the upstream and of the request, both in their original spelling.
func (g *gateway) route(out, in *url.URL) {
	out.Scheme, out.Host = g.upstream.Scheme, g.upstream.Host
	out.Path, out.RawPath = g.upstream.Path+in.Path, ""
	if g.upstream.RawPath != "" || in.RawPath != "" {
		out.RawPath = g.upstream.EscapedPath() + in.EscapedPath()
	}
	out.RawQuery = in.RawQuery
}

// setForwarding sets the fields that identify the client.
func (g *gateway) setForwarding(p *httputil.ProxyRequest) {
	way := routedOf(p.In.Context())
	out, trusted := p.Out.Header, way.trusted && way.request.Client.IsValid()
	withoutForwarding(out, trusted)
	proto, host := "http", p.In.Host
	if p.In.TLS != nil {
		proto = "https"
	}
	if trusted {
		proto = only(p.In.Header["X-Forwarded-Proto"], proto)
		host = only(p.In.Header["X-Forwarded-Host"], host)
	}
	values := []string{proto, host, way.chain()} // one allocation, no room to append
	out["X-Forwarded-Proto"], out["X-Forwarded-Host"] = values[:1:1], values[1:2:2]
	if values[2] != "" {
		out["X-Forwarded-For"] = values[2:]
	}
}

// chain is the client and, if that is a proxy, the peer. Addresses left of the client, which the
// client wrote, are dropped, so that an upstream that reads the first address gets the right one.
func (p *routedRequest) chain() string {
	client := p.request.Client
	switch {
	case !client.IsValid():
		return ""
	case p.peer.IsValid() && p.peer != client:
		return client.String() + ", " + p.peer.String()
	}
	return client.String()
}

// only is the value of a field with exactly one value, or else otherwise.
func only(lines []string, otherwise string) string {
	if len(lines) == 1 && lines[0] != "" && !strings.Contains(lines[0], ",") {
		return lines[0]
	}
	return otherwise
}
