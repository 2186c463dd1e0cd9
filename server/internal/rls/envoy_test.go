package rls_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/timewords"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/envoytest"
	"github.com/weirproject/weir/server/internal/grpcserver"
	"github.com/weirproject/weir/server/internal/rls"
	"github.com/weirproject/weir/server/internal/web"
)

// An envoy is a real Envoy before a service that answers x-tokens: 70, with the rules of kit.
type envoy struct {
	t       *testing.T
	address string
}

func startEnvoy(t *testing.T) *envoy {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(kit))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpcserver.New(grpcserver.Config{Access: new(web.Access), Ready: func() bool { return true },
		Counts: servermetrics.New("test").GRPC(), Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {},
	}, rls.New(g, rls.Options{}))
	go server.Serve(listener)
	t.Cleanup(server.Close)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Tokens", "70")
	}))
	t.Cleanup(upstream.Close)
	config, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port := func(address net.Addr) string { return fmt.Sprint("port_value: ", address.(*net.TCPAddr).Port) }
	e := envoytest.Start(t, string(config), "port_value: 10001", port(listener.Addr()), "port_value: 10002", port(upstream.Listener.Addr()))
	return &envoy{t, e.Address("in")}
}

// A sent is a request.
type sent struct{ method, path, client, key, cost, kind string }

func (e *envoy) send(s sent) (*http.Response, string) {
	e.t.Helper()
	if s.method == "" {
		s.method = http.MethodGet
	}
	r, err := http.NewRequest(s.method, "http://"+e.address+s.path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Forwarded-For": s.client, "X-Key": s.key, "X-Cost": s.cost, "Content-Type": s.kind} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return response, string(body)
}

// is sends a request and compares the status and x-ratelimit-remaining.
func (e *envoy) is(want string, s sent) {
	e.t.Helper()
	response, body := e.send(s)
	if got := strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", response.Header.Get("X-Ratelimit-Remaining"))); got != want {
		e.t.Errorf("%+v: %s, want %s: %v %s", s, got, want, response.Header, body)
	}
}

// TestEnvoy is the acceptance by a real Envoy: what it sends is understood, and what it shows is right.
func TestEnvoy(t *testing.T) {
	e := startEnvoy(t)
	for _, s := range []struct {
		want string
		sent sent
	}{
		{"200 1", sent{path: "/remote", client: "203.0.113.7"}}, {"200 0", sent{path: "/remote", client: "203.0.113.7"}},
		{"429 0", sent{path: "/remote", client: "203.0.113.7"}}, {"200 1", sent{path: "/remote", client: "2001:db8::7"}},
		{"200 1", sent{path: "/masked", client: "203.0.113.7"}}, {"200 0", sent{path: "/masked", client: "203.0.113.99"}},
		{"429 0", sent{path: "/masked", client: "203.0.113.8"}}, {"200 1", sent{path: "/masked", client: "2001:db8::1"}},
		{"200 0", sent{path: "/masked", client: "2001:db8::2"}},
		{"200", sent{path: "/match"}}, {"200 0", sent{path: "/match", method: "POST"}}, {"429 0", sent{path: "/match", method: "POST"}},
		{"200 1", sent{path: "/both"}}, {"200 0", sent{path: "/both"}}, {"429 0", sent{path: "/both"}}, {"429 0", sent{path: "/both"}},
		{"200 2", sent{path: "/wide"}},
		{"200 3", sent{path: "/weight", key: "a", cost: "7"}}, {"429 3", sent{path: "/weight", key: "a", cost: "4"}},
		{"200 3", sent{path: "/look", key: "a"}}, {"200 0", sent{path: "/weight", key: "a", cost: "3"}}, {"429 0", sent{path: "/look", key: "a"}},
		{"200 10", sent{path: "/look", key: "b"}}, {"200", sent{path: "/look"}}, {"200 9", sent{path: "/weight", key: "ü b,c", cost: "1"}},
		{"200 1", sent{path: "/override"}}, {"200 0", sent{path: "/override"}}, {"429 0", sent{path: "/override"}},
		{"200 0", sent{path: "/multi"}}, {"429 0", sent{path: "/multi"}},
		{"200", sent{path: "/shadow"}}, {"200", sent{path: "/shadow"}}, {"200", sent{path: "/nothing"}},
		{"429", sent{path: "/deny"}},
		{"429 10", sent{path: "/twice"}}, {"200 10", sent{path: "/look", key: "twice"}},
	} {
		e.is(s.want, s.sent)
	}
}

