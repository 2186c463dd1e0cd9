package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/httplimit"
)

// adaptively limits calls to a number at once, of which the second class leaves half.
func adaptively(t *testing.T, limit int, options *grpclimit.Options) (*adaptive.Limiter, *grpclimit.Server) {
	t.Helper()
	limiter, err := adaptive.New(adaptive.Config{Min: limit, Max: limit,
		Classes: []adaptive.Class{{Name: "critical"}, {Name: "batch", Reserve: 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := grpclimit.Adaptive(limiter, byCriticality, options)
	if err != nil {
		t.Fatal(err)
	}
	return limiter, s
}

// byCriticality reads the class from metadata.
func byCriticality(ctx context.Context, _ *grpclimit.Call) int {
	if values := metadata.ValueFromIncomingContext(ctx, "x-criticality"); len(values) == 1 && values[0] == "batch" {
		return 1
	}
	return 0
}

// until polls until a state of the limiter holds.
func until(t *testing.T, l *adaptive.Limiter, what string, holds func(adaptive.State) bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(l.State()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not hold: %+v", what, l.State())
		}
	}
}

func TestAdaptiveRefusesByClass(t *testing.T) {
	var events [2]atomic.Int64 // by outcome
	limiter, limits := adaptively(t, 2, &grpclimit.Options{Exempt: []string{"/grpc.health.v1.Health/"},
		Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) { events[e.Outcome].Add(1) }})
	leave := make(chan bool)
	s := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		<-leave
		return &pb.SimpleResponse{}, nil
	}}
	conn := dial(t, limits, s, "tcp", "127.0.0.1:0")
	client := pb.NewTestServiceClient(conn)
	answers := make(chan error, 2)
	go func() { answers <- call(t.Context(), client, "x-criticality", "batch").err }()
	until(t, limiter, "one in flight", func(s adaptive.State) bool { return s.InFlight == 1 })
	refused := call(t.Context(), client, "x-criticality", "batch")
	want(t, "the refusal", text(refused.err), "Unavailable; too many calls are in progress: retry after 1s; retry 1s")
	want(t, "its trailer", limitFields(refused.trailer), "retry-after: 1; grpc-retry-pushback-ms: 1000")
	if len(refused.header) > 0 {
		t.Errorf("header is %v, which ends the retries of clients", refused.header)
	}
	go func() { answers <- call(t.Context(), client).err }()
	until(t, limiter, "two in flight", func(s adaptive.State) bool { return s.InFlight == 2 })
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("the health check of a full server: %v", err)
	}
	close(leave)
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	until(t, limiter, "none in flight", func(s adaptive.State) bool { return s.InFlight == 0 })
	if passed, refused := events[httplimit.Passed].Load(), events[httplimit.Refused].Load(); passed != 2 || refused != 1 {
		t.Errorf("observed are %d calls that passed and %d that were refused, want 2 and 1", passed, refused)
	}
}

