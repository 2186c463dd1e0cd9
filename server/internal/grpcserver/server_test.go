package grpcserver_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/grpcserver"
	"github.com/weirproject/weir/server/internal/web"
)

const (
	secret    = "0123456789abcdef-write"
	readOnly  = "0123456789abcdef-read"
	echo      = "/test.Echo/Say"
	healthFor = "/grpc.health.v1.Health/Check"
)

// counts records the calls.
type counts struct {
	mu              sync.Mutex
	ended           []string
	began, panicked atomic.Int64
}

func (c *counts) Began() { c.began.Add(1) }

func (c *counts) Ended(method, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, method+" "+code)
}

func (c *counts) Panicked() { c.panicked.Add(1) }

func (c *counts) has(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.ended, line)
}

// A fixture is a server with a service test.Echo whose method Say answers what say returns.
type fixture struct {
	*grpcserver.Server
	*grpc.ClientConn
	counts
	ready  atomic.Bool
	warned atomic.Int64
	say    func(context.Context, string) (string, error)
}

func start(t *testing.T, tokens ...web.Token) *fixture {
	t.Helper()
	f := &fixture{say: func(_ context.Context, text string) (string, error) { return text, nil }}
	f.ready.Store(true)
	access, err := web.NewAccess(web.Config{Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	f.Server = grpcserver.New(grpcserver.Config{Access: access, Ready: f.ready.Load, Counts: &f.counts,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Warn: func(string, ...any) { f.warned.Add(1) }}, f.register)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go f.Serve(l)
	t.Cleanup(f.Server.Close)
	f.ClientConn = dial(t, l.Addr().String())
	return f
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (f *fixture) register(r grpc.ServiceRegistrar) {
	handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		out, err := f.say(ctx, in.GetValue())
		return wrapperspb.String(out), err
	}
	r.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Metadata: "test.proto",
		Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: handle}}}, f)
}

// call calls a method with a token; "" is none.
func (f *fixture) call(t *testing.T, method, token, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	out := new(wrapperspb.StringValue)
	err := f.Invoke(ctx, method, wrapperspb.String(text), out)
	return out.GetValue(), err
}

func (f *fixture) check(t *testing.T, service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	answer, err := healthpb.NewHealthClient(f).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	return answer.GetStatus(), err
}

func TestHealthFollowsReadiness(t *testing.T) {
	f := start(t)
	expect := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range []string{"", "test.Echo", "grpc.health.v1.Health"} {
			if got, err := f.check(t, service); err != nil || got != want {
				t.Errorf("service %q: %v, %v; want %v", service, got, err, want)
			}
		}
	}
	expect(healthpb.HealthCheckResponse_SERVING)
	f.ready.Store(false)
	expect(healthpb.HealthCheckResponse_NOT_SERVING)
	f.ready.Store(true)
	expect(healthpb.HealthCheckResponse_SERVING)
	if _, err := f.check(t, "test.Other"); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v, want NotFound", err)
	}
	f.Drain()
	expect(healthpb.HealthCheckResponse_NOT_SERVING)
	if text, err := f.call(t, echo, "", "still served"); err != nil || text != "still served" {
		t.Errorf("while draining: %q, %v", text, err)
	}
	list, err := healthpb.NewHealthClient(f).List(t.Context(), new(healthpb.HealthListRequest))
	if err != nil || list.Statuses["test.Echo"].GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("list: %v, %v", list, err)
	}
}

func TestWatchTellsOfDrainingAndDoesNotDelayTheShutdown(t *testing.T) {
	f := start(t)
	watch, err := healthpb.NewHealthClient(f).Watch(t.Context(), new(healthpb.HealthCheckRequest))
	if err != nil {
		t.Fatal(err)
	}
	next := func() healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		answer, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status
	}
	if got := next(); got != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(got)
	}
	f.Drain()
	if got := next(); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if cut := f.Shutdown(ctx); cut != 0 || ctx.Err() != nil {
		t.Errorf("%d calls were cut, %v", cut, ctx.Err())
	}
}

