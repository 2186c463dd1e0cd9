package caddylimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

// TestFramework: the handler before handlers of Caddy.
func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Route: "GET /items/{id}", Serve: func(
		t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
		h := &Handler{limited: limited}
		mux := http.NewServeMux()
		for pattern, handler := range s.Handlers() {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
					if strings.HasPrefix(r.URL.Path, "/error/") {
						return caddyhttp.Error(adapttest.Code(r.URL.Path), errors.New("an error"))
					}
					handler(w, r)
					return nil
				}))
				if err != nil {
					w.WriteHeader(statusOf(err))
				}
			})
		}
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.URL
	}})
}

// site is a Caddyfile of a site whose clients are behind proxies on loopback addresses.
const site = `{
	admin off
	persist_config off
	auto_https off
	servers {
		trusted_proxies static 127.0.0.0/8
	}
}
http://%s {
	weir {
		rules %s
		timeout 100ms
		nodes 2
	}
	respond "item"
}
`

// run runs Caddy with a Caddyfile.
func run(t *testing.T, text string) error {
	t.Helper()
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		if !strings.Contains(warning.Message, "not formatted") {
			t.Error(warning)
		}
	}
	var config caddy.Config
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	config.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "FATAL"}}}}
	return caddy.Run(&config)
}

// TestCaddyfile: a site is limited by the client that Caddy sees, before its handlers, and a reload of Caddy keeps the
// counts.
func TestCaddyfile(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules: [{name: r, key: [client.ip], limit: sliding_log 1/1h}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // for a free port
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	text := fmt.Sprintf(site, address, rules)
	if err := run(t, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop() })
	ask := func(client string) (status int, body string) {
		t.Helper()
		request, _ := http.NewRequest("GET", "http://"+address, nil)
		request.Close = true // a reload closes idle connections
		request.Header.Set("X-Forwarded-For", client)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	for i, want := range []struct {
		client string
		status int
	}{{"192.0.2.1", 200}, {"192.0.2.1", 429}, {"192.0.2.2", 200}} {
		if status, body := ask(want.client); status != want.status || status == 200 && body != "item" {
			t.Errorf("request %d is answered %d %s, want %d", i, status, body, want.status)
		}
	}
	if err := run(t, strings.Replace(text, `respond "item"`, `respond "other"`, 1)); err != nil {
		t.Fatal(err)
	}
	if status, _ := ask("192.0.2.1"); status != 429 {
		t.Errorf("after a reload: %d, want 429", status)
	}
	if status, body := ask("192.0.2.3"); status != 200 || body != "other" {
		t.Errorf("after a reload: %d %s", status, body)
	}
}

// TestInvalidSettings: each names the setting, and the running configuration stays.
func TestInvalidSettings(t *testing.T) {
	for block, want := range map[string]string{
		"weir":                                    "no rules",
		"weir rules.yaml":                         "wrong argument count",
		"weir {\nrules /no/such/file.yaml\n}":     "/no/such/file.yaml",
		"weir {\nstorage memory\n}":               `no setting "storage"; allowed: rules, store`,
		"weir {\ntimeout soon\n}":                 `timeout is "soon"; allowed: a duration`,
		"weir {\nnodes 0\n}":                      `nodes is "0"; allowed`,
		"weir {\nstore\n}":                        "wrong argument count",
		"weir {\nrules a\nstore gopher://host\n}": "unknown scheme",
	} {
		text := "{\nadmin off\nauto_https off\npersist_config off\n}\nhttp://127.0.0.1:0 {\n" + block + "\n}\n"
		if err := run(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", block, err, want)
		}
	}
}

// TestSettings: the settings of a Caddyfile are those of JSON.
func TestSettings(t *testing.T) {
	for text, want := range map[string]Handler{
		`weir {
			rules /etc/caddy/weir.yaml
			store redis://127.0.0.1:6379
		}`: {Rules: "/etc/caddy/weir.yaml", Store: "redis://127.0.0.1:6379"},
		"weir {\nrules https://config.example/r\ntimeout 20ms\nnodes 3\nstate /var/lib/caddy/counts\n}": {
			Rules: "https://config.example/r", Timeout: caddy.Duration(20 * time.Millisecond), Nodes: 3,
			State: "/var/lib/caddy/counts"},
	} {
		var h Handler
		if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err != nil {
			t.Error(err)
		}
		got, _ := json.Marshal(h)
		if wanted, _ := json.Marshal(want); string(got) != string(wanted) {
			t.Errorf("%s: %s, want %s", text, got, wanted)
		}
	}
}
