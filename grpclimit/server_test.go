package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A clock is the clock of a store.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(1_790_000_000_250_000)
	return c
}

func (c *clock) store() weir.Store {
	return memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(c.now.Load()) }))
}

func (c *clock) pass(d time.Duration) { c.now.Add(d.Microseconds()) }

func limiter(t *testing.T, store weir.Store, specs ...weir.Spec) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "api", specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func limits(t *testing.T, l *weir.Limiter, key grpclimit.Key, options *grpclimit.Options) *grpclimit.Server {
	t.Helper()
	s, err := grpclimit.New(l, key, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func byRules(t *testing.T, store weir.Store, text string, options *grpclimit.RuleOptions) *grpclimit.Server {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := grpclimit.ByRules(g, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// byCall limits methods to 3 calls an hour, and a caller, in the same decision, to two of them at once.
func byCall(t *testing.T, store weir.Store, caller string, options *grpclimit.Options) *grpclimit.Server {
	t.Helper()
	method := weir.MustLimit("method", weir.SlidingLog{Limit: 3, Window: time.Hour})
	atOnce := weir.MustLimit("caller", weir.Concurrency{Limit: 2, TTL: time.Hour})
	s, err := grpclimit.ByCall(store, func(_ context.Context, c *grpclimit.Call) ([]weir.Claim, error) {
		if caller == "" {
			return []weir.Claim{{Limit: atOnce}}, nil
		}
		return []weir.Claim{{Key: c.Method, Limit: method}, {Key: caller, Limit: atOnce, Cost: 1}}, nil
	}, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLimitsOfACall are decided together: what one refuses is charged to no other, leases are released, and costs that
// are known afterwards are settled.
func TestLimitsOfACall(t *testing.T) {
	store := newClock().store()
	limited := byCall(t, store, "ann", nil)
	var inner []string
	s := &service{}
	client := serve(t, limited, s)
	depth := 0
	s.unary = func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if depth++; depth <= 2 { // two calls hold the caller's units, the third is refused
			inner = append(inner, text(call(ctx, client).err))
		}
		return &pb.SimpleResponse{Username: "hello"}, nil
	}
	want(t, "the first call", text(call(t.Context(), client).err), "OK; ")
	if len(inner) != 2 || !strings.HasPrefix(inner[0], "ResourceExhausted; ") || inner[1] != "OK; " {
		t.Errorf("calls within calls: %q", inner)
	}
	r := call(t.Context(), client)
	want(t, "the third", text(r.err), "OK; ")
	want(t, "its fields", r.header.Get("ratelimit")[0], `"method";r=0;t=3600, "caller";r=1;t=3600`)
	if got := text(call(t.Context(), client).err); !strings.HasPrefix(got, "ResourceExhausted; ") {
		t.Errorf("the fourth: %s", got)
	}
	if _, err := grpclimit.ByCall(store, nil, nil); err == nil {
		t.Error("without a function there is no error")
	}
}

// A service is the server of the tests.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	output func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error
	input  func(pb.TestService_StreamingInputCallServer) error
	duplex func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary == nil {
		return &pb.SimpleResponse{Username: "hello"}, nil
	}
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(r *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
	return s.output(r, o)
}

func (s *service) StreamingInputCall(i pb.TestService_StreamingInputCallServer) error {
	return s.input(i)
}

func (s *service) FullDuplexCall(d pb.TestService_FullDuplexCallServer) error { return s.duplex(d) }

// recovers turns panics into INTERNAL, as servers have it.
func recovers(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Error(codes.Internal, fmt.Sprint(p))
		}
	}()
	return handler(srv, stream)
}

// serve starts a server behind limits on a real socket, and connects a client.
func serve(t *testing.T, limits *grpclimit.Server, s *service, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(dial(t, limits, s, "tcp", "127.0.0.1:0", options...))
}

func dial(
	t *testing.T, limits *grpclimit.Server, s *service, network, address string, options ...grpc.DialOption,
) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, listener, s, []grpc.ServerOption{grpc.ChainUnaryInterceptor(limits.Unary),
		grpc.ChainStreamInterceptor(recovers, limits.Stream)}, options...)
}

// listen starts a server with interceptors of the caller.
func listen(t *testing.T, s *service, options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, listener, s, options)
}

