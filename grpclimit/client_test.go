package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
)

// An answer is what a server responds.
type answer struct {
	err             error
	header, trailer metadata.MD
}

func refusal(code codes.Code, wait time.Duration) answer {
	s, err := status.New(code, "refused").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return answer{err: s.Err()}
}

func plain(code codes.Code, fields ...string) answer {
	return answer{err: status.Error(code, "refused"), trailer: metadata.Pairs(fields...)}
}

// A script is a server for synctest: it gives its answers in order, and repeats the last one.
type script struct {
	answers []answer
	sent    []time.Duration // when
	start   time.Time
}

func (s *script) invoke(
	_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, options ...grpc.CallOption,
) error {
	s.sent = append(s.sent, time.Since(s.start))
	a := s.answers[min(len(s.sent), len(s.answers))-1]
	for _, option := range options {
		switch o := option.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		}
	}
	return a.err
}

// connection has a target and is not connected.
func connection(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestClientObeysRefusals(t *testing.T) {
	conn := connection(t)
	limit := func(text string) metadata.MD { return metadata.Pairs("ratelimit", text) }
	for name, tt := range map[string]struct {
		first answer
		wait  time.Duration
	}{
		"a success":                  {answer{}, 0},
		"RetryInfo":                  {refusal(codes.ResourceExhausted, 7*time.Second), 7 * time.Second},
		"RetryInfo of UNAVAILABLE":   {refusal(codes.Unavailable, 7*time.Second), 7 * time.Second},
		"RetryInfo of another error": {refusal(codes.Aborted, 7*time.Second), 0},
		"a negative RetryInfo":       {refusal(codes.ResourceExhausted, -time.Second), 0},
		"RetryInfo of a day":         {refusal(codes.ResourceExhausted, 24*time.Hour), 30 * time.Second},
		"no wait":                    {plain(codes.ResourceExhausted), 0},
		"retry-after":                {plain(codes.ResourceExhausted, "retry-after", "5"), 5 * time.Second},
		"retry-after, malformed":     {plain(codes.ResourceExhausted, "retry-after", "1.5"), 0},
		"retry-after, saturated":     {plain(codes.ResourceExhausted, "retry-after", strings.Repeat("9", 40)), 30 * time.Second},
		"a pushback":                 {plain(codes.Unavailable, "grpc-retry-pushback-ms", "1500"), 1500 * time.Millisecond},
		"a pushback of -1":           {plain(codes.Unavailable, "grpc-retry-pushback-ms", "-1"), 0},
		"ratelimit of a refusal":     {plain(codes.ResourceExhausted, "ratelimit", `"a";r=0;t=4`), 4 * time.Second},
		"ratelimit of a success":     {answer{header: limit(`"a";r=0;t=4`)}, 4 * time.Second},
		"ratelimit with units left":  {answer{header: limit(`"a";r=1;t=4`)}, 0},
		"ratelimit of a failed call": {answer{err: status.Error(codes.NotFound, ""), trailer: limit(`"a";r=0;t=4`)}, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server := new(grpclimit.Client), &script{answers: []answer{tt.first, {}}, start: time.Now()}
			for _, method := range []string{"/a.B/C", "/a.B/D", "/a.B/C"} { // another method is not concerned
				client.Unary(t.Context(), method, nil, nil, conn, server.invoke)
			}
			if got, want := fmt.Sprint(server.sent), fmt.Sprint([]time.Duration{0, 0, tt.wait}); got != want {
				t.Errorf("%s: sent at %s, want %s", name, got, want)
			}
		})
	}
}

func TestClientRetries(t *testing.T) {
	conn := connection(t)
	second := refusal(codes.ResourceExhausted, time.Second)
	for name, tt := range map[string]struct {
		retries int
		answers []answer
		want    string
		code    codes.Code
	}{
		"none":                    {0, []answer{second, {}}, "[0s]", codes.ResourceExhausted},
		"one":                     {3, []answer{second, {}}, "[0s 1s]", codes.OK},
		"too few":                 {1, []answer{second}, "[0s 1s]", codes.ResourceExhausted},
		"without a wait":          {3, []answer{plain(codes.ResourceExhausted)}, "[0s]", codes.ResourceExhausted},
		"a connection lost":       {3, []answer{plain(codes.Unavailable)}, "[0s]", codes.Unavailable},
		"over MaxWait":            {3, []answer{refusal(codes.ResourceExhausted, 16*time.Second)}, "[0s]", codes.ResourceExhausted},
		"over the deadline":       {3, []answer{refusal(codes.ResourceExhausted, 14*time.Second)}, "[0s]", codes.ResourceExhausted},
		"a success that exhausts": {3, []answer{{header: metadata.Pairs("ratelimit", `"a";r=0;t=4`)}}, "[0s]", codes.OK},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server := &grpclimit.Client{Retries: tt.retries, MaxWait: 15 * time.Second}, &script{answers: tt.answers, start: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), 13*time.Second)
			defer cancel()
			err := client.Unary(ctx, "/a.B/C", nil, nil, conn, server.invoke)
			if got := fmt.Sprint(server.sent); got != tt.want || status.Code(err) != tt.code {
				t.Errorf("%s: sent at %s, want %s: %v", name, got, tt.want, err)
			}
		})
	}
}

