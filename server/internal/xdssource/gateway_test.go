package xdssource

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/listen"
	"github.com/weirproject/weir/server/internal/rls"
)

// A shape is a configuration, and requests with what becomes of them.
type shape struct {
	name     string
	configs  []*ratelimit.RateLimitConfig // domains that have descriptors
	requests []request
}

type request struct {
	text, domain, want string
	entries            []*common.RateLimitDescriptor_Entry
}

// shapes reads testdata/gateway.txt.
func shapes(t testing.TB) (list []*shape) {
	t.Helper()
	text, err := os.ReadFile("testdata/gateway.txt")
	do(t, err)
	var domain string
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		path, after, _ := strings.Cut(rest, ": ")
		switch word {
		case "shape":
			list = append(list, &shape{name: rest})
		case "domain":
			domain = rest
		case "limit", "descriptor":
			list[len(list)-1].add(t, domain, strings.Split(path, ", "), strings.Fields(after))
		case "request":
			one := request{text: rest, domain: domain, want: after}
			for entry := range strings.SplitSeq(path, ", ") {
				key, value, _ := strings.Cut(entry, "=")
				one.entries = append(one.entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
			s := list[len(list)-1]
			s.requests = append(s.requests, one)
		}
	}
	return list
}

// add adds the descriptors of a path.
func (s *shape) add(t testing.TB, domain string, path, words []string) {
	t.Helper()
	i := slices.IndexFunc(s.configs, func(c *ratelimit.RateLimitConfig) bool { return c.GetDomain() == domain })
	if i < 0 {
		i = len(s.configs)
		s.configs = append(s.configs, &ratelimit.RateLimitConfig{Name: domain, Domain: domain})
	}
	at := &s.configs[i].Descriptors
	var d *ratelimit.RateLimitDescriptor
	for _, entry := range path {
		key, value, _ := strings.Cut(entry, "=")
		j := slices.IndexFunc(*at, func(d *ratelimit.RateLimitDescriptor) bool {
			return d.GetKey() == key && d.GetValue() == value
		})
		if j < 0 {
			j = len(*at)
			*at = append(*at, &ratelimit.RateLimitDescriptor{Key: key, Value: value})
		}
		d, at = (*at)[j], &(*at)[j].Descriptors
	}
	if len(words) == 0 {
		return
	}
	unit, known := ratelimit.RateLimitUnit_value[strings.ToUpper(words[1])]
	d.RateLimit = &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit(unit)}
	if _, err := fmt.Sscan(words[0], &d.RateLimit.RequestsPerUnit); err != nil || !known {
		t.Fatalf("%s: %q", s.name, words)
	}
	d.ShadowMode, d.DetailedMetric = slices.Contains(words, "shadow"), slices.Contains(words, "detailed")
}

// A registrar has the service that is registered at it.
type registrar struct{ service.RateLimitServiceServer }

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, s any) {
	r.RateLimitServiceServer = s.(service.RateLimitServiceServer)
}

// check sends the requests to the rate limit service, with these rules and no counts.
func (s *shape) check(t *testing.T, set *rules.Set) {
	t.Helper()
	var r registrar
	clock := memstore.WithClock(func() weir.Instant { return 1e12 })
	rls.New(gatetest.Of(t, memstore.New(clock), set), rls.Options{Ratelimit: new(rls.Ratelimit)})(&r)
	for _, one := range s.requests {
		var n uint64
		var unit string
		if _, err := fmt.Sscan(one.want, &n, &unit); err != nil && one.want != "none" && one.want != "over" &&
			one.want != "shadow" {
			t.Fatalf("%s: %q", s.name, one.text)
		}
		if one.want == "shadow" {
			n = 50
		}
		got := "none"
		status := one.ask(t, &r, max(1, n))
		if limit := status.GetCurrentLimit(); limit != nil && one.want != "shadow" {
			got = fmt.Sprintf("%d %s", limit.GetRequestsPerUnit(), strings.ToLower(limit.GetUnit().String()))
		}
		next := one.ask(t, &r, 1)
		switch {
		case status.GetCode() != service.RateLimitResponse_OK:
			got = "over"
		case one.want == "shadow" && next.GetCode() == service.RateLimitResponse_OK:
			got = "shadow"
		case got != "none" && next.GetCode() == service.RateLimitResponse_OK:
			got += ", and more pass"
		}
		if got != one.want {
			t.Errorf("%s: %s\ngot %s", s.name, one.text, got)
		}
	}
}

func (q *request) ask(t *testing.T, r *registrar, hits uint64) *service.RateLimitResponse_DescriptorStatus {
	t.Helper()
	answer, err := r.ShouldRateLimit(t.Context(), &service.RateLimitRequest{Domain: q.domain,
		Descriptors: []*common.RateLimitDescriptor{{Entries: q.entries, HitsAddend: wrapperspb.UInt64(hits)}}})
	do(t, err)
	return answer.GetStatuses()[0]
}

// A site is a followed source that is connected to a control plane by TCP and mTLS, and the rules in force.
type site struct {
	t       *testing.T
	address string
	config  Config
	certs   *certtest.Authority
	plane   *plane
	manager *ruleset.Manager
	set     atomic.Pointer[rules.Set]
	events  chan ruleset.Event
}

