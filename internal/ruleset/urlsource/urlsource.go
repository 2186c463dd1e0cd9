// Package urlsource reads rules from a URL periodically, and sends each change.
//
// It polls every 30 seconds with jitter, so that many nodes do not poll at once. With an ETag or
// Last-Modified from the server an unchanged file is not sent again (RFC 9110, section 13). After
// errors it polls less and less often, down to every five minutes, and not before the server's
// Retry-After.
//
// Rules decide which requests pass, so they are accepted only from trusted places: over https, or
// from this machine; and only from the named host, not from one that it redirects to. The content
// type does not matter. A body over the maximum of a file of rules, after decompression, is not read
// further.
package urlsource

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
)

const (
	defaultInterval = 30 * time.Second
	defaultTimeout  = 10 * time.Second
	firstRetry      = time.Second     // after a failure, then doubled
	maxRetry        = 5 * time.Minute // or the interval, if that is longer
	maxRedirects    = 5
	maxHeader       = 64 << 10 // bytes of an answer's header
)

// A Source is a URL with rules. It is a ruleset.Source and a ruleset.Reloader.
type Source struct {
	url               *url.URL
	name              string // in errors, without a query, which may be secret
	interval, timeout time.Duration
	tokenFile         string
	plain, away       bool
	client            *http.Client
	reloads           ruleset.ReloadQueue
}

// An Option changes how a Source works.
type Option func(*Source)

// WithInterval sets the polling interval, 1 s to 24 h, instead of 30 seconds. Each wait is up to a
// quarter shorter or longer.
func WithInterval(every time.Duration) Option { return func(s *Source) { s.interval = every } }

// WithTimeout limits the time of a response with its body, 10 ms to 5 min, instead of 10 seconds.
func WithTimeout(most time.Duration) Option { return func(s *Source) { s.timeout = most } }

// WithTokenFile sends the token in a file with each request (RFC 6750). The file is read each time,
// so the token can be changed at any time.
func WithTokenFile(path string) Option { return func(s *Source) { s.tokenFile = path } }

// WithPlainHTTP allows http, without TLS, from other machines too. Anybody on the network path can
// then read the token and change the rules.
func WithPlainHTTP() Option { return func(s *Source) { s.plain = true } }

// WithRedirects follows redirects to other hosts, and trusts them like this one. They do not receive
// the token.
func WithRedirects() Option { return func(s *Source) { s.away = true } }

// WithTransport replaces the transport, for example for client certificates.
func WithTransport(t http.RoundTripper) Option { return func(s *Source) { s.client.Transport = t } }

// New makes a source of the rules at an absolute URL with https, or http on this machine.
func New(address string, opts ...Option) (*Source, error) {
	s := &Source{interval: defaultInterval, timeout: defaultTimeout, reloads: ruleset.NewReloadQueue(),
		client: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
				MaxResponseHeaderBytes: maxHeader}}}
	s.client.CheckRedirect = s.checkRedirect
	for _, opt := range opts {
		opt(s)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, &weir.InputError{Field: "url", Given: "not shown, as it may have a password in it",
			Allowed: "an absolute URL such as https://config.example.com/weir.yaml, without user, password or " +
				"fragment; for a token, give its file"}
	}
	s.url, s.name = u, u.Scheme+"://"+u.Host+u.EscapedPath()
	if !s.trusted(u) {
		return nil, &weir.InputError{Field: "url", Given: s.name,
			Allowed: "https, or http on this machine; http from elsewhere only if that is allowed explicitly"}
	}
	if s.interval < time.Second || s.interval > 24*time.Hour {
		return nil, &weir.InputError{Field: "interval", Given: s.interval, Allowed: "1s to 24h"}
	}
	if s.timeout < 10*time.Millisecond || s.timeout > 5*time.Minute {
		return nil, &weir.InputError{Field: "timeout", Given: s.timeout, Allowed: "10ms to 5m"}
	}
	return s, nil
}

// trusted reports whether a URL's content is authentic.
func (s *Source) trusted(u *url.URL) bool {
	if u.Scheme != "http" {
		return u.Scheme == "https"
	}
	if s.plain || u.Hostname() == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.Unmap().IsLoopback()
}

// checkRedirect decides whether a redirect is followed.
func (s *Source) checkRedirect(request *http.Request, via []*http.Request) error {
	to, from := request.URL, via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("over %d redirects", maxRedirects)
	case !s.trusted(to):
		return fmt.Errorf("it redirects to %.80q, without TLS", to.Scheme+"://"+to.Host)
	case to.Scheme == from.Scheme && to.Host == from.Host:
	case s.away: // net/http would send subdomains the token, and all hosts the query
		request.Header.Del("Authorization")
		request.Header.Del("Referer")
	default:
		return fmt.Errorf("it redirects to %.80q; name that URL instead, or allow redirects", to.Scheme+"://"+to.Host)
	}
	return nil
}

// Reload requests the whole file at once, even if it is unchanged, and waits until it is in force:
// see ruleset.Reloader.
func (s *Source) Reload(ctx context.Context) (revision string, err error) {
	return s.reloads.Reload(ctx)
}

// Run sends the rules, and again after each change: see ruleset.Source.
func (s *Source) Run(ctx context.Context, updates chan<- ruleset.Update) error {
	defer s.client.CloseIdleConnections()
	p := &poller{Source: s, ctx: ctx, updates: updates}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			p.look(nil)
		case c := <-s.reloads.Requests():
			p.look(s.reloads.Drain(c))
		}
		next.Reset(p.wait())
	}
}
