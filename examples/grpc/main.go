// Command grpc is a gRPC server whose calls are limited by rules, and a client that paces itself.
//
//	go run ./examples/grpc
//
// Each client address has one greeting a second and a burst of two. The first client is refused; the second waits as
// long as the server requests, so that each of its calls is answered.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var ruleFile []byte

func main() {
	server, err := serve(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	impatient := grpc.WithTransportCredentials(insecure.NewCredentials())
	for range 4 {
		fmt.Println(greet(listener.Addr().String(), impatient))
	}
	pacer := &grpclimit.Client{Retries: 3}
	for range 4 {
		fmt.Println(greet(listener.Addr().String(), impatient, grpc.WithUnaryInterceptor(pacer.Unary)))
	}
}

// serve makes a server of the rules.
func serve(store weir.Store) (*grpc.Server, error) {
	set, err := rules.Load("rules.yaml", ruleFile)
	if err != nil {
		return nil, err
	}
	decider, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		return nil, err
	}
	limits, err := grpclimit.ByRules(decider, &grpclimit.RuleOptions{Exempt: []string{"/grpc.health.v1.Health/"}})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
	server.RegisterService(&greeter, nil)
	return server, nil
}

const hello = "/example.Greeter/Hello"

// greeter is what protoc would generate of
//
//	service Greeter { rpc Hello(google.protobuf.StringValue) returns (google.protobuf.StringValue); }
var greeter = grpc.ServiceDesc{ServiceName: "example.Greeter", Methods: []grpc.MethodDesc{{
	MethodName: "Hello",
	Handler: func(_ any, ctx context.Context, decode func(any) error, limit grpc.UnaryServerInterceptor) (any, error) {
		name := new(wrapperspb.StringValue)
		if err := decode(name); err != nil {
			return nil, err
		}
		return limit(ctx, name, &grpc.UnaryServerInfo{FullMethod: hello}, func(_ context.Context, r any) (any, error) {
			return wrapperspb.String("Hello, " + r.(*wrapperspb.StringValue).Value), nil
		})
	},
}}}

// greet is one call, in words.
func greet(address string, options ...grpc.DialOption) string {
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	reply := new(wrapperspb.StringValue)
	if err := conn.Invoke(context.Background(), hello, wrapperspb.String("Ann"), reply); err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return reply.Value
}
