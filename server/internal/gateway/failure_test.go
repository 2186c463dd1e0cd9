package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/gateway"
)

func TestRateLimitFieldsAreMerged(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["RateLimit"] = []string{`"a";r=1`, `"b";r=2`}
		w.Header().Set("RateLimit-Policy", `"a";q=1`)
		w.Header().Set("X-RateLimit-Limit", "9")
		if r.URL.Path == "/refused" {
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	server := front(t, newGateway(t, up.URL, limited(t, 5)))
	for path, status := range map[string]int{"/": 200, "/refused": 429} {
		response, _ := raw(t, server, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		h := response.Header
		if got := strings.Join(h["Ratelimit"], " | "); response.StatusCode != status || !strings.HasPrefix(got, `"gate";r=`) || !strings.HasSuffix(got, ` | "a";r=1 | "b";r=2`) {
			t.Errorf("%s: %s, RateLimit is %s", path, response.Status, got)
		}
		if got := strings.Join(h["Ratelimit-Policy"], " | "); got != `"gate";q=5;w=3600 | "a";q=1` || h.Get("X-RateLimit-Limit") != "9" {
			t.Errorf("%s: %v", path, h)
		}
		if got := strings.Join(h["Retry-After"], " | "); (got == "17") != (status == 429) {
			t.Errorf("%s: Retry-After is %q", path, got)
		}
	}
}

func TestRefusedRequestsOpenNoConnection(t *testing.T) {
	up := open(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") })
	refusing := func(http.Handler) http.Handler { // as a limit that refuses
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) })
	}
	server := front(t, newGateway(t, up.URL, refusing))
	response, _ := raw(t, server, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if response.StatusCode != 429 || response.Close {
		t.Errorf("%s, close %v", response.Status, response.Close)
	}
	// A small rest is discarded, and the connection is kept.
	if response, _ = raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"); response.StatusCode != 429 || response.Close {
		t.Errorf("a small body: %s, close %v", response.Status, response.Close)
	}
	// A large one is not: the response comes before the end of the body and closes the connection.
	response, _ = raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
	if response.StatusCode != 429 || !response.Close {
		t.Errorf("a large body: %s, close %v", response.Status, response.Close)
	}
	stream, writer := io.Pipe()
	defer writer.Close()
	if response, err := h2c(t).Post(server.URL, "", stream); err != nil || response.StatusCode != 429 {
		t.Errorf("a stream: %v %v", response, err)
	}
	if n := up.connections.Load(); n != 0 {
		t.Errorf("%d connections were opened", n)
	}
}

// A witness receives the failures that a gateway reports.
type witness struct {
	log      redistest.Log
	reported chan int
	lines    *slog.Logger
}

func newWitness() *witness {
	w := &witness{reported: make(chan int, 100)}
	w.lines = slog.New(slog.NewTextHandler(&w.log, nil))
	return w
}

func (w *witness) text() string { return w.log.String() }

// config is that of a gateway with this transport; nil: the usual one.
func (w *witness) config(transport http.RoundTripper) gateway.Config {
	return gateway.Config{Log: w.lines, Observe: func(status int, _ error) { w.reported <- status }, Transport: transport}
}

// await returns the next status that the observer receives.
func (w *witness) await(t *testing.T) int {
	t.Helper()
	select {
	case status := <-w.reported:
		return status
	case <-time.After(time.Minute):
		t.Fatal("the observer was not called")
		return 0
	}
}

