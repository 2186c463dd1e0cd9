package extauthz_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/envoytest"
	"github.com/weirproject/weir/server/internal/extauthz"
	"github.com/weirproject/weir/server/internal/grpcserver"
	"github.com/weirproject/weir/server/internal/proxycheck"
	"github.com/weirproject/weir/server/internal/rls"
	"github.com/weirproject/weir/server/internal/web"
)

// uncounted is for servers whose metrics no test reads.
type uncounted struct{}

func (uncounted) Began()               {}
func (uncounted) Ended(string, string) {}
func (uncounted) Panicked()            {}

// token is that of the page.
const token = "0123456789abcdef0123456789abcdef"

// A limiter serves both services of Envoy by rules. While it fails, no call has an answer, but health checks have.
type limiter struct {
	port    string
	failing atomic.Bool
	close   func()
	gate    *gate.Gate
	server  *grpcserver.Server
}

// interrupted registers a service whose calls fail while it does.
type interrupted struct {
	grpc.ServiceRegistrar
	by *limiter
}

func (i interrupted) RegisterService(service *grpc.ServiceDesc, to any) {
	other := *service
	other.Methods = slices.Clone(service.Methods)
	for m := range other.Methods {
		call := other.Methods[m].Handler
		other.Methods[m].Handler = func(srv any, ctx context.Context, read func(any) error,
			interceptor grpc.UnaryServerInterceptor) (any, error) {
			if i.by.failing.Load() {
				return nil, status.Error(codes.Internal, "the message cannot be read")
			}
			return call(srv, ctx, read, interceptor)
		}
	}
	i.ServiceRegistrar.RegisterService(&other, to)
}

func (l *limiter) interrupting(register func(grpc.ServiceRegistrar)) func(grpc.ServiceRegistrar) {
	return func(to grpc.ServiceRegistrar) { register(interrupted{to, l}) }
}

func serve(t *testing.T, rules string) *limiter {
	t.Helper()
	// Time stands still: a busy machine may take longer than the page's minute.
	g := gatetest.New(t, memstore.New(memstore.WithClock(func() weir.Instant { return 1 })), rules)
	authorization, err := extauthz.New(g, new(httplimit.RuleOptions))
	if err != nil {
		t.Fatal(err)
	}
	access, err := web.NewAccess(web.Config{Tokens: []web.Token{{Secret: token, Write: true}}})
	if err != nil {
		t.Fatal(err)
	}
	limiter := new(limiter)
	processor, err := extauthz.NewProcessor(g, new(httplimit.RuleOptions))
	if err != nil {
		t.Fatal(err)
	}
	server := grpcserver.New(grpcserver.Config{Access: access, Ready: func() bool { return true }, Counts: uncounted{},
		Log: slog.New(slog.DiscardHandler), Warn: func(text string, _ ...any) { t.Error(text) }},
		limiter.interrupting(rls.New(g, rls.Options{})), limiter.interrupting(authorization), processor)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Close)
	limiter.port, limiter.close, limiter.gate, limiter.server = port(t, l.Addr().String()), server.Close, g, server
	return limiter
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// A page is docs/howto/envoy-filters.md and docs/howto/istio.md: their blocks of YAML, in order.
type page struct{ rules, bootstrap, extAuthz, extProc, withToken, istio, gateway string }

func readPage(t *testing.T) page {
	t.Helper()
	var found [][]string
	for _, name := range []string{"envoy-filters", "istio"} {
		text, err := os.ReadFile("../../../docs/howto/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)...)
	}
	if len(found) != 7 {
		t.Fatalf("the pages have %d blocks of YAML; this test knows 7", len(found))
	}
	return page{found[0][1], found[1][1], found[2][1], found[3][1], found[4][1], found[5][1], found[6][1]}
}

// tree is a text of YAML.
func tree(t *testing.T, text string) (value map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// at is a value within a tree, by keys and indexes.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
		if value == nil {
			t.Fatalf("there is no %v", path)
		}
	}
	return value
}

var (
	manager = []any{"static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"}
	service = []any{"rate_limit_service", "grpc_service"}
)

// TestPage runs the configurations of the page: each grants three requests, and refuses others.
func TestPage(t *testing.T) {
	p := readPage(t)
	istio := tree(t, p.istio)
	patch := func(i int) any { return at(t, istio, "spec", "configPatches", i, "patch", "value") }
	for name, use := range map[string]struct {
		filter any
		host   any   // merged into the virtual host; nil: nothing
		grpc   []any // where the filter has its grpc_service
	}{
		"rate limit service": {nil, nil, service},
		"ext_authz":          {tree(t, p.extAuthz), nil, []any{"grpc_service"}},
		"Istio":              {patch(0), patch(1), service},
	} {
		t.Run(name, func(t *testing.T) {
			config := tree(t, p.bootstrap)
			connections := at(t, config, manager...).(map[string]any)
			filters := at(t, connections, "http_filters").([]any)
			if use.filter != nil {
				filters[0] = use.filter
			}
			if use.host != nil {
				host := at(t, connections, "route_config", "virtual_hosts", 0).(map[string]any)
				delete(at(t, host, "routes", 0, "route").(map[string]any), "rate_limits")
				host["rate_limits"] = at(t, use.host, "rate_limits")
			}
			grpc := at(t, filters[0], append([]any{"typed_config"}, use.grpc...)...).(map[string]any)
			grpc["initial_metadata"] = at(t, tree(t, p.withToken), "grpc_service", "initial_metadata")
			drive(t, p, config, name != "Istio")
		})
	}
	if at(t, tree(t, p.gateway), "spec", "extAuth", "grpc", "backendRefs", 0, "port") != 8082 {
		t.Error("Envoy Gateway's policy has another port")
	}
}