func convert(configs []*ratelimitconf.Config) (*rules.File, error) {
	file, err := ratelimitconf.Compile(configs, ratelimitconf.Options{})
	if err == nil {
		_, err = rules.Compile(file)
	}
	return file, err
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, address: "127.0.0.1:0", certs: certtest.New(t, t.TempDir(), "root"),
		events: make(chan ruleset.Event, 1000)}
	s.certs.Issue("client", "client-key")
	s.certs.Issue("server", "server-key")
	s.begin()
	c := config()
	c.Server, c.Convert, c.Log = s.address, convert, slog.New(slog.NewTextHandler(t.Output(), nil))
	c.TLS, c.CA, c.Cert, c.Key = true, s.certs.File("ca"), s.certs.File("client"), s.certs.File("client-key")
	c.Metadata, c.Headers = []string{"cluster=blue"}, []string{"X-Tenant=7"}
	c.Backoff, c.MaxBackoff = 10*time.Millisecond, 50*time.Millisecond
	s.config = c
	source, err := New(c)
	do(t, err)
	s.manager, err = ruleset.NewManager([]ruleset.Layer{{Name: "xds", Source: source, AllowEmpty: true}},
		func(set *rules.Set) error { s.set.Store(set); return nil },
		ruleset.WithEvents(func(e ruleset.Event) { s.events <- e }))
	do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { do(t, s.manager.Run(ctx)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		s.plane.stop()
	})
	return s
}

// begin starts the control plane, at the same address as before.
func (s *site) begin() {
	s.t.Helper()
	secure := listen.Config{Address: s.address, Certs: []string{s.certs.File("server")},
		Keys: []string{s.certs.File("server-key")}, ClientCA: s.certs.File("ca"), NextProtos: []string{"h2"}}
	listener, err := secure.Listen(s.t.Context())
	do(s.t, err)
	s.address = listener.Addr().String()
	s.plane = serve(s.t, listener)
}

// await waits for an event of a kind.
func (s *site) await(kind ruleset.EventKind) ruleset.Event {
	s.t.Helper()
	for {
		select {
		case e := <-s.events:
			if e.Kind == kind {
				return e
			}
		case <-time.After(time.Minute):
			s.t.Fatalf("no event %v; the state is %v", kind, s.manager.Status().Err())
		}
	}
}

// TestEnvoyGateway sends configurations of each shape, with a wrong one and restarts between.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	list := shapes(t)
	for i, shape := range list {
		s.plane.set(fmt.Sprint("version ", i), shape.configs...)
		s.await(ruleset.InForce)
		shape.check(t, s.set.Load())
		switch i {
		case 2:
			wrong := limited("second-listener", 1)
			wrong.Domain = ""
			s.plane.set("wrong", limited("first-listener", 1), wrong)
			if e := s.await(ruleset.Refused); !strings.Contains(e.Err.Error(), "domain is missing") || e.Rules != 1 {
				t.Errorf("%d rules: %v", e.Rules, e.Err)
			}
			s.told("nack version 2: second-listener: domain: domain is missing", "")
			shape.check(t, s.set.Load())
		case 4, 5:
			s.plane.stop()
			s.await(ruleset.Down)
			shape.check(t, s.set.Load())
			s.begin()
		}
	}
	if len(list) < 24 {
		t.Errorf("only %d shapes", len(list))
	}
	s.told(fmt.Sprint("ack version ", len(list)-1), "")
	headers, node := s.plane.client()
	if got := headers.Get("x-tenant"); !slices.Equal(got, []string{"7"}) {
		t.Errorf("the header is %q", got)
	}
	if cluster := node.GetMetadata().GetFields()["cluster"].GetStringValue(); node.GetId() != nodeID || cluster != "blue" {
		t.Errorf("the node is %v", node)
	}
}

// told waits until the control plane is told something that begins so, and ends so.
func (s *site) told(begins, ends string) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for all := []string(nil); ; time.Sleep(time.Millisecond) {
		all = append(all, s.plane.take()...)
		if slices.ContainsFunc(all, func(text string) bool {
			return strings.HasPrefix(text, begins) && strings.HasSuffix(text, ends)
		}) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the control plane was told %q", all)
		}
	}
}

// fails waits until the source has this error.
func (s *site) fails(want string) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := s.manager.Status().Err()
		if err != nil && strings.Contains(err.Error(), want) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the error is %v; want %q", err, want)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNameOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plane.set("1", limited("a", 5))
	c := s.config
	for name, want := range map[string]string{"localhost": "<nil>", "other.example": "not other.example"} {
		c.ServerName = name
		source, err := New(c)
		do(t, err)
		if n := source.Load(t.Context(), false); !strings.Contains(fmt.Sprint(n.Err), want) {
			t.Errorf("%s: %v; want %s", name, n.Err, want)
		}
		source.Close()
	}
}

// TestCertificatesAreReadForEachConnection: all of them are replaced, with their authority.
func TestCertificatesAreReadForEachConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plane.set("1", limited("a", 5))
	s.await(ruleset.InForce)
	s.plane.stop()
	others := certtest.New(t, t.TempDir(), "other")
	others.Issue("server", "server-key")
	others.Issue("client", "client-key")
	ours := s.certs
	s.certs = others
	s.begin()
	s.plane.set("2", limited("a", 6))
	s.await(ruleset.Down)
	s.fails("certificate signed by unknown authority")
	for _, name := range []string{"ca", "client", "client-key"} {
		text, err := os.ReadFile(others.File(name))
		do(t, err)
		ours.Write(name, text)
	}
	s.await(ruleset.InForce)
}
