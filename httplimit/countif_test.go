package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const failedRequests = `
  - {name: failed, count_if: {status: [401, 5xx]}, limit: sliding_log 10/1h}
  - {name: held, limit: concurrency 2 ttl 1m}
`

// usedBy is the number of units that a gate's first rule has charged of ten.
func usedBy(t *testing.T, g *gate.Gate) int64 {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(context.Background(), &rules.Request{}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	return 10 - v.At(0).Decision.Remaining
}

// TestCountIfAtTheHeadOfTheResponse, over sockets: what a handler may do before, instead of and after it.
func TestCountIfAtTheHeadOfTheResponse(t *testing.T) {
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		want  int64
	}{
		"nothing":       {func(http.ResponseWriter, *http.Request) {}, 0},
		"a body":        {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, 0},
		"401":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 1},
		"103 first":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(500) }, 1},
		"two statuses":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(401) }, 0},
		"panics":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1},
		"panics later":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 0},
		"flushes first": {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(401) }, 0},
		"hijacks": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 401 Own\r\nContent-Length: 0\r\n\r\n")
				conn.Close()
			}
		}, 0},
	} {
		g := gateOf(t, memstore.New(), failedRequests)
		m, err := httplimit.ByRules(g, nil)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(m(test.serve))
		if response, err := http.Post(server.URL, "", nil); err == nil {
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		server.Close() // waits for the handler
		if used := usedBy(t, g); used != test.want {
			t.Errorf("%s: %d units are charged, want %d", name, used, test.want)
		}
	}
}

// TestCountIfBeforeTheClientGetsTheHead: units are back while a stream goes on, and before its client can ask again.
func TestCountIfBeforeTheClientGetsTheHead(t *testing.T) {
	g := gateOf(t, memstore.New(), failedRequests)
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	server := httptest.NewServer(m(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if used := usedBy(t, g); used != 1 {
			t.Errorf("under way %d units are charged", used)
		}
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-end
	})))
	defer server.Close()
	defer close(end)
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || usedBy(t, g) != 0 {
		t.Errorf("while the stream goes on, %d units are charged; %q %v", usedBy(t, g), line, err)
	}
}

// TestClientThatLeavesIsCounted: hanging up is no way around, whatever the handler writes then.
func TestClientThatLeavesIsCounted(t *testing.T) {
	g := gateOf(t, memstore.New(), failedRequests)
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	arrived, ended := make(chan struct{}), make(chan struct{})
	limited := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		w.WriteHeader(499)
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		limited.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-arrived
		leave()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(r); err == nil {
		response.Body.Close()
		t.Error("the client got a response")
	}
	<-ended
	if used := usedBy(t, g); used != 1 {
		t.Errorf("%d units are charged, want 1", used)
	}
}

// TestCountIfWithoutSettling: a handler that only authorizes never knows the response, so that each request counts.
func TestCountIfWithoutSettling(t *testing.T) {
	g := gateOf(t, memstore.New(), failedRequests)
	m, err := httplimit.ByRules(g, &httplimit.RuleOptions{KeepEstimates: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		ask(m(hello), "GET", "/")
	}
	if r := ask(m(hello), "GET", "/"); r.Code != 429 || usedBy(t, g) != 10 {
		t.Errorf("after ten: %d, with %d units", r.Code, usedBy(t, g))
	}
}