func connect(
	t *testing.T, listener net.Listener, s *service, own []grpc.ServerOption, options ...grpc.DialOption,
) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(own...)
	pb.RegisterTestServiceServer(server, s)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	target := listener.Addr().String()
	if listener.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A reply is what a client sees of a unary call.
type reply struct {
	err             error
	header, trailer metadata.MD
}

func call(ctx context.Context, client pb.TestServiceClient, fields ...string) (r reply) {
	ctx = metadata.AppendToOutgoingContext(ctx, fields...)
	_, r.err = client.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	return r
}

// text is the code, the message and the details of an error.
func text(err error) string {
	s := status.Convert(err)
	list := []string{s.Code().String(), s.Message()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			list = append(list, "retry "+d.RetryDelay.AsDuration().String())
		case *errdetails.QuotaFailure:
			for _, v := range d.Violations {
				list = append(list, fmt.Sprintf("%s: %s (%s %d)", v.Subject, v.Description, v.QuotaId, v.QuotaValue))
			}
		case *errdetails.ErrorInfo:
			list = append(list, fmt.Sprint(d.Reason, " ", d.Domain, " ", d.Metadata))
		}
	}
	return strings.Join(list, "; ")
}

// limitFields are the fields of metadata that this package sets.
func limitFields(fields metadata.MD) string {
	var list []string
	for _, name := range []string{"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining",
		"x-ratelimit-reset", "retry-after", "grpc-retry-pushback-ms"} {
		if values := fields.Get(name); len(values) > 0 {
			list = append(list, name+": "+strings.Join(values, " | "))
		}
	}
	return strings.Join(list, "; ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

func TestRefusal(t *testing.T) {
	clock := newClock()
	client := serve(t, limits(t, limiter(t, clock.store(), weir.FixedWindow{Limit: 1, Window: 1500 * time.Millisecond}),
		grpclimit.PeerAddress, nil), &service{})
	granted := call(t.Context(), client)
	want(t, "the status of a granted call", text(granted.err), "OK; ")
	want(t, "its header", limitFields(granted.header), `ratelimit-policy: "api";q=1;w=2; ratelimit: "api";r=0;t=2`)
	want(t, "its trailer", limitFields(granted.trailer), "")
	clock.pass(250 * time.Millisecond)
	refused := call(t.Context(), client)
	want(t, "the status of a refusal", text(refused.err), "ResourceExhausted; too many requests: retry after 2s; "+
		"retry 1.25s; api: fixed_window 1/1500ms, of which 0 are left (api 1)")
	want(t, "the header of a refusal", limitFields(refused.header), "")
	want(t, "its trailer", limitFields(refused.trailer), `ratelimit-policy: "api";q=1;w=2; ratelimit: "api";r=0;t=2; `+
		`retry-after: 2; grpc-retry-pushback-ms: 1250`)
	clock.pass(1250 * time.Millisecond)
	want(t, "the status after the wait", text(call(t.Context(), client).err), "OK; ")
}

// retries is a service config with a retryPolicy whose own backoff is never the reason of a retry in time.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "3600s",
	"maxBackoff": "3600s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

// gRFC A6: the client's own retry waits for the pushback, not for its backoff.
func TestClientRetriesAfterPushback(t *testing.T) {
	clock, refused := newClock(), 0
	l := limiter(t, clock.store(), weir.GCRA(1, 1, 50*time.Millisecond))
	client := serve(t, limits(t, l, grpclimit.Method, &grpclimit.Options{Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) {
		if e.Outcome == httplimit.Refused {
			refused++
			clock.pass(e.Answer.RetryAfter)
		}
	}}), &service{}, grpc.WithDefaultServiceConfig(retries))
	for range 3 {
		if r := call(t.Context(), client); r.err != nil {
			t.Error(r.err)
		}
	}
	if refused != 2 {
		t.Errorf("%d refusals, want 2, each with a retry", refused)
	}
}

// A retry that cannot succeed in time is not made: the client gets the refusal at once, not its deadline an hour later.
func TestNoPushbackBeyondTheDeadline(t *testing.T) {
	clock := newClock()
	for _, wait := range []time.Duration{59 * time.Minute, 50 * time.Second} {
		client := serve(t, limits(t, limiter(t, clock.store(), weir.GCRA(1, 1, wait)), grpclimit.Method, nil), &service{},
			grpc.WithDefaultServiceConfig(retries))
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		if wait > time.Minute {
			ctx = t.Context() // no deadline; a wait over a minute is not slept either
		}
		call(ctx, client)
		r := call(ctx, client)
		if status.Code(r.err) != codes.ResourceExhausted || limitFields(r.trailer) == "" {
			t.Errorf("%v: %v", wait, r.err)
		}
		if got := r.trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "-1" {
			t.Errorf("%v: the pushback is %v, want -1", wait, got)
		}
	}
}

// The fields of a call whose handler fails are in the trailer, because a response with headers is never retried.
func TestFieldsLeaveRetriesOfTheHandlersErrors(t *testing.T) {
	tries := 0
	s := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if tries++; tries == 1 {
			return nil, status.Error(codes.Unavailable, "try again")
		}
		return &pb.SimpleResponse{}, nil
	}}
	policy := strings.NewReplacer("3600s", "0.001s", "RESOURCE_EXHAUSTED", "UNAVAILABLE").Replace(retries)
	client := serve(t, limits(t, limiter(t, newClock().store(), weir.PerHour(9)), grpclimit.Method, nil), s,
		grpc.WithDefaultServiceConfig(policy))
	r := call(t.Context(), client)
	if r.err != nil || tries != 2 {
		t.Errorf("%v after %d tries", r.err, tries)
	}
	want(t, "the header", limitFields(r.header), `ratelimit-policy: "api";q=9;w=3600; ratelimit: "api";r=7;t=800`)
}

