// Package proxy is the gateway door: it forwards to an upstream what a limit lets pass.
//
// The work is done by the standard library's ReverseProxy: streaming both ways, upgrades
// to WebSocket, trailers, informational answers. This package sees to it that what was
// matched is what is forwarded, and that the upstream can believe what it is told.
//
// # What is matched is what is forwarded
//
// Before a request is limited it gets the form that it is forwarded in, so that whatever
// limits it reads what the upstream will read:
//
//   - the path is rewritten by pathform and sent on as that text, byte for byte, after the
//     upstream's own path. A path without a form is answered 400;
//   - the query is sent on as it came. ReverseProxy would drop the parameters that Go
//     cannot parse; a limit that had read them would have counted another request. See
//     [WithStrictQuery];
//   - header fields that a client's Connection field names are dropped before and not after:
//     a client that says "Connection: X-Api-Key" would be counted by a key that the upstream
//     never sees;
//   - fields that override the path or the method are dropped, unless [WithOverrides];
//   - the Host is the client's, unless [WithUpstreamHost].
//
// CONNECT and TRACE are answered 501, and "OPTIONS *" is the server's own: none is
// forwarded. Of upgrades only those to websocket are: behind any other, such as h2c, a
// client would have a line of its own to the upstream on which nothing is counted.
//
// # What the upstream is told
//
// X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto are the gateway's. What a client
// wrote there, in any other X-Forwarded-* field, in X-Real-IP, CF-Connecting-IP or Forwarded
// does not reach the upstream, unless the client is a trusted proxy: see [WithClientAddress].
// As trailers neither these fields reach it, from anybody, nor those of credentials.
package proxy

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/pathform"
)

// An Option changes what New makes.
type Option func(*gateway)

// WithForm says which form paths have, instead of the strict one. Give the same to the
// limit, if it has one of its own.
func WithForm(form pathform.Form) Option { return func(g *gateway) { g.form = form } }

// WithStrictQuery answers 400 where servers differ in what a query says: a semicolon,
// which some take for an ampersand; a number sign, at which some end it; and a % that two
// hexadecimal digits do not follow. Use it if limits read the query. By default such
// queries pass as they came, since many that are harmless have a semicolon.
func WithStrictQuery() Option { return func(g *gateway) { g.strictQuery = true } }

// WithClientAddress trusts the proxies that the extractor trusts to say who their client
// is. The client is then the first address of X-Forwarded-For. Without it nobody is
// trusted.
func WithClientAddress(e *clientaddr.Extractor) Option { return func(g *gateway) { g.clients = e } }

// WithUpstreamHost sends the upstream's host as Host, for upstreams that answer by that
// name only. The client's is in X-Forwarded-Host.
func WithUpstreamHost() Option { return func(g *gateway) { g.upstreamHost = true } }

// WithTransport gives what requests are sent with, instead of [NewTransport]'s.
func WithTransport(t http.RoundTripper) Option { return func(g *gateway) { g.transport = t } }

// WithOverrides forwards fields by which some services take another path or method than the
// request line has: X-Original-URL, X-Rewrite-URL, X-HTTP-Method-Override and their like. By
// default they are dropped, from trusted proxies too, since proxies pass on what clients sent.
func WithOverrides() Option { return func(g *gateway) { g.overrides = true } }

// WithMaxRequests bounds how many requests are at the upstream at one time, each of which may
// be a connection; those beyond are answered 503. They have passed the limit, and stay
// charged. By default there is no bound. A concurrency limit can say the same by a rule; this
// one keeps the process' files, of which HTTP/2 and WebSockets take many a connection.
func WithMaxRequests(n int) Option { return func(g *gateway) { g.most = int64(n) } }

// WithLog gives the log, instead of slog.Default(). It gets at most one line a second for
// each kind of failure, with the method, the status and the error: neither paths nor
// header fields, in which secrets stand.
func WithLog(log *slog.Logger) Option { return func(g *gateway) { g.log = log } }

// WithObserver is told of each request that got no answer from the upstream: 502 where it
// failed, 503 where there are too many requests, 504 where it took too long, 400 or 413 where the client's body could not be read,
// 499 where the client went away, which is only told here. It must be quick.
func WithObserver(observe func(status int, err error)) Option {
	return func(g *gateway) { g.observe = observe }
}

// New makes a gateway: what limit passes on to the handler that it is given is forwarded
// to the upstream, a URL such as http://127.0.0.1:9000 or https://example.com/base. The
// scheme h2c is HTTP/2 without TLS, which gRPC servers speak. Paths of requests are joined
// to the URL's path. An error in the URL is a *weir.InputError.
//
// What limit refuses opens no connection to the upstream, and its body is not read.
//
// The server must leave the forwarding of answers to the gateway: a WriteTimeout would end
// streams. Set a ReadHeaderTimeout and an IdleTimeout.
func New(upstream *url.URL, limit func(http.Handler) http.Handler, opts ...Option) (http.Handler, error) {
	if limit == nil {
		return nil, errors.New("proxy: the limit is nil; give a middleware, such as one of httplimit")
	}
	if err := check(upstream); err != nil {
		return nil, err
	}
	g := &gateway{upstream: *upstream}
	for _, opt := range opts {
		opt(g)
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	if g.clients == nil {
		g.clients = &clientaddr.Extractor{}
	}
	g.upstream.Path = strings.TrimSuffix(upstream.Path, "/")
	g.upstream.RawPath = strings.TrimSuffix(upstream.RawPath, "/")
	if g.upstream.Scheme == h2c {
		g.upstream.Scheme = "http"
	}
	if g.transport == nil {
		g.transport = NewTransport(upstream)
	}
	g.report = &report{log: g.log, observe: g.observe, upstream: upstream.Host}
	g.reverse = httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: g.transport, BufferPool: &buffers{},
		ErrorHandler: g.fail, ErrorLog: g.report.logger(),
	}
	g.limited = limit(http.HandlerFunc(g.forward))
	return g, nil
}

