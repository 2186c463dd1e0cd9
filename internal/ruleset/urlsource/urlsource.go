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
//
// A URL of a configuration center, such as nacos+https://, is read by the protocol of the center, which announces
// changes.
package urlsource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
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

// A Source is a URL with rules. It is a ruleset.Source.
type Source struct {
	url               *url.URL
	name              string // in errors, without a query, which may be secret
	interval, timeout time.Duration
	tokenFile         string
	plainHTTP         bool
	center            center // nil for a file on a web server
	client            *http.Client

	content    ruleset.Update // read last, with or without mistakes
	etag       string         // of content
	modified   string
	failures   int           // since the last success
	retryAfter time.Duration // requested by the server
}

// An Option changes how a Source works.
type Option func(*Source)

// WithInterval sets the polling interval, 1 s to 24 h, instead of 30 seconds. Each wait is up to a
// quarter shorter or longer.
func WithInterval(every time.Duration) Option { return func(s *Source) { s.interval = every } }

// WithTokenFile sends the token in a file with each request (RFC 6750). The file is read each time,
// so the token can be changed at any time.
func WithTokenFile(path string) Option { return func(s *Source) { s.tokenFile = path } }

// WithPlainHTTP accepts http from other machines: whoever controls the network between can change the rules.
func WithPlainHTTP() Option { return func(s *Source) { s.plainHTTP = true } }

// New makes a source of the rules at an absolute URL with https, or http on this machine. The URL of a configuration
// center has the name of its protocol in front: consul+https, nacos+https, apollo+https, etcd+https.
func New(address string, opts ...Option) (*Source, error) {
	s := &Source{interval: defaultInterval, timeout: defaultTimeout,
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
	if s.center, err = s.centerOf(u); err != nil {
		return nil, err
	}
	if !s.trusted(u) {
		return nil, &weir.InputError{Field: "url", Given: s.name,
			Allowed: "https, or http on this machine; server.config.plain_http allows http from others"}
	}
	if s.interval < time.Second || s.interval > 24*time.Hour {
		return nil, &weir.InputError{Field: "interval", Given: s.interval, Allowed: "1s to 24h"}
	}
	return s, nil
}

// trusted reports whether a URL's content is authentic.
func (s *Source) trusted(u *url.URL) bool {
	if u.Scheme != "http" {
		return u.Scheme == "https"
	}
	if s.plainHTTP || u.Hostname() == "localhost" {
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
	case to.Scheme != from.Scheme || to.Host != from.Host: // net/http would send subdomains the token
		return fmt.Errorf("it redirects to %.80q; name that URL instead", to.Scheme+"://"+to.Host)
	}
	return nil
}

// Load implements ruleset.Source. On a reload it requests the whole file, even if it is unchanged.
func (s *Source) Load(ctx context.Context, reload bool) ruleset.Update {
	s.retryAfter = 0
	n, err := s.fetch(ctx, !reload)
	if err != nil {
		s.failures++
		return ruleset.Update{Err: fmt.Errorf("%s: %w", s.name, err)}
	}
	s.failures, s.content = 0, n
	return n
}

// Wait implements ruleset.Source.
func (s *Source) Wait(ctx context.Context) {
	began := time.Now()
	if s.center == nil || s.failures > 0 || s.await(ctx) != nil {
		pause.For(s.pause(), ctx.Done())
		return
	}
	pause.For(minGap-time.Since(began), ctx.Done())
}

// pause returns the time until the next poll.
func (s *Source) pause() time.Duration {
	d, slowest := s.interval, max(maxRetry, s.interval)
	if s.failures > 0 {
		d = min(firstRetry<<min(s.failures-1, 20), slowest)
	}
	return max(d*3/4+rand.N(d/2), min(s.retryAfter, slowest))
}

// Close implements ruleset.Source.
func (s *Source) Close() { s.client.CloseIdleConnections() }