func TestNeverHasNoWait(t *testing.T) {
	l := limiter(t, newClock().store(), weir.PerHour(9))
	client := serve(t, limits(t, l, grpclimit.Method, &grpclimit.Options{Fields: httplimit.NoFields, Cost: func(context.Context, *grpclimit.Call) int64 { return 10 }}), &service{})
	r := call(t.Context(), client)
	want(t, "the status", text(r.err), "ResourceExhausted; the cost of the call is more than the limit can ever grant: "+
		"ask for less; api: "+l.Limits()[0].String()+", of which 9 are left (api 9)")
	want(t, "the trailer", limitFields(r.trailer), "grpc-retry-pushback-ms: -1")
}

// failing is a store that does not respond.
type failing struct{ weir.Store }

func (failing) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, fmt.Errorf("%w: no route", weir.ErrUnavailable)
}

func TestOutcomes(t *testing.T) {
	down := failing{memstore.New()}
	missing := grpclimit.Metadata("X-Key")
	for _, tt := range []struct {
		name   string
		limits *grpclimit.Server
		want   string
	}{
		{"the store fails", limits(t, limiter(t, down, weir.PerHour(1)), grpclimit.Method, nil), "OK; "},
		{"the store fails, closed", limits(t, limiter(t, down, weir.PerHour(1)), grpclimit.Method, &grpclimit.Options{StoreErrors: httplimit.FailClosed}),
			"Unavailable; the rate limit could not be checked: try again later"},
		{"a lease cannot be taken, closed", limits(t, limiter(t, down, weir.Concurrency{Limit: 1, TTL: time.Minute}),
			grpclimit.Method, &grpclimit.Options{StoreErrors: httplimit.FailClosed}),
			"Unavailable; the rate limit could not be checked: try again later"},
		{"no key", limits(t, limiter(t, memstore.New(), weir.PerHour(1)), missing, nil), "OK; "},
		{"no key, skipped", limits(t, limiter(t, memstore.New(), weir.PerHour(1)), missing, &grpclimit.Options{Missing: httplimit.Skip}), "OK; "},
		{"no key, denied", limits(t, limiter(t, memstore.New(), weir.PerHour(1)), grpclimit.Joined(grpclimit.Method, missing), &grpclimit.Options{Missing: httplimit.Deny}), "PermissionDenied; this call lacks the key that its limit requires"},
		{"a cost below 0", limits(t, limiter(t, memstore.New(), weir.PerHour(1)), grpclimit.Method, &grpclimit.Options{Cost: func(context.Context, *grpclimit.Call) int64 { return -1 }}),
			"Internal; the rate limit could not be checked"},
		{"claims, the store fails", byCall(t, down, "k", nil), "OK; "},
		{"claims, the store fails, closed", byCall(t, down, "k", &grpclimit.Options{StoreErrors: httplimit.FailClosed}),
			"Unavailable; the rate limit could not be checked: try again later"},
		{"claims, no key, denied", byCall(t, memstore.New(), "", &grpclimit.Options{Missing: httplimit.Deny}),
			"PermissionDenied; this call lacks the key that its limit requires"},
		{"claims, none", byCall(t, down, "", &grpclimit.Options{Missing: httplimit.Skip, StoreErrors: httplimit.FailClosed}), "OK; "},
		{"rules, the store fails, allow", byRules(t, down, "rules: [{name: a, limit: 1/1h, on_store_error: allow}]", nil), "OK; "},
		{"rules, the store fails, local", byRules(t, down, "rules: [{name: a, limit: 1/1h, on_store_error: local}]", nil), "OK; "},
		{"rules, the store fails, deny", byRules(t, down, "rules: [{name: a, limit: 1/1h, on_store_error: deny}]", nil),
			"Unavailable; the rate limit could not be checked: try again later"},
		{"rules, a list denies", byRules(t, memstore.New(), "deny: {client.ip: [127.0.0.0/8]}\nrules: [{name: a, limit: 1/1h}]", nil),
			"PermissionDenied; this call is not allowed"},
		{"rules, the key is missing", byRules(t, memstore.New(),
			"rules: [{name: a, key: [header.x-key], on_missing: deny, limit: 1/1h}]", nil),
			"PermissionDenied; this call is not allowed"},
		{"rules, a bad cost", byRules(t, memstore.New(),
			"rules: [{name: a, limit: 9/1h, cost: {from: header.user-agent, default: 1, max: 9}}]", nil),
			"InvalidArgument; the "},
		{"rules, a cost below 0", byRules(t, memstore.New(), "rules: [{name: a, limit: 9/1h}]", &grpclimit.RuleOptions{Cost: func(context.Context, *grpclimit.Call) int64 { return -1 }}), "Internal; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := call(t.Context(), serve(t, tt.limits, &service{}))
			if got := text(r.err); got != tt.want && !(strings.HasSuffix(tt.want, " ") && strings.HasPrefix(got, tt.want)) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	proxies, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	user := func(ctx context.Context, c *grpclimit.Call) (string, error) {
		return c.Message.(*pb.SimpleRequest).GetPayload().String(), nil
	}
	for _, tt := range []struct {
		name   string
		key    grpclimit.Key
		second []string // metadata of the second call; the first has x-key: a, x-forwarded-for: 192.0.2.1
		want   codes.Code
	}{
		{"peer", grpclimit.PeerAddress, []string{"x-key", "b", "x-forwarded-for", "192.0.2.2"}, codes.ResourceExhausted},
		{"no proxies", grpclimit.ClientAddress(nil), []string{"x-forwarded-for", "192.0.2.2"}, codes.ResourceExhausted},
		{"behind a proxy", grpclimit.ClientAddress(proxies), []string{"x-forwarded-for", "192.0.2.2"}, codes.OK},
		{"the same client", grpclimit.ClientAddress(proxies), []string{"x-forwarded-for", "6.6.6.6, 192.0.2.1"},
			codes.ResourceExhausted},
		{"metadata", grpclimit.Metadata("X-Key"), []string{"x-key", "b"}, codes.OK},
		{"the same metadata", grpclimit.Metadata("X-Key"), []string{"x-key", "a"}, codes.ResourceExhausted},
		{"a long key", grpclimit.Metadata("X-Key"), []string{"x-key", strings.Repeat("b", 5000)}, codes.OK},
		{"method", grpclimit.Method, []string{"x-key", "b"}, codes.ResourceExhausted},
		{"joined", grpclimit.Joined(grpclimit.Method, grpclimit.Metadata("x-key")), []string{"x-key", "b"}, codes.OK},
		{"the message", user, []string{"x-key", "b"}, codes.ResourceExhausted}, // its empty key is anonymous
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := serve(t, limits(t, limiter(t, newClock().store(), weir.PerHour(1)), tt.key, nil), &service{})
			if r := call(t.Context(), client, "x-key", "a", "x-forwarded-for", "192.0.2.1"); r.err != nil {
				t.Fatal(r.err)
			}
			if r := call(t.Context(), client, tt.second...); status.Code(r.err) != tt.want {
				t.Errorf("the second call is %v, want %v", r.err, tt.want)
			}
		})
	}
}

