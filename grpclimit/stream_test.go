package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
)

var piece = &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("x")}}

// echo answers each message, until the client has sent all.
func echo(d pb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := d.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := d.Send(piece); err != nil {
			return err
		}
	}
}

// opens makes a stream of each kind, and reads it to its end.
var opens = map[string]func(context.Context, pb.TestServiceClient) (grpc.ClientStream, error){
	"server": func(ctx context.Context, c pb.TestServiceClient) (grpc.ClientStream, error) {
		s, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return s, err
	},
	"client": func(ctx context.Context, c pb.TestServiceClient) (grpc.ClientStream, error) {
		s, err := c.StreamingInputCall(ctx)
		if err == nil {
			_, err = s.CloseAndRecv()
		}
		return s, err
	},
	"bidirectional": func(ctx context.Context, c pb.TestServiceClient) (grpc.ClientStream, error) {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return nil, err
		}
		s.Send(&pb.StreamingOutputCallRequest{})
		s.CloseSend()
		_, err = s.Recv()
		return s, err
	},
}

func TestStreamsOfAllKindsAreCounted(t *testing.T) {
	s := &service{
		output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
			return o.Send(piece)
		},
		input: func(i pb.TestService_StreamingInputCallServer) error {
			return i.SendAndClose(&pb.StreamingInputCallResponse{})
		},
		duplex: echo,
	}
	for kind, open := range opens {
		t.Run(kind, func(t *testing.T) {
			client := serve(t, limits(t, limiter(t, newClock().store(), weir.GCRA(1, 1, time.Hour)), grpclimit.PeerAddress, nil), s)
			stream, err := open(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			header, err := stream.Header()
			if err != nil {
				t.Fatal(err)
			}
			want(t, "the header", limitFields(header), `ratelimit-policy: "api";q=1;w=3600; ratelimit: "api";r=0;t=3600`)
			stream, err = open(t.Context(), client)
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the second stream: %v", err)
			}
			want(t, "the trailer", limitFields(stream.Trailer()), `ratelimit-policy: "api";q=1;w=3600; `+
				`ratelimit: "api";r=0;t=3600; retry-after: 3600; grpc-retry-pushback-ms: -1`)
		})
	}
}

// A stream that fails without a message has its fields in the trailer, so that the client may retry it.
func TestFieldsOfAStreamWithoutMessages(t *testing.T) {
	s := &service{output: func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error {
		return status.Error(codes.Unavailable, "not now")
	}}
	client := serve(t, limits(t, limiter(t, newClock().store(), weir.GCRA(1, 1, time.Hour)), grpclimit.Method, nil), s)
	stream, err := opens["server"](t.Context(), client)
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if header, _ := stream.Header(); limitFields(header) != "" {
		t.Errorf("the header is %v", header)
	}
	want(t, "the trailer", limitFields(stream.Trailer()), `ratelimit-policy: "api";q=1;w=3600; ratelimit: "api";r=0;t=3600`)
}

// A stream holds its unit until the handler returns: by itself, by a panic, or because the client left.
func TestStreamHoldsItsUnit(t *testing.T) {
	for name, end := range map[string]func(cancel func(), finish chan<- string){
		"returns": func(_ func(), finish chan<- string) { finish <- "" },
		"panics":  func(_ func(), finish chan<- string) { finish <- "panic" },
		"cancel":  func(cancel func(), _ chan<- string) { cancel() },
	} {
		for _, byRule := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				finish, ended := make(chan string), make(chan struct{}, 1)
				s := &service{output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
					o.Send(piece)
					select {
					case text := <-finish:
						if text != "" {
							panic(text)
						}
					case <-o.Context().Done():
					}
					return nil
				}}
				store := memstore.New()
				limited := limits(t, limiter(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour}), grpclimit.Method, nil)
				if byRule {
					limited = byRules(t, store, "rules: [{name: a, limit: concurrency 1 ttl 1h}]", nil)
				}
				watched := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
					defer func() { ended <- struct{}{} }()
					return limited.Stream(srv, stream, info, handler)
				}
				client := pb.NewTestServiceClient(listen(t, s, grpc.ChainStreamInterceptor(recovers, watched)))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if _, err := opens["server"](ctx, client); err != nil {
					t.Fatal(err)
				}
				if _, err := opens["server"](t.Context(), client); status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a second stream: %v", err)
				}
				<-ended
				end(cancel, finish)
				<-ended
				again, stop := context.WithCancel(t.Context())
				defer stop()
				if _, err := opens["server"](again, client); err != nil {
					t.Errorf("after the end: %v", err)
				}
			})
		}
	}
}

