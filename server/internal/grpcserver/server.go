// Package grpcserver is the gRPC server that the gRPC front ends share: access control, bounds,
// health checks, reflection, counts, and shutdown. The wiring registers the services.
//
// grpc.health.v1 answers everybody, as /readyz does. Other calls need a token, if tokens are
// configured; reflection accepts a read-only one.
package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirproject/weir/server/internal/web"
)

const (
	// maxMessage is bytes of a request. Envoy's ext_authz and ext_proc send all headers of a request, up to 60 KiB,
	// and, if so configured, a body, of which rules read 1 MiB; its rate limit filter sends a header once for each
	// descriptor that has it. A question that is too large is refused, and Envoy may let its request pass.
	maxMessage = 1<<20 + 128<<10
	// maxMetadata is bytes of a request's metadata.
	maxMetadata = 16 << 10
	// maxStreams is the most calls at a time on a connection. Envoy opens another connection beyond it.
	maxStreams = 1000
	// streamWorkers is the number of goroutines that are kept for calls: a new one for each call grows a new stack.
	streamWorkers = 32
	// handshake is the time for the beginning of a connection, TLS included.
	handshake = 10 * time.Second
	// minPing is the shortest interval of a client's pings. Clients that ping more often are disconnected, which
	// costs more than their pings, so it is short.
	minPing = time.Second
	// maxIdle is how long a connection without calls is kept, as over HTTP.
	maxIdle = 2 * time.Minute
	// pingAfter is the idle time after which the server looks whether the client is still there.
	pingAfter = 2 * time.Minute
	// lastCalls is how long calls without an end, such as health's Watch, may delay the shutdown.
	lastCalls = 500 * time.Millisecond
	pollEvery = 5 * time.Millisecond
)

// A Config configures a Server. Fields are required unless their comment says otherwise.
type Config struct {
	Access *web.Access
	Ready  func() bool // whether health checks succeed
	Named  []string    // more names of services that health checks know; optional
	// MaxAge is how long a connection is used. Clients such as Envoy keep one for ever otherwise, and a node that is
	// added behind a balancer gets no calls. After it calls have MaxAgeGrace to end.
	MaxAge, MaxAgeGrace time.Duration
	Counts              Counts
	Log                 *slog.Logger
	Warn                func(text string, args ...any) // logs what clients can repeat at will
}

// Counts are told of the calls. The methods are called concurrently.
type Counts interface {
	// Began counts the beginning of a call.
	Began()
	// Ended counts the end of a call. method is /SERVICE/METHOD, or "unknown"; code is as in OK or NotFound.
	Ended(method, code string)
	// Panicked counts a call that panicked, besides Ended.
	Panicked()
}

// A Service registers itself at the server.
type Service func(grpc.ServiceRegistrar)

// A Server serves gRPC. It is safe for concurrent use.
type Server struct {
	Config
	grpc        *grpc.Server
	health      *health
	connections *connections
	known       map[string]bool // methods
	inFlight    atomic.Int64    // calls that end by themselves
}

// New makes a server with the services, health checks and reflection.
func New(c Config, services ...Service) *Server {
	s := &Server{Config: c, known: make(map[string]bool)}
	s.connections = &connections{tokens: len(c.Access.Tokens) > 0, open: make(map[*connection]struct{})}
	s.grpc = grpc.NewServer(
		grpc.Creds(s.connections),
		grpc.InTapHandle(s.tap),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshake),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     maxIdle,
			MaxConnectionAge:      c.MaxAge,
			MaxConnectionAgeGrace: c.MaxAgeGrace,
			Time:                  pingAfter,
		}),
		grpc.StreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(s.unknown),
	)
	for _, register := range services {
		register(s)
	}
	s.health = newHealth(c.Ready)
	grpc_health_v1.RegisterHealthServer(s, s.health)
	reflection.Register(s)
	for _, name := range c.Named {
		s.health.services[name] = true
	}
	for service, info := range s.grpc.GetServiceInfo() {
		s.health.services[service] = true
		for _, method := range info.Methods {
			s.known["/"+service+"/"+method.Name] = true
		}
	}
	return s
}

// RegisterService implements grpc.ServiceRegistrar. Its methods are wrapped whole, with the reading of their message,
// because calls with an unreadable message are calls, too.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	wrapped := *d
	wrapped.Methods = slices.Clone(d.Methods)
	for i := range wrapped.Methods {
		m := &wrapped.Methods[i]
		m.Handler = s.unary("/"+d.ServiceName+"/"+m.MethodName, m.Handler)
	}
	s.grpc.RegisterService(&wrapped, service)
}

// GetServiceInfo is for reflection.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.grpc.GetServiceInfo() }

