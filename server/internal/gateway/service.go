package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/rules"
)

// A service is a service of a rule file with its connections.
type service struct {
	spec      *rules.Service
	transport *http.Transport
	pool      atomic.Pointer[pool]
	watcher   *watcher
	retries   *atomic.Uint64
	limiter   *adaptive.Limiter // nil: none
}

// patience is how long a client waits at least that leaves because its request is not answered.
const patience = 5 * time.Second

// notConnected is an error before there was a connection, so that the request surely did not run.
type notConnected struct{ error }

func (e *notConnected) Unwrap() error { return e.error }

// send sends a request to an address, and if that fails to others: see Retries in docs/reference/services.md. It may
// change the URL, because the request is the gateway's own.
func (s *service) send(p *routedRequest, r *http.Request, log *slog.Logger, upstreamHost bool) (*http.Response, error) {
	var tried uint64
	var last error
	sent, retries, pool := false, s.spec.Retries, s.pool.Load()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		m, bit, healthy := pool.pick(began, tried, !sent, retries > 0)
		if m == nil {
			return nil, last
		}
		if tried |= bit; attempt > 0 {
			s.retries.Add(1)
			if !healthy {
				retries--
			}
		}
		answers := m.answers()
		p.began = began
		response, err := s.transport.RoundTrip(s.to(r, m, attempt+1 < len(pool.members), upstreamHost))
		if err == nil {
			m.answered(response.StatusCode)
			p.address = m.address
			return response, nil
		}
		m.active.Add(-1)
		begun, unread := p.body.used()
		if cause := context.Cause(r.Context()); cause != nil || unread {
			if !unread && cause != errTotal && time.Since(began) >= patience {
				s.left(m, answers, err, log)
			}
			return nil, err // the client's fault, or timeout.total, which may be
		}
		s.failed(m, err, log)
		var not *notConnected
		switch last = err; {
		case errors.As(err, &not):
			if begun || s.spec.Retries == 0 {
				return nil, err
			}
		case sent || !s.mayRepeat(r):
			return nil, err
		default:
			sent = true
		}
	}
}

// mayRepeat reports whether a request that was sent may be sent once more. An upgrade is not safe in the sense of HTTP.
func (s *service) mayRepeat(r *http.Request) bool {
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	return safe && s.spec.RetrySafe && r.Body == nil && r.Header["Upgrade"] == nil
}

// to is the request to one address.
func (s *service) to(r *http.Request, m *member, again, upstreamHost bool) *http.Request {
	if r.Body != nil && again {
		r = r.WithContext(r.Context())
		r.Body = kept{r.Body}
		r.URL = movedTo(*r.URL)
	}
	r.URL.Host = m.host
	if s.spec.Host == "address" || s.spec.Host == "" && upstreamHost {
		r.Host = m.URL.Host
	}
	return r
}

// kept is a body that a failed attempt does not close.
type kept struct{ io.Reader }

// Close implements io.Closer.
func (kept) Close() error { return nil }

// used reports whether a body was read, and whether the client failed to send it. A nil upload is no body.
func (u *upload) used() (begun, unread bool) {
	if u == nil {
		return false, false
	}
	begun, err := u.state()
	return begun, err != nil && err != io.EOF
}

// left records that a client left before the head of the response. Two such are a failure, unless the address
// answered another request meanwhile: then it is the request that is slow.
func (s *service) left(m *member, answers uint64, err error, log *slog.Logger) {
	if m.answers() == answers && m.left.Add(1)%2 == 0 {
		s.eject(m, err, log)
	}
}

func (s *service) failed(m *member, err error, log *slog.Logger) {
	kind := servermetrics.AttemptFailed
	if not := (*notConnected)(nil); errors.As(err, &not) {
		kind = servermetrics.AttemptNotConnected
	}
	m.attempts[kind].Add(1)
	s.eject(m, err, log)
}

// eject counts a failure of an address, which may be left out for it.
func (s *service) eject(m *member, err error, log *slog.Logger) {
	if ejected := s.pool.Load().failedNow(m, time.Now()); ejected > 0 {
		log.Warn("address of a service is left out: its requests fail", "service", s.spec.Name, "address",
			m.host, "for", ejected, "failures", m.failed.Load(), "error", err)
	}
}

// newServiceTransport makes the connections of a service: the transport of NewTransport, with the service's timeouts
// and TLS.
func newServiceTransport(s *service, log *slog.Logger) (*http.Transport, error) {
	spec := s.spec
	t := NewTransport(&spec.Addresses[0].URL)
	t.DialContext = connects(&net.Dialer{Timeout: spec.Connect, KeepAlive: 15 * time.Second})
	t.ResponseHeaderTimeout, t.IdleConnTimeout = spec.Header, spec.Idle
	if spec.Addresses[0].URL.Scheme != "https" {
		return t, nil
	}
	config, err := clientTLS(spec, log)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", spec.Name, err)
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, spec.Connect)
		defer cancel()
		conn, err := t.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		own := config()
		if own.ServerName == "" {
			own.ServerName = s.pool.Load().name(address)
		}
		secure := tls.Client(conn, own)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, &notConnected{err}
		}
		return secure, nil
	}
	return t, nil
}

// clientTLS returns the TLS of a service, with the current content of its files.
func clientTLS(spec *rules.Service, log *slog.Logger) (func() *tls.Config, error) {
	t := &spec.TLS
	if t.Verify == "none" {
		log.Warn("any certificate of the service is accepted, because its verify is none", "service", spec.Name)
	}
	authorities := &files[*x509.CertPool]{names: []string{t.CA}, read: func() (*x509.CertPool, error) {
		text, err := os.ReadFile(t.CA)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = fmt.Errorf("%q has no certificate; allowed: a file with PEM certificates", t.CA)
		}
		return pool, err
	}}
	pair := &files[tls.Certificate]{names: []string{t.Cert, t.Key}, read: func() (tls.Certificate, error) {
		return tls.LoadX509KeyPair(t.Cert, t.Key)
	}}
	if _, err := authorities.current(); t.CA != "" && err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	if _, err := pair.current(); t.Cert != "" && err != nil {
		return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
	}
	return func() *tls.Config {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
			NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: t.Verify == "none"}
		if t.CA != "" {
			c.RootCAs, _ = authorities.current()
		}
		if t.Cert != "" {
			own, _ := pair.current()
			c.Certificates = []tls.Certificate{own}
		}
		return c
	}, nil
}

// files are files with one value, which are read again when they change. If they cannot be used, as while one is
// being written, it is the last one.
type files[T any] struct {
	names []string
	read  func() (T, error)

	mu    sync.Mutex
	good  bool // value was read
	value T
	state [2]fileState
}

// A fileState tells versions of a file apart.
type fileState struct {
	size int64
	at   time.Time
}

func (f *files[T]) current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var state [2]fileState
	for i, name := range f.names {
		if info, err := os.Stat(name); err == nil {
			state[i] = fileState{info.Size(), info.ModTime()}
		}
	}
	if f.good && state == f.state {
		return f.value, nil
	}
	value, err := f.read()
	switch {
	case err == nil:
		f.value, f.good, f.state = value, true, state
	case !f.good:
		return value, err
	}
	return f.value, nil
}