// A unary call holds its unit likewise.
func TestUnaryPanicReleases(t *testing.T) {
	l := limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	limited := limits(t, l, func(context.Context, *grpclimit.Call) (string, error) { return "k", nil }, nil)
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	func() {
		defer func() { recover() }()
		limited.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) {
			if a, _ := l.Peek(t.Context(), "k"); a.Remaining != 0 {
				t.Error("the unit is not held")
			}
			panic("handler")
		})
	}()
	if a, _ := l.Peek(t.Context(), "k"); a.Remaining != 1 {
		t.Error("the unit was not released")
	}
}

// An observer that panics keeps no place and no lease.
func TestObserversThatPanicLeakNothing(t *testing.T) {
	panics := &grpclimit.Options{Observe: func(context.Context, *grpclimit.Call, httplimit.Event) { panic("an observer") }}
	places, byLatency := adaptively(t, 1, panics)
	atOnce := limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	one := func(context.Context, *grpclimit.Call) (string, error) { return "k", nil }
	for _, s := range []*grpclimit.Server{byLatency, limits(t, atOnce, one, panics)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			s.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, nil)
		}()
	}
	if s := places.State(); s.Classes[0].Admitted != 1 || s.InFlight != 0 {
		t.Errorf("state is %+v, want none of one in flight", s)
	}
	if a, _ := atOnce.Peek(t.Context(), "k"); a.Remaining != 1 {
		t.Error("the lease was not released")
	}
}

// A lease is renewed while the handler works, for longer than its time-to-live.
func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limited := range []*grpclimit.Server{
			limits(t, limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Second}), grpclimit.Method, nil),
			byRules(t, memstore.New(), "rules: [{name: a, limit: concurrency 1 ttl 1s}]", nil),
		} {
			info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
			_, err := limited.Unary(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
				for range 10 {
					time.Sleep(time.Second)
					_, err := limited.Unary(ctx, nil, info, func(context.Context, any) (any, error) { return nil, nil })
					if status.Code(err) != codes.ResourceExhausted {
						t.Errorf("another call: %v", err)
					}
				}
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A call that a concurrency limit refuses is told the usual time for which its units are held.
func TestRefusedCallsAreToldTheUsualTimeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limited := range []*grpclimit.Server{
			limits(t, limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Minute}), grpclimit.Method, nil),
			byRules(t, memstore.New(), "rules: [{name: a, limit: concurrency 1 ttl 1m}]", nil),
		} {
			info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
			for _, want := range []time.Duration{6 * time.Second, 3 * time.Second} {
				time.Sleep(time.Minute)
				_, err := limited.Unary(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
					time.Sleep(3 * time.Second)
					return limited.Unary(ctx, nil, info, func(context.Context, any) (any, error) { return nil, nil })
				})
				info, ok := status.Convert(err).Details()[0].(*errdetails.RetryInfo)
				if !ok || info.RetryDelay.AsDuration() != want || !strings.Contains(err.Error(), want.String()) {
					t.Errorf("%v, %v; want %v", err, info, want)
				}
			}
		}
	})
}