// servedField is a field of each response of the service, and of no other.
const servedField = "X-Service"

// drive starts all, and sends requests. A cluster that knows when weir is away serves all then.
func drive(t *testing.T, p page, config map[string]any, away bool) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(servedField, "yes")
		io.WriteString(w, "served")
	}))
	t.Cleanup(upstream.Close)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	weirs := serve(t, p.rules)
	e := envoytest.Start(t, strings.ReplaceAll(string(text), "outbound|8082||weir.limits.svc.cluster.local", "weir"),
		"address: 0.0.0.0", "address: 127.0.0.1", "port_value: 10000", "port_value: 0",
		"port_value: 3000", "port_value: "+port(t, upstream.Listener.Addr().String()),
		"port_value: 8082", "port_value: "+weirs.port, "port_value: 8083", "port_value: "+port(t, redistest.FreeAddr(t)), "timeout: 1s", "timeout: 60s")
	for i := range 5 {
		response, err := http.Get("http://" + e.Address("in") + "/a?b")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if granted := i < 3; granted != (response.StatusCode == 200) || granted != (string(body) == "served") ||
			response.Header.Get("RateLimit") == "" {
			t.Errorf("request %d: %s %v %s", i, response.Status, response.Header, body)
		}
		if i < 3 {
			continue
		}
		if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" ||
			response.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(body), "per-ip") {
			t.Errorf("request %d: %s %v %s", i, response.Status, response.Header, body)
		}
	}
	if away {
		nothingPasses(t, e.Address("in"))
	}
	ask := func() bool {
		response, err := http.Get("http://" + e.Address("in") + "/a?b")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.Header.Get(servedField) != ""
	}
	weirs.failing.Store(true)
	for range 20 {
		if ask() {
			t.Fatal("a request whose check failed was served, while weir is healthy")
		}
	}
	weirs.failing.Store(false)
	weirs.close()
	if away {
		redistest.Await(t, "requests to pass without weir", ask)
	}
}

// nothingPasses sends every request of weir verify-proxy.
func nothingPasses(t *testing.T, proxy string) {
	t.Helper()
	report, err := proxycheck.Run(t.Context(), proxycheck.Config{URL: &url.URL{Scheme: "http", Host: proxy, Path: "/a"},
		Mark: servedField, Methods: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, passed := range report.Passed {
		t.Errorf("%s: served, with status %d", passed.Name, passed.Status)
	}
	t.Logf("%d requests: %v", report.Sent, report.Statuses)
}

// TestEnvoySendsBodies: as the page says, rules read the body then, and the service gets it unchanged. One that Envoy cuts
// is refused.
func TestEnvoySendsBodies(t *testing.T) {
	p := readPage(t)
	filter, config := tree(t, p.extAuthz), tree(t, p.bootstrap)
	typed := at(t, filter, "typed_config").(map[string]any)
	typed["with_request_body"] = map[string]any{"max_request_bytes": 100, "allow_partial_message": true}
	at(t, typed, "grpc_service").(map[string]any)["initial_metadata"] = at(t, tree(t, p.withToken), "grpc_service", "initial_metadata")
	at(t, at(t, config, manager...), "http_filters").([]any)[0] = filter
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	t.Cleanup(upstream.Close)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	weirs := serve(t, "rules: [{name: large, match: {json: {model: large}}, limit: fixed_window 1/1h}]")
	e := envoytest.Start(t, string(text), "address: 0.0.0.0", "address: 127.0.0.1", "port_value: 10000", "port_value: 0",
		"port_value: 3000", "port_value: "+port(t, upstream.Listener.Addr().String()), "port_value: 8082", "port_value: "+weirs.port,
		"port_value: 8083", "port_value: "+port(t, redistest.FreeAddr(t)), "timeout: 1s", "timeout: 60s")
	for i, test := range []struct {
		body string
		want int
	}{{`{"model":"large"}`, 200}, {`{"model":"large"}`, 429}, {`{"model":"small"}`, 200}, {`{"model":"small"}` + strings.Repeat(" ", 100), 400}, {"", 400}} {
		r, _ := http.NewRequest("POST", "http://"+e.Address("in")+"/chat", strings.NewReader(test.body))
		r.Header.Set("X-Envoy-Auth-Partial-Body", "false")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != test.want || test.want == 200 && string(got) != test.body {
			t.Errorf("request %d: %s %s", i, response.Status, got)
		}
	}
}