// A client with a retryPolicy for UNAVAILABLE waits for the pushback, and is answered then.
func TestAdaptiveRefusalsAreRetried(t *testing.T) {
	limiter, limits := adaptively(t, 1, nil)
	leave := make(chan bool)
	var calls atomic.Int64
	s := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if calls.Add(1) == 1 {
			<-leave
		}
		return &pb.SimpleResponse{}, nil
	}}
	client := serve(t, limits, s, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy":
		{"maxAttempts": 5, "initialBackoff": "3600s", "maxBackoff": "3600s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- call(t.Context(), client).err }()
	until(t, limiter, "one in flight", func(s adaptive.State) bool { return s.InFlight == 1 })
	go func() { second <- call(t.Context(), client).err }()
	until(t, limiter, "one refused", func(s adaptive.State) bool { return s.Classes[0].Refused == 1 })
	close(leave)
	if a, b := <-first, <-second; a != nil || b != nil {
		t.Errorf("answered %v and %v, want both OK", a, b)
	}
}

func TestAdaptiveGivesPlacesBack(t *testing.T) {
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	s := &service{
		unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			if r.FillUsername {
				panic("a handler's fault")
			}
			return nil, waits(ctx)
		},
		output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
			o.Send(piece)
			return waits(o.Context())
		},
		input: func(i pb.TestService_StreamingInputCallServer) error { panic("a handler's fault") },
		duplex: func(d pb.TestService_FullDuplexCallServer) error {
			_, err := d.Recv()
			return err
		},
	}
	for name, ask := range map[string]func(context.Context, pb.TestServiceClient){
		"panic": func(ctx context.Context, c pb.TestServiceClient) {
			c.UnaryCall(ctx, &pb.SimpleRequest{FillUsername: true})
		},
		"panic of a stream": func(ctx context.Context, c pb.TestServiceClient) {
			opens["client"](ctx, c)
		},
		"stream that stays open": func(ctx context.Context, c pb.TestServiceClient) {
			opens["server"](ctx, c)
		},
		"client that sends nothing": func(ctx context.Context, c pb.TestServiceClient) {
			c.FullDuplexCall(ctx)
		},
		"client that left": func(ctx context.Context, c pb.TestServiceClient) {
			c.UnaryCall(ctx, &pb.SimpleRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, limits := adaptively(t, 1, nil)
			recovered := func(ctx context.Context, r any, i *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = status.Error(codes.Internal, fmt.Sprint(p))
					}
				}()
				return h(ctx, r)
			}
			conn := listen(t, s, grpc.ChainUnaryInterceptor(recovered, limits.Unary),
				grpc.ChainStreamInterceptor(recovers, limits.Stream))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go ask(ctx, pb.NewTestServiceClient(conn))
			until(t, limiter, "one was admitted", func(s adaptive.State) bool { return s.Classes[0].Admitted == 1 })
			if name == "client that left" {
				cancel()
			}
			until(t, limiter, "the place is free", func(s adaptive.State) bool { return s.InFlight == 0 })
			if s := limiter.State(); s.Overloaded > 0 {
				t.Errorf("state is %+v: it is no overload", s)
			}
		})
	}
}

// Windows of the start have 40 calls, after two for each of the first limit.
func TestAdaptiveOutcomes(t *testing.T) {
	for code, signal := range map[codes.Code]string{codes.OK: "latency", codes.NotFound: "latency",
		codes.FailedPrecondition: "latency", codes.Unavailable: "overload", codes.DeadlineExceeded: "overload",
		codes.ResourceExhausted: "", codes.Internal: "", codes.Unknown: "", codes.Canceled: ""} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 9})
			if err != nil {
				t.Fatal(err)
			}
			limits, err := grpclimit.Adaptive(limiter, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 60 {
				limits.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) {
					time.Sleep(time.Millisecond)
					return nil, status.Error(code, "")
				})
			}
			s := limiter.State()
			if (s.Latency > 0) != (signal == "latency") || (s.Overloaded > 0) != (signal == "overload") || s.InFlight != 0 {
				t.Errorf("after %v the state is %+v, want the signal %q", code, s, signal)
			}
		})
	}
}

// Neither panics nor calls that their clients have ended say something about the load.
func TestAdaptiveIgnoresPanicsAndDeadlinesOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 9})
		if err != nil {
			t.Fatal(err)
		}
		limits, _ := grpclimit.Adaptive(limiter, nil, nil)
		info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
		for range 60 {
			func() {
				defer func() { recover() }()
				limits.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) {
					time.Sleep(time.Millisecond)
					panic("a handler's fault")
				})
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			limits.Unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			cancel()
		}
		if s := limiter.State(); s.Latency > 0 || s.Overloaded > 0 || s.InFlight > 0 {
			t.Errorf("state is %+v, want no signal", s)
		}
	})
}

// A slow is a stream whose client sends a message a second.
type slow struct {
	grpc.ServerStream
	ctx context.Context
}

func (s slow) Context() context.Context { return s.ctx }

