package rpcapi_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	weirv1 "github.com/weirproject/weir/proto/weir/v1"
)

// MayLogIn asks whether a login from this address may be tried. Otherwise wait is the time to the next try in seconds.
func MayLogIn(ctx context.Context, conn *grpc.ClientConn, address string) (allowed bool, wait int64, err error) {
	request := &weirv1.Request{Method: "POST", Path: "/login", Client: address}
	answer, err := weirv1.NewLimiterClient(conn).Decide(ctx, &weirv1.DecideRequest{Request: request})
	if err != nil {
		return false, 0, err
	}
	return answer.Decision.Allowed, answer.Decision.RetryAfter, nil
}

func TestExampleOfDocs(t *testing.T) {
	conn := connect(t, stopped())
	for i := range 3 {
		allowed, wait, err := MayLogIn(t.Context(), conn, "203.0.113.7")
		if err != nil || allowed != (i < 2) || !allowed && wait != 3600 {
			t.Errorf("login %d: %v, wait %d, %v", i, allowed, wait, err)
		}
	}
	page, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(source), "// MayLogIn asks")
	example, _, found := strings.Cut(example, "\nfunc Test")
	if !found || !strings.Contains(string(page), strings.TrimSpace(example)+"\n```") {
		t.Errorf("docs/api.md does not show the function MayLogIn of this file")
	}
}