func TestShutdownWaitsForCallsInFlight(t *testing.T) {
	f := start(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	f.say = func(context.Context, string) (string, error) {
		close(arrived)
		<-release
		return "done", nil
	}
	answer := make(chan string, 1)
	go func() {
		text, err := f.call(t, echo, "", "")
		if err != nil {
			text = err.Error()
		}
		answer <- text
	}()
	<-arrived
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if cut := f.Shutdown(over); cut != 1 {
		t.Errorf("%d calls were cut, want 1", cut)
	}
	shut := make(chan int, 1)
	go func() { shut <- f.Shutdown(context.Background()) }()
	close(release)
	if text, cut := <-answer, <-shut; text != "done" || cut != 0 {
		t.Errorf("answered %q, %d calls were cut", text, cut)
	}
}

func TestTokens(t *testing.T) {
	f := start(t, web.Token{Secret: secret, Write: true}, web.Token{Secret: readOnly})
	for token, want := range map[string]codes.Code{
		"":                 codes.Unauthenticated,
		secret[1:]:         codes.Unauthenticated,
		readOnly:           codes.PermissionDenied,
		secret:             codes.OK,
		" " + secret + " ": codes.OK,
	} {
		if _, err := f.call(t, echo, token, ""); status.Code(err) != want {
			t.Errorf("token %q: %v, want %v", token, err, want)
		}
		if _, err := f.call(t, healthFor, token, ""); err != nil {
			t.Errorf("health with token %q: %v", token, err)
		}
	}
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, readOnly: codes.OK} {
		if services, err := f.reflect(t, token); status.Code(err) != want || err == nil && !strings.Contains(services, "test.Echo") {
			t.Errorf("reflection with token %q: %s, %v", token, services, err)
		}
	}
	if _, err := f.call(t, "/test.Echo/Other", "", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("an unknown method without a token: %v", err)
	}
}

// reflect lists the services.
func (f *fixture) reflect(t *testing.T, token string) (string, error) {
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	stream, err := reflectionpb.NewServerReflectionClient(f).ServerReflectionInfo(ctx)
	if err != nil {
		return "", err
	}
	stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	answer, err := stream.Recv()
	stream.CloseSend()
	return answer.String(), err
}

func TestAPanicEndsOneCall(t *testing.T) {
	f := start(t)
	f.say = func(_ context.Context, text string) (string, error) {
		if text == "panic" {
			panic(secret)
		}
		return text, nil
	}
	_, err := f.call(t, echo, "", "panic")
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), secret) {
		t.Errorf("%v, want Internal without the value of the panic", err)
	}
	if text, err := f.call(t, echo, "", "next"); text != "next" || err != nil {
		t.Errorf("the next call: %q, %v", text, err)
	}
	redistest.Await(t, "the counts", func() bool {
		return f.panicked.Load() == 1 && f.has(echo+" Internal") && f.has(echo+" OK") && f.began.Load() == 2
	})
}

func TestUnknownMethodsAreRefused(t *testing.T) {
	f := start(t)
	for _, method := range []string{"/test.Echo/Other", "/no.Service/Method", "/" + strings.Repeat("x", 5000) + "/y"} {
		_, err := f.call(t, method, "", "")
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "test.Echo") || len(err.Error()) > 1000 {
			t.Errorf("%.40s: %v", method, err)
		}
	}
	redistest.Await(t, "the count", func() bool { return f.has("unknown Unimplemented") && f.warned.Load() == 3 })
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.ended, func(line string) bool { return !strings.HasPrefix(line, "unknown ") }) {
		t.Errorf("callers choose the names of series: %q", f.ended)
	}
}

func TestMessagesHaveACeiling(t *testing.T) {
	f := start(t)
	if _, err := f.call(t, echo, "", strings.Repeat("x", 1<<20+100<<10)); err != nil {
		t.Error(err)
	}
	if _, err := f.call(t, echo, "", strings.Repeat("x", 1<<20+128<<10)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("1 MiB and 128 KiB: %v, want ResourceExhausted", err)
	}
	redistest.Await(t, "the count of what was not read", func() bool { return f.has(echo + " ResourceExhausted") })
	if _, err := f.call(t, echo, strings.Repeat("x", 20<<10), ""); err == nil {
		t.Error("20 KiB of metadata were accepted")
	}
}