// A lease that is lost is reported: the store has failed since the grant.
func TestLostLeaseIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memstore.New()}
		var mu sync.Mutex
		var outcomes []httplimit.Outcome
		limited := limits(t, limiter(t, store, weir.Concurrency{Limit: 1, TTL: time.Second}), grpclimit.Method, &grpclimit.Options{Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) {
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, e.Outcome)
		}})
		limited.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) {
			store.down.Store(true)
			time.Sleep(2 * time.Second)
			return nil, nil
		})
		if n := len(outcomes); n < 3 || outcomes[0] != httplimit.Passed || outcomes[1] != httplimit.Unrenewed ||
			outcomes[n-1] != httplimit.Unreleased {
			t.Errorf("outcomes: %v", outcomes)
		}
	})
}

type flaky struct {
	weir.Store
	down atomic.Bool
}

func (f *flaky) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if f.down.Load() {
		return 0, weir.ErrUnavailable
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f *flaky) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if f.down.Load() {
		return weir.ErrUnavailable
	}
	return f.Store.Refund(ctx, claims, at, d)
}

// Borrowed units are slept before the handler, and a deadline ends the sleep.
func TestDelayBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := limits(t, limiter(t, memstore.New(), weir.LeakyQueue(1, 10*time.Second, 9)), grpclimit.Method, nil)
		info, start := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, time.Now()
		handler := func(context.Context, any) (any, error) { return time.Since(start), nil }
		for _, want := range []time.Duration{0, 10 * time.Second} {
			if at, err := limited.Unary(t.Context(), nil, info, handler); err != nil || at != want {
				t.Errorf("at %v, %v; want %v", at, err, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		at, err := limited.Unary(ctx, nil, info, handler)
		if status.Code(err) != codes.DeadlineExceeded || at != nil || time.Since(start) != 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestMessagesAreLimited(t *testing.T) {
	for _, byRule := range []bool{false, true} {
		clock := newClock()
		size := func(_ context.Context, c *grpclimit.Call) int64 {
			return int64(len(c.Message.(*pb.StreamingOutputCallRequest).GetPayload().GetBody()))
		}
		messages := limits(t, limiter(t, clock.store(), weir.GCRA(10, 1, time.Second)), grpclimit.Method, &grpclimit.Options{Cost: size})
		if byRule {
			messages = byRules(t, clock.store(), "rules: [{name: api, limit: 1/1s burst 10}]", &grpclimit.RuleOptions{Cost: size})
		}
		limited := limits(t, limiter(t, clock.store(), weir.PerHour(9)), grpclimit.Method, &grpclimit.Options{Messages: messages})
		s := &service{duplex: func(d pb.TestService_FullDuplexCallServer) error {
			echo(d)
			_, err := d.Recv() // nothing more is received
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("after the refusal: %v", err)
			}
			return nil // the refusal is not hidden by the handler
		}}
		client := serve(t, limited, s)
		stream, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		message := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 4)}}
		for range 2 {
			stream.Send(message)
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		stream.Send(message)
		_, err = stream.Recv()
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the third message of 4 under a limit of 10: %v", err)
		}
		if got := stream.Trailer().Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "2000" {
			t.Errorf("the pushback is %v", got)
		}
	}
}

// The request of a server stream is a message too: refused, the handler never sees it.
func TestRequestOfAServerStreamIsAMessage(t *testing.T) {
	messages := limits(t, limiter(t, newClock().store(), weir.GCRA(1, 1, time.Hour)), grpclimit.Method, nil)
	s := &service{output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
		return o.Send(piece)
	}}
	client := serve(t, limits(t, limiter(t, newClock().store(), weir.PerHour(9)), grpclimit.Method, &grpclimit.Options{Messages: messages}), s)
	if n, err := receiveAll(t, client); n != 1 || err != io.EOF {
		t.Error(n, err)
	}
	if n, err := receiveAll(t, client); n != 0 || status.Code(err) != codes.ResourceExhausted {
		t.Error(n, err)
	}
}

// A fakeStream receives messages without a socket.
type fakeStream struct {
	grpc.ServerStream
	ctx     context.Context
	trailer metadata.MD
	left    int
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) SetTrailer(m metadata.MD) { s.trailer = metadata.Join(s.trailer, m) }

