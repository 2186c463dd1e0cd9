//go:build unix

package cli_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// TestMetricsElsewhere: an address for metrics takes them away from where strangers may come.
func TestMetricsElsewhere(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--metrics", "127.0.0.1:0")
	for url, want := range map[string]int{
		p.at("http") + "/metrics": 404, p.at("http") + "/livez": 200, p.at("http") + "/readyz": 200,
		p.at("metrics") + "/metrics": 200, p.at("metrics") + "/livez": 200, p.at("metrics") + "/readyz": 200,
		p.at("metrics") + "/v1/openapi.json": 404, p.at("metrics") + "/v1/admin/rules": 404,
		p.at("metrics") + "/-/reload": 404,
	} {
		if got := status(t, url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
	if strings.Count(p.banner, "/metrics") != 1 {
		t.Errorf("the banner is\n%s", p.banner)
	}
	p.end()
	p = call{}.serve(t, "--metrics", "off")
	if got := status(t, p.at("http")+"/metrics"); got != 404 || strings.Contains(p.banner, "metrics") {
		t.Errorf("off: %d\n%s", got, p.banner)
	}
	p.end()
	p = call{}.serve(t, "--http", "off", "--upstream", "demo", "--gateway", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
	if got := status(t, p.at("metrics")+"/metrics"); got != 200 {
		t.Errorf("of a gateway alone: %d", got)
	}
	p.end()
}

// TestFullListeners: clients beyond the maximum get an error or are disconnected, and a front end with an
// address of its own goes on.
func TestFullListeners(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--http-max-connections", "1", "--resp", "127.0.0.1:0", "--resp-max-connections", "1",
		"--metrics", "127.0.0.1:0")
	for listener, want := range map[string]string{"http": "", "resp": "-ERR max number of clients reached\r\n"} {
		_, address, _ := strings.Cut(p.at(listener), "://")
		hold(t, address)
		if text, err := io.ReadAll(hold(t, address)); string(text) != want {
			t.Errorf("%s: %q %v, want %q", listener, text, err, want)
		}
	}
	if got := status(t, p.at("metrics")+"/readyz"); got != 200 {
		t.Errorf("%d", got)
	}
	for _, server := range []string{"http", "resp"} {
		line := `weir_connections_refused_total{server="` + server + `"} 1`
		if _, _, text := get(t, p.at("metrics")+"/metrics"); !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
		if !strings.Contains(p.logs(), "connection limit reached") {
			t.Errorf("not logged:\n%s", p.logs())
		}
	}
	// Otherwise it was hung up on because it said nothing for too long.
	redistest.Await(t, "the log", func() bool { return strings.Contains(p.logs(), "new connections are closed") })
	p.end()
}

// hold opens a connection and says nothing.
func hold(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}

// TestHealthAnswersAnyHost, as a balancer's plain check sends none, with the status alone: names of rules and sources,
// and metrics, stay hidden from pages whose name resolves to this machine.
func TestHealthAnswersAnyHost(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--store", "redis://127.0.0.1:1") // nothing listens there: ready, with a problem
	_, address, _ := strings.Cut(p.at("http"), "://")
	ask := func(head string) string {
		conn := hold(t, address)
		io.WriteString(conn, head+"\r\n\r\n")
		text, _ := io.ReadAll(conn)
		return string(text)
	}
	const alone, full = "\r\n{\"status\":\"ready\"}\n", `"degraded":["the last store call failed`
	for _, test := range []struct{ head, status, body string }{
		{"GET /readyz HTTP/1.0", "200 OK", alone},
		{"GET /livez HTTP/1.0", "200 OK", "\r\n{\"status\":\"alive\"}\n"},
		{"GET /readyz HTTP/1.1\r\nHost: node1:8080\r\nConnection: close", "200 OK", alone},
		{"GET /livez HTTP/1.1\r\nHost: node1\r\nConnection: close", "200 OK", "alive"},
		{"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close", "200 OK", full},
		{"GET /metrics HTTP/1.1\r\nHost: node1\r\nConnection: close", "403 Forbidden", "host is"},
	} {
		if text := ask(test.head); !strings.Contains(text, " "+test.status+"\r\n") || !strings.Contains(text, test.body) {
			t.Errorf("%q is answered\n%s\nwant %s and %s", test.head, text, test.status, test.body)
		}
	}
	p.end()
}
