// Package xdssource receives the limits of Envoy's rate limit service from a control plane, such as Envoy Gateway, and
// makes rules of them.
//
// It holds one stream of ADS, in the variant state of the world, for resources of the type
// ratelimit.config.ratelimit.v3.RateLimitConfig. Each response is the complete configuration. The source acknowledges
// a response that makes valid rules. It refuses any other response with the error, and the last good rules stay in
// force.
//
// When a stream ends, the source opens another one after a pause, which doubles up to a maximum, with jitter. Each new
// stream asks for the whole configuration, whatever version the source has: many control planes count their versions
// from 1 at each start, so two configurations can have the same version. The source recognizes a configuration that it
// has by the hash of the content, and does not compile it again.
//
// The files of certificates are read for each connection, so the next connection uses a renewed certificate.
package xdssource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

const (
	typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	// patience bounds the time for a connection, and then the time for its first response.
	patience = 5 * time.Second
	// repeatAfter is the pause before the same content is refused again. Some control planes answer each refusal at
	// once with the configuration that was refused.
	repeatAfter = 5 * time.Second
)

// A Config describes a Source. It is plain data.
type Config struct {
	Server   string   // of the control plane: host:port
	Node     string   // id of this node
	Metadata []string // of this node, each KEY=VALUE
	Headers  []string // of the call, each KEY=VALUE

	TLS        bool
	CA         string // PEM file with the authorities of the server's certificate; "": the system's
	Cert, Key  string // PEM files of the certificate that this client presents; "": none
	ServerName string // that the server's certificate must have; "": the host

	Backoff, MaxBackoff time.Duration // first and longest pause before another stream
	MaxMessage          int           // bytes of a response
	// Optional lets the source start without rules, with a warning, if the first configuration does not come in time.
	Optional bool

	// Convert makes the rules, which must compile.
	Convert func([]*ratelimitconf.Config) (*rules.File, error)
	Version string // of this program, for the control plane
	Log     *slog.Logger
}

// A Source receives rules from a control plane. It is a ruleset.Source. Set AllowEmpty of its ruleset.Layer: a response
// without resources is an empty configuration.
type Source struct {
	Config
	dialer *dialer

	stream   *stream        // nil: none
	received *response      // waits for Load
	failures int            // since the last stream that lasted
	paused   time.Duration  // before the stream
	last     ruleset.Update // as Load returned it
	good     ruleset.Update // of the last accepted response
	version  string         // of that response
}

// New makes a source; Load connects. Mistakes in the config are of type *[weir.InputError], joined if there are
// several; other errors come from the files of certificates.
func New(c Config) (*Source, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	d, err := newDialer(&c)
	if err != nil {
		return nil, err
	}
	return &Source{Config: c, dialer: d}, nil
}

// Load implements ruleset.Source. A reload asks for the configuration on a new stream.
func (s *Source) Load(ctx context.Context, reload bool) ruleset.Update {
	if reload {
		s.Close()
	}
	if s.stream == nil {
		if err := s.connect(ctx); err != nil {
			s.last = s.failed(err)
		}
	}
	if r := s.received; r != nil {
		defer context.AfterFunc(ctx, s.stream.cancel)() // a peer that does not read must not delay the end
		s.received, s.last = nil, s.take(r)
	}
	return s.last
}

// connect opens a stream, and waits for the first response. If no response comes in time, the stream stays open.
func (s *Source) connect(ctx context.Context) (err error) {
	if s.stream, err = s.dialer.open(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return fmt.Errorf("it is connected, but has sent no configuration for the node %q within %v", s.Node, patience)
	case <-ctx.Done():
		return ctx.Err()
	case r, ok := <-s.stream.responses:
		if !ok {
			err = s.stream.err
			s.Close()
		}
		s.received = r
	}
	return err
}

// ended closes a stream that has ended, and returns the reason. The stream counts as a failure unless it lasted longer
// than the pause before it.
func (s *Source) ended() error {
	s.failures++
	if time.Since(s.stream.began) > s.paused {
		s.failures = 0
	}
	err := s.stream.err
	s.Close()
	return err
}