func TestClientWaitsForItsLimiter(t *testing.T) {
	conn := connection(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{{}}, start: time.Now()}
		client := &grpclimit.Client{Limiter: limiter(t, memstore.New(), weir.GCRA(1, 1, 10*time.Second))}
		for range 3 {
			if err := client.Unary(t.Context(), "/a.B/C", nil, nil, conn, server.invoke); err != nil {
				t.Error(err)
			}
		}
		want(t, "sent at", fmt.Sprint(server.sent), "[0s 10s 20s]")
		client.MaxWait = 5 * time.Second
		err := client.Unary(t.Context(), "/a.B/C", nil, nil, conn, server.invoke)
		if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, weir.ErrTooLong) {
			t.Errorf("over MaxWait: %v", err)
		}
		client.Key = grpclimit.Metadata("x-key")
		if err := client.Unary(t.Context(), "/a.B/C", nil, nil, conn, server.invoke); !errors.Is(err, httplimit.ErrMissing) {
			t.Errorf("without a key: %v", err)
		}
		if len(server.sent) != 3 {
			t.Errorf("sent at %v", server.sent)
		}
	})
}

// A received stream has one response, and then ends.
type received struct {
	grpc.ClientStream
	left int
}

func (r *received) RecvMsg(any) error {
	if r.left--; r.left < 0 {
		return io.EOF
	}
	return nil
}

func (r *received) Header() (metadata.MD, error) { return nil, nil }
func (r *received) Trailer() metadata.MD         { return nil }

// TestClientHoldsASlotUntilTheCallEnds: a call that waits is sent when another one ends, however it ends.
func TestClientHoldsASlotUntilTheCallEnds(t *testing.T) {
	conn := connection(t)
	open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return &received{left: 1}, nil
	}
	for name, holder := range map[string]func(ctx context.Context, client *grpclimit.Client) error{
		"a unary call": func(ctx context.Context, client *grpclimit.Client) error {
			return client.Unary(ctx, "/a.B/C", nil, nil, conn, func(context.Context, string, any, any, *grpc.ClientConn,
				...grpc.CallOption) error {
				time.Sleep(time.Second)
				return nil
			})
		},
		"a refused call between its repetitions": func(ctx context.Context, client *grpclimit.Client) error {
			server := &script{answers: []answer{refusal(codes.ResourceExhausted, 25*time.Second), {}}, start: time.Now()}
			return client.Unary(ctx, "/a.B/D", nil, nil, conn, func(ctx context.Context, method string, message, reply any,
				conn *grpc.ClientConn, options ...grpc.CallOption) error {
				time.Sleep(time.Second)
				return server.invoke(ctx, method, message, reply, conn, options...)
			})
		},
		"a stream to its end": func(ctx context.Context, client *grpclimit.Client) error {
			stream, err := client.Stream(ctx, &grpc.StreamDesc{ServerStreams: true}, conn, "/a.B/C", open)
			if err != nil || stream.RecvMsg(nil) != nil {
				return errors.Join(err, errors.New("no response"))
			}
			time.Sleep(time.Second)
			stream.RecvMsg(nil)
			return nil
		},
		"a stream with one response": func(ctx context.Context, client *grpclimit.Client) error {
			stream, err := client.Stream(ctx, &grpc.StreamDesc{ClientStreams: true}, conn, "/a.B/C", open)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			return stream.RecvMsg(nil)
		},
		"a stream that its caller leaves": func(ctx context.Context, client *grpclimit.Client) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := client.Stream(ctx, &grpc.StreamDesc{ServerStreams: true}, conn, "/a.B/C", open)
			time.Sleep(2 * time.Second)
			return err
		},
		"a stream that cannot be opened": func(ctx context.Context, client *grpclimit.Client) error {
			client.Stream(ctx, &grpc.StreamDesc{}, conn, "/a.B/C", func(context.Context, *grpc.StreamDesc,
				*grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				time.Sleep(time.Second)
				return nil, status.Error(codes.Internal, "broken")
			})
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &grpclimit.Client{Retries: 1, Limiter: limiter(t, memstore.New(), weir.PerMinute(600),
				weir.Concurrency{Limit: 1, TTL: time.Minute})}
			ended := make(chan error, 1)
			go func() { ended <- holder(t.Context(), client) }()
			synctest.Wait()
			begun, server := time.Now(), &script{answers: []answer{{}}, start: time.Now()}
			if err := client.Unary(t.Context(), "/a.B/E", nil, nil, conn, server.invoke); err != nil {
				t.Errorf("beside %s: %v", name, err)
			}
			if took := time.Since(begun); took != time.Second {
				t.Errorf("beside %s: sent after %v, want 1s", name, took)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A wait beyond the deadline fails at once; a canceled one has the status of its context.
func TestClientFailsEarly(t *testing.T) {
	conn := connection(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{refusal(codes.ResourceExhausted, 20*time.Second)}, start: time.Now()}
		client := new(grpclimit.Client)
		client.Unary(t.Context(), "/a.B/C", nil, nil, conn, server.invoke)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := client.Unary(ctx, "/a.B/C", nil, nil, conn, server.invoke)
		if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, weir.ErrTooLong) || time.Since(server.start) != 0 {
			t.Errorf("%v after %v", err, time.Since(server.start))
		}
		_, err = client.Stream(ctx, nil, conn, "/a.B/C", nil)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a stream: %v", err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		err = client.Unary(canceled, "/a.B/C", nil, nil, conn, server.invoke)
		if status.Code(err) != codes.Canceled || time.Since(server.start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(server.start))
		}
		if len(server.sent) != 1 {
			t.Errorf("sent at %v", server.sent)
		}
	})
}

