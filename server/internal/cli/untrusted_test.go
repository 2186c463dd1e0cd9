package cli_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// A proxy that is not trusted makes all its clients one: the log names the missing flag.
func TestUntrustedProxyIsLogged(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "2/1h per user", "--set", "server.user_header=X-User", "--trusted-proxies", "192.0.2.1",
		"--gateway", "127.0.0.1:0", "--upstream", "demo")
	for range 3 {
		get(t, p.at("gateway")+"/", "X-Forwarded-For", "198.51.100.7", "X-User", "ann")
	}
	p.hasMetrics(t, `weir_untrusted_total{said="client_header",server="gateway"} 3`, `weir_untrusted_total{said="user_header",server="gateway"} 3`)
	for _, said := range []string{"client header of an untrusted peer", "user header of an untrusted peer"} {
		if n := strings.Count(p.logs(), said); n != 1 {
			t.Errorf("%d lines say that a peer %s:\n%s", n, said, p.logs())
		}
	}
	if !strings.Contains(p.logs(), "--trusted-proxies") || !strings.Contains(p.logs(), "peer=127.0.0.1:") {
		t.Errorf("the log has\n%s", p.logs())
	}
	p.end()

	trusting := call{}.serve(t, "--limit", "2/1h", "--trusted-proxies", "127.0.0.1", "--set", "server.client_header=CF-Connecting-IP", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	for i, want := range []int{200, 200, 429} {
		if got, _, _ := get(t, trusting.at("gateway")+"/", "CF-Connecting-IP", "198.51.100.7"); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if got, _, _ := get(t, trusting.at("gateway")+"/", "CF-Connecting-IP", "198.51.100.8"); got != 200 {
		t.Errorf("another client: %d", got)
	}
	if strings.Contains(trusting.logs(), "not trusted") {
		t.Errorf("the log has\n%s", trusting.logs())
	}
	trusting.end()
}

func TestUntrustedUnixSocketIsLogged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	p := call{}.serve(t, "--limit", "2/1h", "--gateway", "unix://"+path, "--upstream", "demo")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	redistest.Await(t, "the log", func() bool { return strings.Contains(p.logs(), "--trusted-proxies unix") })
	p.hasMetrics(t, `weir_untrusted_total{said="unix_socket",server="gateway"} 1`)
	p.end()
}

func TestExplainTellsWhatIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := call{}.run(t, "explain", "--limit", "5/1m per user", "--user", "ann", "--header", "X-Forwarded-For=198.51.100.7", "--path", "/")
	for _, want := range []string{"X-Forwarded-For is ignored: 127.0.0.1 is not in --trusted-proxies", "a gateway would ignore the user: 127.0.0.1"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it does not say %q:\n%s", want, r.out)
		}
	}
	r = call{}.run(t, "explain", "--limit", "5/1m per user", "--trusted-proxies", "127.0.0.1", "--user", "ann", "--header", "X-Forwarded-For=198.51.100.7", "--path", "/")
	if strings.Contains(r.out, "but") || !strings.Contains(r.out, "client  198.51.100.7") {
		t.Errorf("with a trusted proxy:\n%s", r.out)
	}
}

func TestErrorsOfTrustedProxiesNameTheFlag(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ value, want string }{
		{"10.0.0.1/8", `server.trusted_proxies has "10.0.0.1/8"; allowed: 10.0.0.0/8 for that network`},
		{"0.0.0.0/1,128.0.0.0/1", "server.trusted_proxies, server.client_header: trusted is [0.0.0.0/1 128.0.0.0/1]; allowed: the networks of your proxies; together these are all of IPv4"},
		{"x", `server.trusted_proxies has "x"; allowed:`},
	} {
		r := call{}.run(t, "serve", "--http", "127.0.0.1:0", "--trusted-proxies", tt.value)
		if r.code != 2 || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: exit %d %s", tt.value, r.code, r.err)
		}
	}
}

// A page whose name means 127.0.0.1 reads neither rules' names nor anything else: health is a status alone.
func TestMetricsAnswerOwnNamesAlone(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--metrics", "127.0.0.1:0")
	for listener, paths := range map[string][]string{"http": {"/readyz", "/livez"}, "metrics": {"/metrics", "/readyz", "/livez"}} {
		for _, path := range paths {
			for host, want := range map[string]int{"rebound.example": 403, "localhost:1": 200, "[::1]": 200} {
				request, err := http.NewRequestWithContext(t.Context(), "GET", p.at(listener)+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if path != "/metrics" {
					want = 200
				}
				request.Host = host
				if got, _, _ := do(t, request); got != want {
					t.Errorf("%s%s as %s: %d, want %d", listener, path, host, got, want)
				}
			}
		}
	}
	p.end()
}

// hasMetrics waits until /metrics has these lines.
func (p *process) hasMetrics(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		redistest.Await(t, line, func() bool {
			_, _, text := get(t, p.at("http")+"/metrics")
			return strings.Contains(text, "\n"+line+"\n")
		})
	}
}
