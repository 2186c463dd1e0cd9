package xdssource

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const nodeID = "envoy-ratelimit"

// A plane is a control plane: a snapshot cache of go-control-plane, and the requests that it has received.
type plane struct {
	t        testing.TB
	listener net.Listener
	cache    cache.SnapshotCache
	stop     func()

	mu       sync.Mutex
	requests []*discovery.DiscoveryRequest
	headers  metadata.MD // of the last stream
	node     *core.Node  // of the last request
	refuses  error       // streams
}

// serve starts a control plane, until stop.
func serve(t testing.TB, listener net.Listener, opts ...grpc.ServerOption) *plane {
	t.Helper()
	p := &plane{t: t, listener: listener, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	s := grpc.NewServer(opts...)
	ctx, cancel := context.WithCancel(t.Context())
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, p.cache, p.callbacks()))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) })
	p.stop = func() {
		cancel()
		s.Stop()
		serving.Wait()
	}
	return p
}

func (p *plane) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.headers, _ = metadata.FromIncomingContext(ctx)
			return p.refuses
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests, p.node = append(p.requests, r), r.GetNode()
			return nil
		},
	}
}

// set replaces the configuration of the node.
func (p *plane) set(version string, configs ...*ratelimit.RateLimitConfig) {
	p.t.Helper()
	var list []types.Resource
	for _, c := range configs {
		list = append(list, c)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err == nil {
		err = p.cache.SetSnapshot(p.t.Context(), nodeID, snapshot)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// take returns the requests since the last call: "asks" for the first of a stream, "ack VERSION", "nack VERSION: TEXT".
func (p *plane) take() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.requests = nil }()
	for _, r := range p.requests {
		switch {
		case r.GetResponseNonce() == "":
			list = append(list, strings.TrimSpace("asks "+r.GetVersionInfo()))
		case r.GetErrorDetail() == nil:
			list = append(list, "ack "+r.GetVersionInfo())
		default:
			list = append(list, "nack "+r.GetVersionInfo()+": "+r.GetErrorDetail().GetMessage())
		}
	}
	return list
}

func (p *plane) client() (metadata.MD, *core.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.headers, p.node
}

// limited is a configuration of a domain with one limit.
func limited(domain string, perSecond uint32) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{
		{Key: "route", RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_SECOND,
			RequestsPerUnit: perSecond}}}}
}