func (s *fakeStream) SendMsg(any) error { return nil }

func (s *fakeStream) SetHeader(metadata.MD) error { return nil }

func (s *fakeStream) RecvMsg(any) error {
	if s.left--; s.left < 0 {
		return io.EOF
	}
	return nil
}

// A leaky queue delays messages; a concurrency limit holds each until the next is received, or the stream ends.
func TestMessagesAreDelayedAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memstore.New(), weir.LeakyQueue(1, time.Second, 9), weir.Concurrency{Limit: 1, TTL: time.Minute})
		key := func(context.Context, *grpclimit.Call) (string, error) { return "k", nil }
		limited := limits(t, limiter(t, memstore.New(), weir.PerHour(9)), key, &grpclimit.Options{Messages: limits(t, l, key, nil)})
		start := time.Now()
		free := func() bool { a, err := l.PeekN(t.Context(), "k", 1); return err == nil && a.Allowed }
		err := limited.Stream(nil, &fakeStream{ctx: t.Context(), left: 3}, &grpc.StreamServerInfo{FullMethod: "/a.B/C"},
			func(_ any, s grpc.ServerStream) error {
				for i := range 3 {
					if err := s.RecvMsg(nil); err != nil || time.Since(start) != time.Duration(i)*time.Second {
						t.Errorf("message %d: %v after %v", i, err, time.Since(start))
					}
					if free() {
						t.Errorf("message %d holds nothing", i)
					}
				}
				return nil
			})
		if err != nil || !free() {
			t.Errorf("after the stream: %v, free: %v", err, free())
		}
	})
}

// The cost of a message stays as charged, also under a rule that settles.
func TestMessagesDoNotSettle(t *testing.T) {
	messages := byRules(t, memstore.New(), "rules: [{name: a, limit: 9/1h, cost: {default: 2, settle: bytes}}]", &grpclimit.RuleOptions{Observe: func(_ context.Context, _ *grpclimit.Call, e httplimit.Event) {
		if e.Outcome == httplimit.Unsettled {
			t.Error(e.Err)
		}
	}})
	limited := limits(t, limiter(t, memstore.New(), weir.PerHour(9)), grpclimit.Method, &grpclimit.Options{Messages: messages})
	err := limited.Stream(nil, &fakeStream{ctx: t.Context(), left: 4}, &grpc.StreamServerInfo{FullMethod: "/a.B/C"},
		func(_ any, s grpc.ServerStream) error {
			for s.RecvMsg(nil) == nil {
				s.SendMsg(&pb.Empty{})
			}
			return nil
		})
	if err != nil {
		t.Error(err)
	}
	var set metadata.MD
	messages.Unary(grpc.NewContextWithServerTransportStream(t.Context(), &transport{set: &set}), nil,
		&grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return &pb.Empty{}, nil })
	if got := limitFields(set); !strings.Contains(got, "retry-after") {
		t.Errorf("after 4 messages of 2 under a limit of 9: %s", got)
	}
}

// A goroutine of a handler that receives after the handler has returned leaves nothing held.
func TestMessageAfterTheHandlerIsReleased(t *testing.T) {
	l := limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	key := func(context.Context, *grpclimit.Call) (string, error) { return "k", nil }
	limited := limits(t, limiter(t, memstore.New(), weir.PerHour(9)), key, &grpclimit.Options{Messages: limits(t, l, key, nil)})
	var kept grpc.ServerStream
	err := limited.Stream(nil, &fakeStream{ctx: t.Context(), left: 1}, &grpc.StreamServerInfo{FullMethod: "/a.B/C"},
		func(_ any, s grpc.ServerStream) error {
			kept = s
			return errors.New("done")
		})
	if err == nil || err.Error() != "done" {
		t.Error(err)
	}
	kept.RecvMsg(nil)
	if a, err := l.Peek(t.Context(), "k"); err != nil || !a.Allowed {
		t.Errorf("the unit is held: %v, %v", a, err)
	}
}