func TestUnixSocketHasNoAddress(t *testing.T) {
	conn := dial(t, limits(t, limiter(t, newClock().store(), weir.PerHour(1)), grpclimit.PeerAddress, &grpclimit.Options{Missing: httplimit.Deny}), &service{}, "unix", filepath.Join(t.TempDir(), "s"))
	if r := call(t.Context(), pb.NewTestServiceClient(conn)); status.Code(r.err) != codes.PermissionDenied {
		t.Error(r.err)
	}
}

func TestRulesSeeACall(t *testing.T) {
	proxies, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	options := &grpclimit.RuleOptions{
		Clients: proxies,
		User: func(ctx context.Context, _ *grpclimit.Call) string {
			return metadata.ValueFromIncomingContext(ctx, "x-user")[0]
		},
		Descriptor: func(_ context.Context, c *grpclimit.Call, name string) string {
			if r, ok := c.Message.(*pb.SimpleRequest); ok && name == "size" {
				return fmt.Sprint(r.ResponseSize)
			}
			return ""
		},
	}
	for match, want := range map[string]bool{
		"{path: /grpc.testing.TestService/UnaryCall}":  true,
		"{path: /grpc.testing.TestService/*}":          true,
		"{path: /grpc.testing.TestService/EmptyCall}":  false,
		"{route: /grpc.testing.TestService/UnaryCall}": true,
		"{service: grpc.testing.TestService}":          true,
		"{service: grpc.health.v1.Health}":             false,
		"{method: POST}":                               true,
		"{method: GET}":                                false,
		"{host: 127.0.0.1}":                            true,
		"{client: 192.0.2.0/24}":                       true,
		"{client: 127.0.0.0/8}":                        false,
		"{header: {x-user: ann}}":                      true,
		"{header: {x-user: bob}}":                      false,
		"{user: ann}":                                  true,
		"{descriptor: {size: '7'}}":                    true,
		"{descriptor: {size: '8'}}":                    false,
	} {
		client := serve(t, byRules(t, newClock().store(), "rules: [{name: a, match: "+match+", limit: 1/1h}]", options), &service{})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "ann", "x-forwarded-for", "192.0.2.1")
		var last error
		for range 2 {
			_, last = client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: 7})
		}
		if refused := status.Code(last) == codes.ResourceExhausted; refused != want {
			t.Errorf("%s: the second call: %v, want a refusal: %v", match, last, want)
		}
	}
}

