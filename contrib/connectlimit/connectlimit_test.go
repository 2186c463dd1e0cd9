package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirproject/weir/contrib/connectlimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

// TestFramework: handlers beside the calls, which are those of net/http.
func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Route: "GET /items/{id}", Lacks: []string{"problem", "status"}, Serve: func(
		t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
		mux := http.NewServeMux()
		for pattern, handler := range s.Handlers() {
			mux.Handle(pattern, connectlimit.Wrap(limited)(handler))
		}
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.URL
	}})
}

const (
	ping  = "/weir.test.v1.Pinger/Ping"
	count = "/weir.test.v1.Pinger/Count"
)

// register adds the descriptor of the service, as generated code does.
func register(t *testing.T) {
	t.Helper()
	method := func(name string, streams bool) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: proto.String(name), InputType: proto.String(".google.protobuf.Empty"),
			OutputType: proto.String(".google.protobuf.Empty"), ServerStreaming: proto.Bool(streams)}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("weir/test/v1/ping.proto"), Package: proto.String("weir.test.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/empty.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Pinger"),
			Method: []*descriptorpb.MethodDescriptorProto{method("Ping", false), method("Count", true)}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	if err := protoregistry.GlobalFiles.RegisterFile(file); err != nil {
		t.Fatal(err)
	}
}

// TestCallsAreRefusedInTheirProtocol: the clients of connect read the same error, whatever the protocol, of a unary call
// and of a stream; unknown methods have no route.
func TestCallsAreRefusedInTheirProtocol(t *testing.T) {
	register(t)
	for name, option := range map[string]connect.ClientOption{"connect": connect.WithProtoJSON(), "grpc": connect.WithGRPC(),
		"grpc-web": connect.WithGRPCWeb()} {
		t.Run(name, func(t *testing.T) {
			url := pinger(t, " - {name: r, label: login, key: [route], on_missing: skip, limit: sliding_log 1/1h}")
			client := connect.NewClient[emptypb.Empty, emptypb.Empty](http2Client(), url+ping, option)
			ask := func() error {
				_, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
				return err
			}
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			checkRefusal(t, ask())

			streaming := connect.NewClient[emptypb.Empty, emptypb.Empty](http2Client(), url+count, option)
			receive := func() error {
				stream, err := streaming.CallServerStream(t.Context(), connect.NewRequest(new(emptypb.Empty)))
				if err != nil {
					return err
				}
				defer stream.Close()
				for stream.Receive() {
				}
				return stream.Err()
			}
			if err := receive(); err != nil {
				t.Fatal(err)
			}
			checkRefusal(t, receive())

			unknown := connect.NewClient[emptypb.Empty, emptypb.Empty](http2Client(), url+"/weir.test.v1.Pinger/Other", option)
			for range 2 {
				_, err := unknown.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
				if got := connect.CodeOf(err); got != connect.CodeUnimplemented {
					t.Errorf("a method that does not exist: %v", err)
				}
			}
		})
	}
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var failure *connect.Error
	if !errors.As(err, &failure) || failure.Code() != connect.CodeResourceExhausted {
		t.Fatalf("the error is %v", err)
	}
	if got := failure.Meta().Get("RateLimit"); got != `"r";r=0;t=3600` {
		t.Errorf("RateLimit is %q", got)
	}
	var retry *errdetails.RetryInfo
	var info *errdetails.ErrorInfo
	for _, detail := range failure.Details() {
		switch value, _ := detail.Value(); value := value.(type) {
		case *errdetails.RetryInfo:
			retry = value
		case *errdetails.ErrorInfo:
			info = value
		}
	}
	if retry.GetRetryDelay().AsDuration() != time.Hour || info.GetMetadata()["label"] != "login" {
		t.Errorf("the details are %v, %v", retry, info)
	}
}

func pinger(t *testing.T, rules string) (url string) {
	limited, err := httplimit.ByRules(gatetest.New(t, memstore.New(), "rules:\n"+rules), nil)
	if err != nil {
		t.Fatal(err)
	}
	service := http.NewServeMux()
	service.Handle(ping, connect.NewUnaryHandler(ping, func(
		context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(new(emptypb.Empty)), nil
	}))
	service.Handle(count, connect.NewServerStreamHandler(count, func(
		_ context.Context, _ *connect.Request[emptypb.Empty], stream *connect.ServerStream[emptypb.Empty]) error {
		return stream.Send(new(emptypb.Empty))
	}))
	server := httptest.NewUnstartedServer(connectlimit.Wrap(limited)(service))
	server.Config.Protocols = protocols()
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func http2Client() *http.Client {
	return &http.Client{Transport: &http.Transport{Protocols: protocols()}}
}