// Both sides over a real socket: the client waits as requested, and its next call or stream passes.
func TestClientPacesItself(t *testing.T) {
	clock, refusals := newClock(), 0
	l := limiter(t, clock.store(), weir.GCRA(1, 1, 20*time.Millisecond))
	limited := limits(t, l, grpclimit.PeerAddress, &grpclimit.Options{Fields: httplimit.NoFields})
	pass := func(ctx context.Context, method string, message, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		err := invoke(ctx, method, message, reply, conn, options...)
		if err != nil {
			refusals++
			clock.pass(20 * time.Millisecond)
		}
		return err
	}
	s := &service{output: func(_ *pb.StreamingOutputCallRequest, o pb.TestService_StreamingOutputCallServer) error {
		return o.Send(piece)
	}}
	client := &grpclimit.Client{Retries: 1}
	calls := serve(t, limited, s, grpc.WithChainUnaryInterceptor(client.Unary, pass),
		grpc.WithStreamInterceptor(client.Stream))
	for range 3 {
		if r := call(t.Context(), calls); r.err != nil {
			t.Error(r.err)
		}
	}
	if refusals != 2 {
		t.Errorf("%d refusals", refusals)
	}
	if _, err := opens["server"](t.Context(), calls); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
	defer cancel()
	if _, err := opens["server"](ctx, calls); err == nil {
		t.Error("a stream was opened before the wait that the last one was told")
	}
	clock.pass(20 * time.Millisecond)
	if _, err := opens["server"](t.Context(), calls); err != nil {
		t.Error(err)
	}
}

// A watching context counts those who wait for its end.
type watching struct {
	context.Context
	end     chan struct{}
	waiting int
}

func (w *watching) Done() <-chan struct{} { return w.end }

func (w *watching) AfterFunc(func()) (stop func() bool) {
	w.waiting++
	return func() bool {
		w.waiting--
		return true
	}
}

// TestStreamIsForgottenAtItsEnd: the context of its caller may live as long as the process.
func TestStreamIsForgottenAtItsEnd(t *testing.T) {
	ctx, client := &watching{Context: t.Context(), end: make(chan struct{})}, new(grpclimit.Client)
	stream, err := client.Stream(ctx, &grpc.StreamDesc{ServerStreams: true}, connection(t), "/a.B/C",
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return new(received), nil
		})
	if err != nil || ctx.waiting != 1 {
		t.Fatalf("%v, %d wait for the end of the context", err, ctx.waiting)
	}
	if err := stream.RecvMsg(nil); err == nil || ctx.waiting != 0 {
		t.Errorf("%v, %d wait for the end of the context of a stream that has ended", err, ctx.waiting)
	}
}