func TestRulesDefineTheFields(t *testing.T) {
	for fields, want := range map[string]string{
		"draft":     `ratelimit-policy: "a";q=1;w=3600; ratelimit: "a";r=0;t=3600; retry-after: 3600; grpc-retry-pushback-ms: -1`,
		"seconds":   `x-ratelimit-limit: 1; x-ratelimit-remaining: 0; x-ratelimit-reset: 3600; retry-after: 3600; grpc-retry-pushback-ms: -1`,
		"unix_time": `x-ratelimit-limit: 1; x-ratelimit-remaining: 0; x-ratelimit-reset: 1790003601; retry-after: 3600; grpc-retry-pushback-ms: -1`,
		"none":      `retry-after: 3600; grpc-retry-pushback-ms: -1`,
	} {
		client := serve(t, byRules(t, newClock().store(),
			"rules: [{name: a, label: free plan, limit: sliding_log 1/1h, response: {fields: "+fields+"}}]", nil), &service{})
		call(t.Context(), client)
		r := call(t.Context(), client)
		if got := limitFields(r.trailer); got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
		named := strings.Contains(text(r.err), "a: ")
		if named != (fields != "none") || !strings.Contains(text(r.err), "RATE_LIMIT_EXCEEDED weir map[label:free plan]") {
			t.Errorf("%s: %s", fields, text(r.err))
		}
	}
}

