package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestHealthAnswersWhenFilesRunOut floods a gateway that may open few files with requests of
// HTTP/2, each of which is a connection to the upstream: /readyz and the log must go on.
func TestHealthAnswersWhenFilesRunOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var arrived atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/once" {
			return
		}
		arrived.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer upstream.Close()
	defer close(release)
	const files = 320
	p := call{}.start(t, "bash", "-c", fmt.Sprintf(
		"ulimit -n %d && exec weir serve --http 127.0.0.1:0 --set server.http.max_connections=40 --gateway 127.0.0.1:0 --set server.gateway.max_connections=40 --upstream %s", files, upstream.URL))
	// 240 are left for clients: 80 are given away, and the upstream has the others.
	const want = "server.upstream.max_requests=160"
	redistest.Await(t, want, func() bool { return strings.Contains(p.logs(), want) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients [8]http.Transport
	send := func(client *http.Transport, path string) int {
		request, err := http.NewRequestWithContext(ctx, "GET", p.at("gateway")+path, nil)
		if err != nil {
			return 0
		}
		response, err := client.RoundTrip(request)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	for i := range clients { // so that each has its one connection
		clients[i].Protocols = new(http.Protocols)
		clients[i].Protocols.SetUnencryptedHTTP2(true)
		defer clients[i].CloseIdleConnections()
		if got := send(&clients[i], "/once"); got != 200 {
			t.Fatalf("/once is answered %d", got)
		}
	}
	var refused atomic.Int64
	for i := range clients {
		for range 60 {
			go func() {
				if send(&clients[i], "/") == 503 {
					refused.Add(1)
				}
			}()
		}
	}
	redistest.Await(t, "the upstream's share", func() bool { return arrived.Load() == 160 })
	redistest.Await(t, "refusals", func() bool { return refused.Load() == 480-160 })
	if got := status(t, p.at("http")+"/readyz"); got != 200 {
		t.Errorf("readyz: %d", got)
	}
	if logs := p.logs(); strings.Contains(logs, "too many open files") || !strings.Contains(logs, "maximum of concurrent requests to the upstream reached") {
		t.Errorf("the log has\n%s", logs)
	}
	for _, line := range []string{`weir_gateway_failures_total{status="503"} 320`, `weir_http_requests_total{server="gateway",status="5xx"} 320`, `weir_http_requests_in_flight{server="gateway"} 160`} {
		redistest.Await(t, line, func() bool {
			_, _, text := get(t, p.at("http")+"/metrics")
			return strings.Contains(text, line+"\n")
		})
	}
}

func TestGivenCeilingsThatDoNotFitAreLowered(t *testing.T) {
	t.Parallel()
	p := call{}.start(t, "bash", "-c", "ulimit -n 200 && exec weir serve --http 127.0.0.1:0 --set server.http.max_connections=1000 --resp 127.0.0.1:0 --set server.resp.max_connections=500")
	for _, want := range []string{"server.http.max_connections=100", "server.resp.max_connections=50"} {
		redistest.Await(t, want, func() bool { return strings.Contains(p.logs(), want) })
	}
	p.end()
}