// h2c is the scheme of HTTP/2 without TLS.
const h2c = "h2c"

// check says what is wrong with the URL of an upstream.
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

// A gateway is the handler. Its fields do not change.
type gateway struct {
	upstream     url.URL // its path without the last slash
	form         pathform.Form
	strictQuery  bool
	upstreamHost bool
	overrides    bool
	most         int64 // requests at the upstream; 0: as many as come
	flying       atomic.Int64
	clients      *clientaddr.Extractor
	transport    http.RoundTripper
	log          *slog.Logger
	observe      func(int, error)
	report       *report
	reverse      httputil.ReverseProxy
	limited      http.Handler
}

// ServeHTTP gives the request its form, and hands it to the limit.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		answer(w, r, http.StatusNotImplemented, "This gateway does not forward "+r.Method+".")
		return
	}
	formed, err := g.formed(r)
	if err != nil {
		answer(w, r, http.StatusBadRequest, sentence(err))
		return
	}
	g.limited.ServeHTTP(w, formed)
}

// forward is behind the limit.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request) {
	answer := newResponse(w, r.ProtoMajor)
	defer g.flying.Add(-1)
	if flying := g.flying.Add(1); g.most > 0 && flying > g.most {
		g.fail(answer, r, errTooMany)
		return
	}
	if r.ContentLength == 0 {
		g.reverse.ServeHTTP(answer, r)
		return
	}
	if r.ProtoMajor == 1 {
		// Otherwise HTTP/1 would read the body to its end before the answer begins, and a
		// stream in both directions would stand still. Who cannot do it has no connection.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	answer.body = &upload{ReadCloser: r.Body}
	if r.Trailer != nil {
		announced := slices.Collect(maps.Keys(r.Trailer))
		g.trimTrailers(r.Trailer, announced)
		answer.body.atEnd = func() { g.trimTrailers(r.Trailer, announced) } // when net/http has read them
	}
	r = r.WithContext(r.Context())
	r.Body = answer.body
	if r.ProtoMajor == 1 {
		defer answer.endUpload(r) // also where ReverseProxy panics, to end a broken answer
	}
	g.reverse.ServeHTTP(answer, r)
}

// rewrite turns what ReverseProxy would send into what the upstream is to get.
func (g *gateway) rewrite(p *httputil.ProxyRequest) {
	g.route(p.Out.URL, p.In.URL)
	p.Out.Host = p.In.Host
	if g.upstreamHost {
		p.Out.Host = g.upstream.Host
	}
	// The same map: its values are there when the body was read, not now.
	p.Out.Trailer = p.In.Trailer
	if up := p.Out.Header["Upgrade"]; up != nil && !strings.EqualFold(up[0], "websocket") {
		delete(p.Out.Header, "Upgrade")
		delete(p.Out.Header, "Connection")
	}
	g.introduce(p)
}

// route joins the upstream's path and the request's, both as they are spelled.
func (g *gateway) route(out, in *url.URL) {
	out.Scheme, out.Host = g.upstream.Scheme, g.upstream.Host
	out.Path, out.RawPath = g.upstream.Path+in.Path, ""
	if g.upstream.RawPath != "" || in.RawPath != "" {
		out.RawPath = g.upstream.EscapedPath() + in.EscapedPath()
	}
	out.RawQuery = in.RawQuery
}

// introduce tells the upstream whose request it is.
func (g *gateway) introduce(p *httputil.ProxyRequest) {
	out, trusted := p.Out.Header, g.trusts(p.In)
	withoutForwarding(out, trusted)
	proto, host := "http", p.In.Host
	if p.In.TLS != nil {
		proto = "https"
	}
	if trusted {
		proto = only(p.In.Header["X-Forwarded-Proto"], proto)
		host = only(p.In.Header["X-Forwarded-Host"], host)
	}
	values := []string{proto, host, g.chain(p.In)} // one allocation, no room to append
	out["X-Forwarded-Proto"], out["X-Forwarded-Host"] = values[:1:1], values[1:2:2]
	if values[2] != "" {
		out["X-Forwarded-For"] = values[2:]
	}
}

// trusts reports whether the peer is a trusted proxy.
func (g *gateway) trusts(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // a Unix socket: whoever names a client there is trusted
		_, ok := g.clients.Of(r)
		return ok
	}
	return g.clients.Trusts(peer.Addr())
}

// chain is the client and, if that is a proxy, the peer. What the client wrote left of
// itself is not in it, so that an upstream that believes the first address is not deceived.
func (g *gateway) chain(r *http.Request) string {
	client, ok := g.clients.Of(r)
	if !ok {
		return ""
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if at := peer.Addr().Unmap().WithZone(""); err == nil && at != client {
		return client.String() + ", " + at.String()
	}
	return client.String()
}

// only is the one value of a field that must not have several, or else what is given.
func only(lines []string, otherwise string) string {
	if len(lines) == 1 && lines[0] != "" && !strings.Contains(lines[0], ",") {
		return lines[0]
	}
	return otherwise
}
