package grpcserver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/server/internal/web"
)

// watchEvery is the interval between reads of watched readiness.
const watchEvery = time.Second

// A health answers grpc.health.v1. All services share one state, which is asked for when it is needed:
// google.golang.org/grpc/health has a copy that would have to be kept up to date.
type health struct {
	healthpb.UnimplementedHealthServer
	ready    func() bool
	services map[string]bool // and ""
	draining chan struct{}   // closed when draining begins
	ended    chan struct{}   // closed when the server shuts down
	drain    func()
	end      func()
}

func newHealth(ready func() bool) *health {
	h := &health{ready: ready, services: map[string]bool{"": true},
		draining: make(chan struct{}), ended: make(chan struct{})}
	h.drain = sync.OnceFunc(func() { close(h.draining) })
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h
}

// now is the state of every service.
func (h *health) now() healthpb.HealthCheckResponse_ServingStatus {
	select {
	case <-h.draining:
		return healthpb.HealthCheckResponse_NOT_SERVING
	default:
	}
	if !h.ready() {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// Check implements grpc.health.v1.
func (h *health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !h.services[r.GetService()] {
		return nil, status.Errorf(codes.NotFound, "there is no service %q", web.Shorten(r.GetService()))
	}
	return &healthpb.HealthCheckResponse{Status: h.now()}, nil
}

// List implements grpc.health.v1.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	states := make(map[string]*healthpb.HealthCheckResponse)
	for service := range h.services {
		states[service] = &healthpb.HealthCheckResponse{Status: h.now()}
	}
	return &healthpb.HealthListResponse{Statuses: states}, nil
}

// Watch implements grpc.health.v1. It sends the first state at once, and then each change.
func (h *health) Watch(r *healthpb.HealthCheckRequest,
	to grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	draining := h.draining
	sent := healthpb.HealthCheckResponse_UNKNOWN
	for {
		state := healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		if h.services[r.GetService()] {
			state = h.now()
		}
		if state != sent {
			if err := to.Send(&healthpb.HealthCheckResponse{Status: state}); err != nil {
				return err
			}
			sent = state
		}
		select {
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		case <-h.ended:
			return status.Error(codes.Unavailable, "the server is shutting down")
		case <-draining:
			draining = nil
		case <-ticker.C:
		}
	}
}