func TestEnvoyShowsWhatWasDecided(t *testing.T) {
	e := startEnvoy(t)
	response, _ := e.send(sent{path: "/match", method: "POST"})
	if got, want := response.Header.Get("X-Ratelimit-Limit"), `1, 1;w=90;name="short"`; got != want {
		t.Errorf("x-ratelimit-limit: %s, want %s", got, want)
	}
	if got, want := response.Header.Get("Ratelimit-Policy"), `"short";q=1;w=90`; got != want {
		t.Errorf("ratelimit-policy: %s, want %s", got, want)
	}
	response, body := e.send(sent{path: "/match", method: "POST"})
	wait := response.Header.Get("Retry-After")
	span, _ := time.ParseDuration(wait + "s")
	if wait == "" || wait != response.Header.Get("X-Ratelimit-Reset") || response.Header.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(body, "try again in "+timewords.Of("en").Wait(span)+".") {
		t.Errorf("%v %s", response.Header, body)
	}
	if got := response.Header.Get("X-Metadata"); !strings.Contains(got, `"outcome":"refused"`) || !strings.Contains(got, `"rule":"short"`) {
		t.Errorf("metadata %s", got)
	}
	response, _ = e.send(sent{path: "/match", method: "POST", kind: "application/grpc"})
	if response.StatusCode != 200 || response.Header.Get("Grpc-Status") != "8" {
		t.Errorf("a gRPC client gets %v %v", response.Status, response.Header)
	}
	for range 3 {
		response, _ = e.send(sent{path: "/shadow"})
	}
	if got := response.Header.Get("X-Metadata"); !strings.Contains(got, `"shadow":["tried"]`) {
		t.Errorf("metadata of a shadow rule %s", got)
	}
}

// TestEnvoyChargesWhenTheStreamIsDone: those calls come after the response, so what they did is awaited.
func TestEnvoyChargesWhenTheStreamIsDone(t *testing.T) {
	e := startEnvoy(t)
	left := func(want string, s sent) {
		t.Helper()
		redistest.Await(t, s.path+" to have "+want, func() bool {
			response, _ := e.send(s)
			return response.Header.Get("X-Ratelimit-Remaining") == want
		})
	}
	for _, path := range []string{"/tokens", "/plain"} { // two costs of 70 from a budget of 100
		e.is("200 100", sent{path: path})
		redistest.Await(t, path+" to be in debt", func() bool {
			response, _ := e.send(sent{path: path})
			return response.StatusCode == http.StatusTooManyRequests
		})
		e.is("429 0", sent{path: path})
	}
	for i, want := range []string{"9", "8", "7"} {
		e.is(fmt.Sprint("200 ", 4-i), sent{path: "/refund", key: "r"})
		left(want, sent{path: "/look", key: "r"})
	}
}

// TestEnvoyOfACrowd: of 200 requests at once, exactly the limit's 100 pass.
func TestEnvoyOfACrowd(t *testing.T) {
	e := startEnvoy(t)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				if response, err := http.Get("http://" + e.address + "/crowd"); err == nil {
					response.Body.Close()
					if response.StatusCode == http.StatusOK {
						passed.Add(1)
					}
				}
			}
		})
	}
	if all.Wait(); passed.Load() != 100 {
		t.Errorf("%d of 200 passed, want 100", passed.Load())
	}
}

// TestEnvoyLimitsEveryByteValue: whatever byte a header that a descriptor carries has, its request is decided, or Envoy
// refuses it itself.
func TestEnvoyLimitsEveryByteValue(t *testing.T) {
	e := startEnvoy(t)
	conn, err := net.Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { conn.Close() }()
	decided, reader := 0, bufio.NewReader(conn)
	for b := range 256 {
		const head = "GET /weight HTTP/1.1\r\nHost: a\r\nX-Cost: 11\r\nX-Key: curl"
		conn.Write(append([]byte(head), byte(b), '\r', '\n', '\r', '\n'))
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		switch {
		case response.StatusCode == http.StatusTooManyRequests:
			decided++
		case response.StatusCode != http.StatusBadRequest:
			t.Errorf("byte %#x: %v %v; want 429, or 400 by Envoy", b, response.Status, response.Header)
		}
		if response.Close {
			conn.Close()
			if conn, err = net.Dial("tcp", e.address); err != nil {
				t.Fatal(err)
			}
			reader.Reset(conn)
		}
	}
	if decided < 256-32 {
		t.Errorf("only %d byte values reached weir", decided)
	}
}
