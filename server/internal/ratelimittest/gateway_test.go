//go:build unix

package ratelimittest_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/server/internal/ratelimittest"
)

// controllers are the variables that Envoy Gateway's controller writes into the Deployment, for certificates in /certs.
const controllers = `RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false
LOG_LEVEL=info USE_STATSD=false CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001
CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt
GRPC_SERVER_TLS_KEY=/certs/tls.key GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt CONFIG_GRPC_XDS_SERVER_USE_TLS=true
CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt FORCE_START_WITHOUT_INITIAL_CONFIG=true REDIS_SOCKET_TYPE=tcp`

// A controller sends limits over mTLS, as Envoy Gateway's does.
type controller struct {
	t       *testing.T
	address string
	tls     *tls.Config
	cache   cache.SnapshotCache
	stop    func()

	mu       sync.Mutex
	mistakes []string // of versions that were refused
}

func (c *controller) start() {
	c.t.Helper()
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(c.t.Context())
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(c.tls)))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, c.cache, server.CallbackFuncs{
		StreamRequestFunc: c.received}))
	go s.Serve(listener)
	c.stop = func() {
		cancel()
		s.Stop()
	}
	c.t.Cleanup(c.stop)
}

func (c *controller) received(_ int64, r *discovery.DiscoveryRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mistake := r.GetErrorDetail().GetMessage(); mistake != "" {
		c.mistakes = append(c.mistakes, mistake)
	}
	return nil
}

// refused reports whether a version was refused with a text.
func (c *controller) refused(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mistakes) > 0 && strings.Contains(c.mistakes[len(c.mistakes)-1], text)
}

// send sends a version with a limit on a route of a listener, as the translator writes it.
func (c *controller) send(version string, descriptors ...*ratelimit.RateLimitDescriptor) {
	c.t.Helper()
	route := &ratelimit.RateLimitDescriptor{Key: "route", Value: "route", Descriptors: descriptors}
	config := &ratelimit.RateLimitConfig{Name: "listener", Domain: "listener",
		Descriptors: []*ratelimit.RateLimitDescriptor{route}}
	snapshot, err := cache.NewSnapshot(version,
		map[resource.Type][]types.Resource{resource.RateLimitConfigType: {config}})
	if err == nil {
		err = c.cache.SetSnapshot(c.t.Context(), "envoy-ratelimit", snapshot)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func perHour(key string, n uint32) *ratelimit.RateLimitDescriptor {
	return &ratelimit.RateLimitDescriptor{Key: key, RateLimit: &ratelimit.RateLimitPolicy{
		Unit: ratelimit.RateLimitUnit_HOUR, RequestsPerUnit: n}}
}

// TestPageOfEnvoyGateway starts weir by the controller's variables, with its certificates and a control plane.
func TestPageOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	var page struct {
		Kind     string
		Provider struct {
			Kubernetes struct {
				RateLimitDeployment struct{ Container struct{ Image string } } `yaml:"rateLimitDeployment"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(envoyPage(t, "yaml", 4)[2]), &page); err != nil || page.Kind != "EnvoyGateway" ||
		page.Provider.Kubernetes.RateLimitDeployment.Container.Image == "" {
		t.Errorf("the page names no image: %+v, %v", page, err)
	}
	dir := t.TempDir()
	authority := certtest.New(t, dir, "ca")
	certificate, key := authority.Leaf("envoy-gateway", "envoy-gateway", "127.0.0.1")
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": authority.PEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &controller{t: t, address: "127.0.0.1:0", cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		tls: &tls.Config{Certificates: authority.Identity("envoy-gateway"), ClientCAs: authority.Pool(),
			ClientAuth: tls.RequireAndVerifyClientCert}}
	c.start()
	c.send("1", perHour("rule-0-match-0", 2))
	env := strings.Fields(strings.NewReplacer("/certs", dir, "envoy-gateway:18001", c.address).Replace(controllers))
	place := ratelimittest.NewPlace(t, redistest.Start(t).Addr(), nil, env...)
	place.Start(weir(t)).Await()
	limits(t, place, "listener.route_route.rule-0-match-0: unit=HOUR requests_per_unit=2")

	client := dial(t, place, authority)
	for i, want := range []service.RateLimitResponse_Code{service.RateLimitResponse_OK, service.RateLimitResponse_OK,
		service.RateLimitResponse_OVER_LIMIT} {
		if got := client.ask(t); got != want {
			t.Errorf("request %d: %v, want %v", i+1, got, want)
		}
	}
	c.send("2", perHour("rule-0-match-0", 9), perHour("rule-0-match-0", 9))
	redistest.Await(t, "a refused version", func() bool { return c.refused("occurs twice") })
	if got := client.ask(t); got != service.RateLimitResponse_OVER_LIMIT {
		t.Errorf("after a version with a mistake: %v", got)
	}
	c.stop()
	c.send("3", perHour("rule-0-match-0", 5))
	c.start()
	limits(t, place, "requests_per_unit=5")
}

// An asker asks as Envoy does for a request to the route.
type asker struct{ service.RateLimitServiceClient }

func dial(t *testing.T, p *ratelimittest.Place, authority *certtest.Authority) asker {
	t.Helper()
	creds := credentials.NewTLS(&tls.Config{RootCAs: authority.Pool(), ServerName: "envoy-gateway"})
	conn, err := grpc.NewClient(p.GRPC, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return asker{service.NewRateLimitServiceClient(conn)}
}

func (a asker) ask(t *testing.T) service.RateLimitResponse_Code {
	t.Helper()
	answer, err := a.ShouldRateLimit(t.Context(), &service.RateLimitRequest{Domain: "listener",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
			{Key: "route", Value: "route"}, {Key: "rule-0-match-0", Value: "rule-0-match-0"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetOverallCode()
}