// TestRefusedCallHasTheIDThatObserversRead: the call's own, or one that is made and told.
func TestRefusedCallHasTheIDThatObserversRead(t *testing.T) {
	set, err := rules.Load("f", []byte("rules: [{name: a, limit: 1/1h}]"))
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Value
	g, err := gate.New(newClock().store(), set, gate.WithObserver(func(v *gate.Verdict) { seen.Store(strings.Clone(v.RequestID())) }))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := grpclimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, limits, &service{})
	if r := call(t.Context(), client); r.err != nil || r.trailer.Get("x-request-id") != nil || seen.Load() != "" {
		t.Errorf("a call that passes: %v %v %q", r.err, r.trailer, seen.Load())
	}
	for given, length := range map[string]int{"": 32, "call-7": 6} {
		ctx := t.Context()
		if given != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-request-id", given)
		}
		r := call(ctx, client)
		if id := r.trailer.Get("x-request-id"); len(id) != 1 || len(id[0]) != length || id[0] != seen.Load() {
			t.Errorf("the client is told %q, observers %q", id, seen.Load())
		}
	}
}

func TestRulesDefineTheMessage(t *testing.T) {
	client := serve(t, byRules(t, newClock().store(),
		"rules: [{name: a, limit: 1/1h, message: {en: Later please, zh: 请稍后}}]", nil), &service{})
	call(t.Context(), client)
	for language, want := range map[string]string{"en": "Later please", "zh-CN": "请稍后"} {
		if r := call(t.Context(), client, "accept-language", language); status.Convert(r.err).Message() != want {
			t.Errorf("%s: %v", language, r.err)
		}
	}
}

// A key with several values is refused: a client that could choose the value that is counted would have any number.
func TestDoubtfulMetadata(t *testing.T) {
	client := serve(t, byRules(t, newClock().store(), "rules: [{name: a, key: [header.x-key], limit: 9/1h}]", nil), &service{})
	if r := call(t.Context(), client, "x-key", "a", "x-key", "b"); status.Code(r.err) != codes.InvalidArgument {
		t.Error(r.err)
	}
	if r := call(t.Context(), client, "x-key", "a", "x-key", "a"); r.err != nil {
		t.Error(r.err)
	}
}

func TestExempt(t *testing.T) {
	for _, exempt := range []string{"/grpc.health.v1.Health/", "/grpc.health.v1.Health/Check"} {
		conn := dial(t, limits(t, limiter(t, newClock().store(), weir.PerHour(1)), grpclimit.PeerAddress, &grpclimit.Options{Exempt: []string{exempt}}), &service{}, "tcp", "127.0.0.1:0")
		for range 3 {
			if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
		}
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Error(err)
		}
		want := codes.OK
		if exempt == "/grpc.health.v1.Health/Check" { // Watch took the unit
			want = codes.ResourceExhausted
		}
		if r := call(t.Context(), pb.NewTestServiceClient(conn)); status.Code(r.err) != want {
			t.Errorf("%s: %v, want %v", exempt, r.err, want)
		}
	}
}