// unary handles the calls of a method.
func (s *Server) unary(method string, next grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (answer any,
		err error) {
		s.inFlight.Add(1)
		s.Counts.Began()
		defer func() {
			err = s.recovered(recover(), method, err)
			s.inFlight.Add(-1)
			s.Counts.Ended(method, status.Code(err).String())
		}()
		timed := func(message any) error {
			if c := connectionOf(ctx); c != nil {
				defer c.messages.Begin(0).Add(-1)
			}
			return read(message)
		}
		return next(service, ctx, timed, nil)
	}
}

// stream handles a call of a streaming method, such as ext_proc's Process or health's Watch, or of an unknown method.
func (s *Server) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) (err error) {
	method := s.named(info.FullMethod)
	s.Counts.Began()
	if endless := strings.HasPrefix(method, healthPrefix) || strings.HasPrefix(method, reflectionPrefix); !endless {
		s.inFlight.Add(1)
		defer s.inFlight.Add(-1)
	}
	defer func() {
		err = s.recovered(recover(), method, err)
		s.Counts.Ended(method, status.Code(err).String())
	}()
	if c := connectionOf(stream.Context()); c != nil && s.connections.tokens && !c.known.Load() {
		defer c.watches.Add(-1)
		if c.watches.Add(1) > maxWatches {
			return status.Errorf(codes.ResourceExhausted, "more than %d calls without a token on a connection",
				maxWatches)
		}
	}
	return next(service, stream)
}

// named is the method of a call in the counts.
func (s *Server) named(method string) string {
	if s.known[method] {
		return method
	}
	return "unknown"
}

// recovered turns a panic into an error. The program continues, as net/http's server does: one bad request should not
// end the calls of others.
func (s *Server) recovered(panicked any, method string, err error) error {
	if panicked == nil {
		return err
	}
	s.Counts.Panicked()
	s.Log.Error("gRPC call panicked: this is a bug, please report it", "method", method,
		"panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error: see the log of the server")
}

// Prefixes of methods with different access.
const (
	healthPrefix     = "/grpc.health.v1."
	reflectionPrefix = "/grpc.reflection."
)

// tap admits a call by its header: one that is refused costs no goroutine, no stream and no memory for its message.
func (s *Server) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	c := connectionOf(ctx)
	c.called.Store(true)
	if len(s.Access.Tokens) == 0 || strings.HasPrefix(call.FullMethodName, healthPrefix) {
		return ctx, nil
	}
	var sent string
	if values := call.Header["authorization"]; len(values) > 0 {
		sent = values[0]
	}
	err := s.Access.IdentifyToken(sent, !strings.HasPrefix(call.FullMethodName, reflectionPrefix))
	var problem *web.Problem
	if errors.As(err, &problem) {
		err = status.Error(codeOf(problem), problem.Detail)
	}
	if err != nil {
		s.Counts.Began()
		s.Counts.Ended(s.named(call.FullMethodName), status.Code(err).String())
		s.Warn("gRPC call refused", "error", err, "peer", c.RemoteAddr().String())
		return ctx, err
	}
	c.known.Store(true)
	return ctx, nil
}

func codeOf(p *web.Problem) codes.Code {
	if p.Status == 403 {
		return codes.PermissionDenied
	}
	return codes.Unauthenticated
}

// unknown refuses a method that no service has.
func (s *Server) unknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	s.Warn("gRPC call of an unknown method refused", "method", web.Shorten(method))
	return status.Errorf(codes.Unimplemented, "there is no %.100q; services here: %s",
		method, strings.Join(s.Services(), ", "))
}

// Services are the names of the services, sorted.
func (s *Server) Services() (names []string) {
	for name := range s.grpc.GetServiceInfo() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Serve serves the connections of a listener until Shutdown or Close.
func (s *Server) Serve(l net.Listener) error {
	ended := make(chan struct{})
	defer close(ended)
	go s.connections.watch(ended)
	return s.grpc.Serve(l)
}

// Drain makes health checks fail, and continues to serve.
func (s *Server) Drain() { s.health.drain() }

// Shutdown closes the listeners, asks clients to disconnect, and waits for calls in flight until the context ends.
// It returns the number of calls that are left.
func (s *Server) Shutdown(ctx context.Context) (cut int) {
	s.Drain()
	s.health.end()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	last, cancel := context.WithTimeout(ctx, lastCalls)
	defer cancel()
	select {
	case <-stopped:
		return 0
	case <-last.Done():
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for s.inFlight.Load() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return int(s.inFlight.Load())
}

// Close closes all connections.
func (s *Server) Close() { s.grpc.Stop() }