func (s slow) RecvMsg(any) error {
	time.Sleep(time.Second)
	return nil
}

func (s slow) SendMsg(any) error {
	time.Sleep(time.Second)
	return nil
}

// The latency of a stream is the handler's, to its first message, without the time in which the client sends or reads.
func TestAdaptiveLatencyOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 9})
		if err != nil {
			t.Fatal(err)
		}
		limits, _ := grpclimit.Adaptive(limiter, nil, nil)
		for range 60 {
			err := limits.Stream(nil, slow{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a.B/C"},
				func(_ any, s grpc.ServerStream) error {
					s.RecvMsg(nil)
					time.Sleep(10 * time.Millisecond)
					s.RecvMsg(nil)
					s.SendMsg(nil)
					s.RecvMsg(nil)
					time.Sleep(time.Hour)
					return status.Error(codes.Unavailable, "much later")
				})
			if status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
		}
		if s := limiter.State(); s.Latency != 10*time.Millisecond || s.InFlight != 0 || s.Overloaded > 0 {
			t.Errorf("state is %+v, want a latency of 10ms", s)
		}
	})
}

// A mute is a stream with a client that sends nothing until it leaves.
type mute struct {
	grpc.ServerStream
	ctx context.Context
}

func (m mute) Context() context.Context { return m.ctx }

func (m mute) RecvMsg(any) error {
	<-m.ctx.Done()
	return m.ctx.Err()
}

func (m mute) SendMsg(any) error { return nil }

// A stream that answers while one of its goroutines waits for a message gives its place back once: before the wait
// frees the place, and after.
func TestAdaptiveGivesThePlaceOfAStreamThatReceivesBackOnce(t *testing.T) {
	for _, answersAfter := range []time.Duration{time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			limiter, limits := adaptively(t, 1, nil)
			ctx, leave := context.WithCancel(t.Context())
			limits.Stream(nil, mute{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a.B/C"},
				func(_ any, s grpc.ServerStream) error {
					received := make(chan error)
					go func() { received <- s.RecvMsg(nil) }()
					time.Sleep(answersAfter)
					s.SendMsg(nil)
					time.Sleep(time.Second)
					if n := limiter.State().InFlight; n != 0 {
						t.Errorf("%d in flight, want none while the stream is open", n)
					}
					leave()
					return <-received
				})
			if n := limiter.State().InFlight; n != 0 {
				t.Errorf("%d in flight, want none after the stream", n)
			}
		})
	}
}

func TestAdaptiveRefusesOptionsThatDoNotApply(t *testing.T) {
	limiter, _ := adaptively(t, 1, nil)
	for _, o := range []*grpclimit.Options{{Cost: func(context.Context, *grpclimit.Call) int64 { return 1 }},
		{Fields: httplimit.NoFields}, {Exempt: []string{"health"}}} {
		if _, err := grpclimit.Adaptive(limiter, nil, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := grpclimit.Adaptive(nil, nil, nil); err == nil {
		t.Error("a nil limiter is accepted")
	}
}

func ExampleAdaptive() {
	limiter, err := adaptive.New(adaptive.Config{Min: 20, Max: 2000,
		Classes: []adaptive.Class{{Name: "critical"}, {Name: "default", Reserve: 0.2}},
		Queue:   adaptive.Queue{For: 50 * time.Millisecond, Most: 100}})
	if err != nil {
		panic(err)
	}
	limits, err := grpclimit.Adaptive(limiter, func(_ context.Context, c *grpclimit.Call) int {
		if c.Method == "/shop.Checkout/Pay" {
			return 0
		}
		return 1
	}, &grpclimit.Options{Exempt: []string{"/grpc.health.v1.Health/"}})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
	pb.RegisterTestServiceServer(server, &service{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	answer, err := pb.NewTestServiceClient(conn).UnaryCall(context.Background(), &pb.SimpleRequest{})
	fmt.Println(answer.GetUsername(), err, "of at most", limiter.State().Limit, "at once")
	// Output: hello <nil> of at most 20 at once
}