func TestMistakesInOptions(t *testing.T) {
	l := limiter(t, memstore.New(), weir.PerHour(1))
	made := func(_ *grpclimit.Server, err error) error { return err }
	inner := limits(t, l, grpclimit.Method, &grpclimit.Options{Exempt: []string{"/a.B/"}})
	for want, err := range map[string]error{
		"the limiter or the key is nil": made(grpclimit.New(nil, grpclimit.Method, nil)),
		"the limiter or the key":        made(grpclimit.New(l, nil, nil)),
		"the gate is nil":               made(grpclimit.ByRules(nil, nil)),
		`Exempt has "grpc.health"`:      made(grpclimit.New(l, grpclimit.Method, &grpclimit.Options{Exempt: []string{"grpc.health"}})),
		`Exempt has "/"`:                made(grpclimit.New(l, grpclimit.Method, &grpclimit.Options{Exempt: []string{"/"}})),
		"which are for calls":           made(grpclimit.New(l, grpclimit.Method, &grpclimit.Options{Messages: inner})),
		"unknown value":                 made(grpclimit.New(l, grpclimit.Method, &grpclimit.Options{StoreErrors: 9})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The cost is corrected after the call: the estimate is 5 of 10.
func TestCostAfter(t *testing.T) {
	store := newClock().store()
	l := limiter(t, store, weir.SlidingLog{Limit: 10, Window: time.Hour})
	after := func(_ *grpclimit.Call, last any, err error) int64 {
		switch last := last.(type) {
		case *pb.SimpleResponse:
			return int64(len(last.Username))
		case *pb.StreamingOutputCallResponse:
			return int64(len(last.Payload.Body))
		}
		if err != nil {
			return 0
		}
		return -1 // leaves the estimate
	}
	var events []string
	limited := limits(t, l, func(context.Context, *grpclimit.Call) (string, error) { return "k", nil }, &grpclimit.Options{Cost: func(context.Context, *grpclimit.Call) int64 { return 5 }, CostAfter: after, Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) {
		if e.Err != nil {
			events = append(events, fmt.Sprint(e.Outcome, e.Err))
		}
	}})
	s := &service{}
	client := serve(t, limited, s)
	left := func() int64 {
		a, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return a.Remaining
	}
	s.unary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return &pb.SimpleResponse{Username: "ab"}, nil
	}
	call(t.Context(), client)
	want(t, "left after a reply of 2", fmt.Sprint(left()), "8")
	s.unary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return nil, errors.New("no") }
	call(t.Context(), client)
	want(t, "left after an error", fmt.Sprint(left()), "8")
	s.output = func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
		o.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("abcd")}})
		return o.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("abc")}})
	}
	receiveAll(t, client)
	want(t, "left after a stream whose last message is 3", fmt.Sprint(left()), "5")
	l.Reset(t.Context(), "k")
	byClaims, err := grpclimit.ByCall(store, func(context.Context, *grpclimit.Call) ([]weir.Claim, error) {
		return []weir.Claim{{Key: "k", Limit: l.Limits()[0], Cost: 5}}, nil
	}, &grpclimit.Options{CostAfter: after})
	if err != nil {
		t.Fatal(err)
	}
	receiveAll(t, serve(t, byClaims, s))
	want(t, "left after it, by claims", fmt.Sprint(left()), "7")
	l.AllowN(t.Context(), "k", 2)
	s.output = func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error { return nil }
	receiveAll(t, client)
	want(t, "left after a stream without messages", fmt.Sprint(left()), "0")
	if len(events) != 1 || !strings.Contains(events[0], "cost after the call is -1") {
		t.Error(events)
	}
}

func receiveAll(t *testing.T, client pb.TestServiceClient) (messages int, err error) {
	t.Helper()
	stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return messages, err
		}
		messages++
	}
}

