package kratoslimit_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/middleware/recovery"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/weirproject/weir/contrib/kratoslimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	log.SetLogger(log.NewStdLogger(io.Discard))
	server := khttp.NewServer(khttp.Timeout(time.Minute),
		khttp.Middleware(recovery.Recovery(), kratoslimit.Server(limited)))
	routes := server.Route("/")
	// handle is what generated code does: it reads the request, runs the middleware, and encodes the reply.
	handle := func(method, path string, handler func(c khttp.Context, body []byte) (reply string, err error)) {
		routes.Handle(method, path, func(c khttp.Context) error {
			body, _ := io.ReadAll(c.Request().Body)
			c.Request().Body = io.NopCloser(bytes.NewReader(body))
			next := c.Middleware(func(context.Context, any) (any, error) { return handler(c, body) })
			reply, err := next(c, nil)
			if err != nil {
				return err
			}
			return c.String(200, reply.(string))
		})
	}
	fail := func(c khttp.Context, _ []byte) (string, error) {
		if code := adapttest.Code(c.Request().URL.Path); code >= 400 {
			return "", errors.New(code, "FAILED", "an error")
		}
		return "", nil
	}
	handle("GET", "/items/{id}", func(c khttp.Context, _ []byte) (string, error) { return s.Item(c.Vars().Get("id")), nil })
	handle("GET", "/status/{code}", fail)
	handle("GET", "/error/{code}", fail)
	handle("GET", "/cost", func(c khttp.Context, _ []byte) (string, error) {
		cost, body := s.Cost()
		c.Response().Header().Set("X-Cost", cost)
		return body, nil
	})
	handle("POST", "/form", func(_ khttp.Context, body []byte) (string, error) { return string(body), nil })
	handle("GET", "/panic", func(khttp.Context, []byte) (string, error) { panic("a handler") })
	handle("GET", "/hold", func(khttp.Context, []byte) (string, error) {
		s.Hold()
		return s.Last(), nil
	})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return listener.URL
}

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/{id}",
		Lacks: []string{"hijack", "stream", "bytes", "problem"}})
}

// TestFilter: over HTTP the middleware itself is a filter of kratos, which measures bodies and has no route.
func TestFilter(t *testing.T) {
	limited := adapttest.Limited()
	server := khttp.NewServer(khttp.Filter(limited))
	server.Route("/").GET("/items/{id}", func(c khttp.Context) error { return c.String(200, "item") })
	for _, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest("GET", "/items/1", nil))
		if w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}

// TestGRPC: the same middleware limits calls, by their operation and their metadata.
func TestGRPC(t *testing.T) {
	g := gatetest.New(t, memstore.New(),
		"rules: [{name: r, label: check, key: [route, header.X-User], limit: sliding_log 1/1h}]")
	limited, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := kgrpc.NewServer(kgrpc.Listener(listener), kgrpc.Middleware(recovery.Recovery(), kratoslimit.Server(limited)))
	go server.Start(t.Context())
	t.Cleanup(func() { server.Stop(context.Background()) })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	check := func(user string) (metadata.MD, error) {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", user)
		_, err := health.Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Header(&header), grpc.WaitForReady(true))
		return header, err
	}
	if header, err := check("ann"); err != nil || len(header.Get("ratelimit")) != 1 {
		t.Fatal(header, err)
	}
	_, err = check("ann")
	if failure := errors.FromError(err); failure.Code != 429 || failure.Reason != "RATELIMIT" ||
		failure.Metadata["retry_after"] != "3600" || failure.Metadata["label"] != "check" {
		t.Errorf("the error is %v", err)
	}
	if _, err := check("bob"); err != nil {
		t.Error(err)
	}
}