func TestUpstreamFailures(t *testing.T) {
	silent := open(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mute := open(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	garbled := open(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(c, "HTTP/1.1 what\r\n\r\n")
		c.Close()
	})
	impatient := gateway.NewTransport(&url.URL{Scheme: "http"})
	impatient.ResponseHeaderTimeout = 20 * time.Millisecond
	for _, c := range []struct {
		name, upstream string
		transport      http.RoundTripper // nil: the usual one, because the machine may be slow too
		status         int
	}{
		{"closed port", "http://" + redistest.FreeAddr(t), nil, 502}, {"connection closed", mute.URL, nil, 502},
		{"it speaks something else", garbled.URL, nil, 502}, {"it is slow", silent.URL, impatient, 504},
	} {
		w := newWitness()
		server := front(t, newGateway(t, c.upstream, limited(t, 5), w.config(c.transport)))
		response, body := raw(t, server, "GET /reset?token=hush HTTP/1.1\r\nHost: h\r\nAuthorization: hush\r\n\r\n")
		var problem struct {
			Type, Title, Detail string
			Status              int
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		h := response.Header
		if response.StatusCode != c.status || problem.Status != c.status || problem.Detail == "" || h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %s", c.name, response.Status, body)
		}
		if h.Get("RateLimit") == "" {
			t.Errorf("%s: the limit's fields are gone", c.name)
		}
		if got := w.await(t); got != c.status {
			t.Errorf("%s: the observer got %d", c.name, got)
		}
		if text := w.text(); !strings.Contains(text, fmt.Sprintf("status=%d", c.status)) || !strings.Contains(text, "method=GET") || strings.Contains(text, "hush") || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: logged %s\nanswered %s", c.name, text, body)
		}
	}
}

func TestDisconnectedClientIsNotLogged(t *testing.T) {
	arrived := make(chan struct{})
	up := open(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done() // the upstream sees the disconnect
	})
	w := newWitness()
	server := front(t, newGateway(t, up.URL, unlimited, w.config(nil)))
	connection := dial(t, server)
	io.WriteString(connection, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	connection.Close()
	if status := w.await(t); status != 499 || w.text() != "" {
		t.Errorf("the observer got %d, the log %q", status, w.text())
	}
}

func TestUnreadableBodyIsAClientError(t *testing.T) {
	up := open(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	w := newWitness()
	bounded := func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 10) }
	server := front(t, newGateway(t, up.URL, bounded, w.config(nil)))
	for body, want := range map[string]int{"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n": 400, "Content-Length: 11\r\n\r\nhello world": 413} {
		if response, text := raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\n"+body); response.StatusCode != want || w.await(t) != want {
			t.Errorf("%q: %s %s", body, response.Status, text)
		}
	}
	connection := dial(t, server)
	io.WriteString(connection, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")
	connection.Close()
	if status := w.await(t); status != 400 && status != 499 {
		t.Errorf("a client that disconnected during its upload is reported as %d", status)
	}
}

// A broken response must not look complete.
func TestBrokenResponseAbortsTheConnection(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	w := newWitness()
	server := front(t, newGateway(t, up.URL, unlimited, w.config(nil)))
	for name, client := range map[string]*http.Client{"http/1.1": server.Client(), "h2c": h2c(t)} {
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%s: %q ended as if it were whole", name, body)
		}
		response.Body.Close()
	}
	if !strings.Contains(w.text(), "broke off") {
		t.Errorf("logged: %q", w.text())
	}
}

func TestFailureLogIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWitness()
		failing := errors.New("it is on fire")
		transport := roundTrip(func(*http.Request) (*http.Response, error) { return nil, failing })
		handler := newGateway(t, "http://upstream", unlimited, w.config(transport))
		ask := func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), "GET", "/", nil))
			<-w.reported
		}
		for range 50 {
			ask()
		}
		if n := strings.Count(w.text(), "\n"); n != 1 || !strings.Contains(w.text(), "it is on fire") {
			t.Errorf("%d lines: %s", n, w.text())
		}
		failing = fmt.Errorf("dial: %w", context.DeadlineExceeded)
		ask()
		if n := strings.Count(w.text(), "\n"); n != 2 || !strings.Contains(w.text(), "status=504") {
			t.Errorf("another kind has a line of its own; %d lines: %s", n, w.text())
		}
		failing = errors.New("it still is")
		time.Sleep(time.Second)
		ask()
		if !strings.Contains(w.text(), "unlogged=49") {
			t.Errorf("the number of suppressed lines is not logged: %s", w.text())
		}
	})
}
