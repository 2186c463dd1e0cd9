package extauthz_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest/envoytest"
	"github.com/weirproject/weir/internal/server/extauthz"
	"github.com/weirproject/weir/internal/server/grpcserver"
	"github.com/weirproject/weir/internal/server/rls"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/memstore"
)

// uncounted is for servers whose metrics no test reads.
type uncounted struct{}

func (uncounted) Began()               {}
func (uncounted) Ended(string, string) {}
func (uncounted) Panicked()            {}

// token is that of the page.
const token = "0123456789abcdef0123456789abcdef"

// serve serves both services of Envoy by rules, and returns its port.
func serve(t *testing.T, rules string) string {
	t.Helper()
	g := gatetest.New(t, memstore.New(), rules)
	authorization, err := extauthz.New(g, new(clientaddr.Extractor))
	if err != nil {
		t.Fatal(err)
	}
	access, err := web.NewAccess(web.Config{Tokens: []web.Token{{Secret: token, Write: true}}})
	if err != nil {
		t.Fatal(err)
	}
	server := grpcserver.New(grpcserver.Config{Access: access, Ready: func() bool { return true }, Counts: uncounted{},
		Log: slog.New(slog.DiscardHandler), Warn: func(text string, _ ...any) { t.Error(text) }},
		rls.New(g, rls.Options{}), authorization)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Close)
	return port(t, l.Addr().String())
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// A page is docs/envoy.md: its blocks of YAML, in order.
type page struct{ rules, bootstrap, extAuthz, withToken, istio, gateway string }

func readPage(t *testing.T) page {
	t.Helper()
	text, err := os.ReadFile("../../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(found) != 6 {
		t.Fatalf("docs/envoy.md has %d blocks of YAML; this test knows 6", len(found))
	}
	return page{found[0][1], found[1][1], found[2][1], found[3][1], found[4][1], found[5][1]}
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
			drive(t, p, config)
		})
	}
	if at(t, tree(t, p.gateway), "spec", "extAuth", "grpc", "backendRefs", 0, "port") != 8082 {
		t.Error("Envoy Gateway's policy has another port")
	}
}

// drive starts all, and sends requests.
func drive(t *testing.T, p page, config map[string]any) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
		"port_value: 8082", "port_value: "+weirs, "timeout: 0.1s", "timeout: 60s")
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
}