// Rules settle by metadata of the response, set in any of the ways that gRPC has, or by the size of the messages.
func TestRulesSettle(t *testing.T) {
	set := metadata.Pairs("x-used", "3")
	body := &pb.SimpleResponse{Username: "12345678"} // 10 bytes
	piece := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("1234")}}
	unary := func(set func(context.Context, metadata.MD) error) *service {
		return &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return body, set(ctx, metadata.Pairs("x-used", "3"))
		}}
	}
	stream := func(set func(pb.TestService_StreamingOutputCallServer)) *service {
		return &service{output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
			set(o)
			o.Send(piece)
			return o.Send(piece)
		}}
	}
	setter := func(set func(context.Context, metadata.MD) error) func(context.Context, metadata.MD) error {
		return set
	}
	for _, tt := range []struct {
		name, settle string
		s            *service
		left         string // of 100, after an estimate of 50
	}{
		{"a header", "header.x-used", unary(func(ctx context.Context, m metadata.MD) error { return grpc.SetHeader(ctx, m) }), "97"},
		{"a sent header", "header.x-used", unary(func(ctx context.Context, m metadata.MD) error { return grpc.SendHeader(ctx, m) }), "97"},
		{"a trailer", "header.x-used", unary(func(ctx context.Context, m metadata.MD) error { return grpc.SetTrailer(ctx, m) }), "97"},
		{"none", "header.x-used", &service{}, "50"},
		{"not a number", "header.x-used", unary(setter(func(ctx context.Context, _ metadata.MD) error {
			return grpc.SetTrailer(ctx, metadata.Pairs("x-used", "many"))
		})), "50"},
		{"too large", "header.x-used", unary(setter(func(ctx context.Context, _ metadata.MD) error {
			return grpc.SetTrailer(ctx, metadata.Pairs("x-used", "99999999999999999999"))
		})), "50"},
		{"bytes", "bytes", unary(func(context.Context, metadata.MD) error { return nil }), "90"},
		{"a stream's trailer", "header.x-used", stream(func(o pb.TestService_StreamingOutputCallServer) { o.SetTrailer(set) }), "97"},
		{"a stream's header", "header.x-used", stream(func(o pb.TestService_StreamingOutputCallServer) { o.SetHeader(set) }), "97"},
		{"a stream's sent header", "header.x-used", stream(func(o pb.TestService_StreamingOutputCallServer) { o.SendHeader(set) }), "97"},
		{"a stream's trailer by context", "header.x-used", stream(func(o pb.TestService_StreamingOutputCallServer) {
			grpc.SetTrailer(o.Context(), set)
		}), "97"},
		{"a stream's bytes", "bytes", stream(func(pb.TestService_StreamingOutputCallServer) {}), "84"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var failed []error
			limited := byRules(t, newClock().store(), "rules: [{name: a, limit: sliding_log 100/1h, "+
				"cost: {default: 50, settle: "+tt.settle+"}}]", &grpclimit.RuleOptions{Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) {
				if e.Outcome == httplimit.Unsettled {
					failed = append(failed, e.Err)
				}
			}})
			client := serve(t, limited, tt.s)
			if tt.s.output != nil {
				if n, err := receiveAll(t, client); n != 2 || err != io.EOF {
					t.Fatal(n, err)
				}
			} else if r := call(t.Context(), client); r.err != nil {
				t.Fatal(r.err)
			}
			unsettled := failed // before the call below adds one
			want(t, "what is left", peek(t, limited), tt.left)
			if (len(unsettled) > 0) != (tt.left == "50") {
				t.Errorf("unsettled: %v", unsettled)
			}
		})
	}
}

// peek is what is left for one more call that costs nothing.
func peek(t *testing.T, limited *grpclimit.Server) (left string) {
	t.Helper()
	var policy metadata.MD
	_, err := limited.Unary(grpc.NewContextWithServerTransportStream(t.Context(), &transport{set: &policy}), nil,
		&grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
	if err != nil {
		return err.Error()
	}
	_, left, _ = strings.Cut(policy.Get("ratelimit")[0], "r=")
	left, _, _ = strings.Cut(left, ";")
	var n int
	fmt.Sscan(left, &n)
	return fmt.Sprint(n + 50)
}

// A transport records what an interceptor sets.
type transport struct {
	grpc.ServerTransportStream
	set *metadata.MD
}

func (s *transport) SetHeader(fields metadata.MD) error {
	*s.set = metadata.Join(*s.set, fields)
	return nil
}

func (s *transport) SetTrailer(fields metadata.MD) error { return s.SetHeader(fields) }