// failed is the update of a source that has no configuration to read.
func (s *Source) failed(err error) ruleset.Update {
	if s.stream == nil {
		s.failures++
	}
	err = fmt.Errorf("%s: %w", s.Server, err)
	if s.Optional && s.last.File == nil && s.last.Err == nil { // the first one
		return ruleset.Update{File: &rules.File{Name: s.Server}, Revision: "none",
			Warning: fmt.Errorf("no limits yet: %w", err)}
	}
	return ruleset.Update{Err: err}
}

// take makes an update of a response, and answers it.
func (s *Source) take(r *response) ruleset.Update {
	n := ruleset.Update{Revision: r.revision}
	switch r.revision {
	case s.good.Revision:
		n = s.good
	case s.last.Revision: // it was refused
		n = s.last
	default:
		n.File, n.Err = s.convert(r.GetResources())
	}
	log := s.Log.With("version", r.GetVersionInfo(), "revision", r.revision, "resources", len(r.GetResources()))
	switch {
	case n.Err != nil && s.last.Revision == r.revision: // sent again
	case n.Err != nil:
		log.Warn("xDS: version refused")
	case s.good.Revision == r.revision:
		log.Debug("xDS: version without a change accepted")
	default:
		log.Info("xDS: version accepted")
	}
	if n.Err == nil {
		s.good, s.version = n, r.GetVersionInfo()
	}
	s.stream.answer(r, s.version, n.Err)
	return n
}

func (s *Source) convert(resources []*anypb.Any) (*rules.File, error) {
	d := newDecoder()
	list := make([]*ratelimitconf.Config, 0, len(resources))
	for _, one := range resources {
		if one.GetTypeUrl() != typeURL {
			return nil, fmt.Errorf("a resource has the type %.200q; allowed: %s", one.GetTypeUrl(), typeURL)
		}
		c, err := d.config(one.GetValue())
		if err != nil {
			return nil, fmt.Errorf("resource %.200q: %w", c.Name, err)
		}
		list = append(list, c)
	}
	return s.Convert(list)
}

// Wait implements ruleset.Source.
func (s *Source) Wait(ctx context.Context) {
	if s.stream == nil {
		pause.For(s.backoff(), ctx.Done())
		return
	}
	select {
	case <-ctx.Done():
	case r, ok := <-s.stream.responses:
		switch {
		case !ok:
			s.Log.Info("xDS: stream ended", "error", s.ended())
			pause.For(s.backoff(), ctx.Done())
		case s.last.Err != nil && s.last.Revision == r.revision:
			s.received = r
			pause.For(repeatAfter, ctx.Done())
		default:
			s.received = r
		}
	}
}

// backoff is the pause before the next stream.
func (s *Source) backoff() time.Duration {
	d := s.Backoff
	for range s.failures - 1 {
		d = min(2*d, s.MaxBackoff)
	}
	s.paused = d - rand.N(d/2+1)
	return s.paused
}

// Close implements ruleset.Source.
func (s *Source) Close() {
	if s.stream != nil {
		s.stream.close()
	}
	s.stream, s.received = nil, nil
}

// A response is a configuration.
type response struct {
	*discovery.DiscoveryResponse
	revision string // of its content
}

// newResponse sorts the resources before it hashes them, because control planes send them in any order.
func newResponse(r *discovery.DiscoveryResponse) *response {
	slices.SortFunc(r.GetResources(), func(a, b *anypb.Any) int {
		return cmp.Or(cmp.Compare(a.GetTypeUrl(), b.GetTypeUrl()), slices.Compare(a.GetValue(), b.GetValue()))
	})
	sum := sha256.New()
	for _, one := range r.GetResources() {
		fmt.Fprintf(sum, "%d %s %d ", len(one.GetTypeUrl()), one.GetTypeUrl(), len(one.GetValue()))
		sum.Write(one.GetValue())
	}
	return &response{r, hex.EncodeToString(sum.Sum(nil)[:12])}
}
