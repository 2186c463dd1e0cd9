package grpclimit_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirproject/weir/internal/rpcstatus"
)

// refuse calls a server that gives the answer, with the real client.
func refuse(t *testing.T, answer *rpcstatus.Answer) (*status.Status, metadata.MD) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if !rpcstatus.Is(r) {
				t.Errorf("%q is taken for no call", r.Header.Get("Content-Type"))
			}
			answer.Write(w, r)
		})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(listener)
	defer server.Close()
	client, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var trailer metadata.MD
	err = client.Invoke(t.Context(), "/a.B/C", new(emptypb.Empty), new(emptypb.Empty), grpc.Trailer(&trailer))
	return status.Convert(err), trailer
}

func TestClientsUnderstandRefusals(t *testing.T) {
	const message = "太多 requests: 100 % used\n"
	got, trailer := refuse(t, &rpcstatus.Answer{Status: 429, Exceeded: true, Message: message, Wait: 2500 * time.Millisecond})
	if got.Code() != codes.ResourceExhausted || got.Message() != message {
		t.Errorf("%v", got)
	}
	if pushback := trailer.Get("grpc-retry-pushback-ms"); len(pushback) != 1 || pushback[0] != "2500" {
		t.Errorf("pushback is %v", pushback)
	}
	details := got.Details()
	if len(details) != 1 {
		t.Fatalf("details are %v", details)
	}
	info, ok := details[0].(*errdetails.RetryInfo)
	if !ok || info.GetRetryDelay().AsDuration() != 2500*time.Millisecond {
		t.Errorf("details are %v", details)
	}
	for _, wait := range []time.Duration{0, time.Hour} {
		_, trailer := refuse(t, &rpcstatus.Answer{Status: 429, Exceeded: true, Wait: wait})
		if pushback := trailer.Get("grpc-retry-pushback-ms"); len(pushback) != 1 || pushback[0] != "-1" {
			t.Errorf("after %v pushback is %v", wait, pushback)
		}
	}
}

func TestStatusesOfHTTPHaveACode(t *testing.T) {
	for number, want := range map[int]codes.Code{400: codes.InvalidArgument, 403: codes.PermissionDenied, 409: codes.AlreadyExists,
		404: codes.Unimplemented, 413: codes.ResourceExhausted, 429: codes.ResourceExhausted, 500: codes.Internal,
		501: codes.Unimplemented, 502: codes.Unavailable, 503: codes.Unavailable, 504: codes.DeadlineExceeded} {
		got, trailer := refuse(t, &rpcstatus.Answer{Status: number, Message: "m"})
		if got.Code() != want || got.Message() != "m" || len(trailer.Get("grpc-retry-pushback-ms")) > 0 {
			t.Errorf("%d: %v %v, want %v", number, got, trailer, want)
		}
	}
}

func TestOtherRequestsAreNoCalls(t *testing.T) {
	for kind, want := range map[string]bool{"": false, "application/json": false, "application/grpcx": false,
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;x=y": true,
		"application/grpc-web+proto": true} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Content-Type", kind)
		if got := rpcstatus.Is(r); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
}
