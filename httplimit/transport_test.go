package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
)

// A script is a server for synctest, which does not allow sockets. It responds with its lines in
// order, and repeats the last one.
type script struct {
	lines []string // "STATUS", or "STATUS Field: value; …" with | between fields
	sent  []string // when, and with what body
	start time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	s.sent = append(s.sent, fmt.Sprintf("%v%s", time.Since(s.start), body))
	line := s.lines[min(len(s.sent), len(s.lines))-1]
	var status int
	fmt.Sscan(line, &status)
	response := &http.Response{StatusCode: status, Header: make(http.Header), Body: io.NopCloser(strings.NewReader("body")), Request: r}
	for field := range strings.SplitSeq(line[3:], "|") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			response.Header.Add(strings.TrimSpace(name), value)
		}
	}
	return response, nil
}

// after is a date this long after the start of synctest's clock.
func after(d time.Duration) string {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
}

func TestTransportObeysRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		first string
		wait  time.Duration
	}{
		{"200", 0},
		{"429 Retry-After: 7", 7 * time.Second},
		{"503 Retry-After: 7", 7 * time.Second},
		{"200 Retry-After: 7", 0},
		{"429 Retry-After: 1.5", 0},
		{"429 Retry-After: -1", 0},
		{"429 Retry-After: " + after(9*time.Second), 9 * time.Second},
		{"429 Retry-After: " + after(time.Hour+9*time.Second) + "|Date: " + after(time.Hour), 9 * time.Second}, // its clock is fast
		{"429 Retry-After: " + after(-time.Hour), 0},
		{"429 Retry-After: 86400", 30 * time.Second},
		{"429 Retry-After: 99999999999999999999999", 30 * time.Second},
		{`200 RateLimit: "a";r=0;t=5`, 5 * time.Second},
		{`200 RateLimit: "a";r=1;t=5`, 0},
		{`200 RateLimit: "a";r=0`, 0},
		{`200 RateLimit: "a";r=0;t=5, "b";r=0;t=6|RateLimit: "c";r=1;t=7`, 6 * time.Second},
		{`200 RateLimit: "a";r=0;t=5;|RateLimit: "b";r=0;t=6`, 0},
		{`200 Age: 3|RateLimit: "a";r=0;t=5`, 0},
		{`200 Age: 0|RateLimit: "a";r=0;t=5`, 5 * time.Second},
		{`429 Retry-After: 2|RateLimit: "a";r=0;t=5`, 2 * time.Second},
		{`429 Retry-After: soon|RateLimit: "a";r=0;t=5`, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &script{lines: []string{tt.first, "200"}, start: time.Now()}
			client := &http.Client{Transport: &httplimit.Transport{Base: server}}
			send(t, client, "http://a/")
			send(t, client, "http://b/") // another host is not concerned
			send(t, client, "http://a/")
			if got, want := fmt.Sprint(server.sent), fmt.Sprint([]time.Duration{0, 0, tt.wait}); got != want {
				t.Errorf("%s: sent at %v, want %v", tt.first, got, want)
			}
		})
	}
}

func send(t *testing.T, client *http.Client, url string) int {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestTransportWaitsForItsLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &script{lines: []string{"200"}, start: time.Now()}
		own := &httplimit.Transport{Base: server, Limiter: limiter(t, memstore.New(), weir.GCRA(2, 1, 10*time.Second)), MaxWait: 15 * time.Second}
		client := &http.Client{Transport: own}
		for range 4 {
			send(t, client, "http://a/")
		}
		if got := fmt.Sprint(server.sent); got != "[0s 0s 10s 20s]" {
			t.Errorf("sent at %v", got)
		}
		own.MaxWait = 5 * time.Second // the caller has set no deadline
		if _, err := client.Get("http://a/"); !errors.Is(err, weir.ErrTooLong) || !strings.Contains(err.Error(), "the maximum wait is 5s: ") {
			t.Errorf("over MaxWait: %v", err)
		}
		own.Key = httplimit.Header("X-Key")
		if _, err := client.Get("http://a/"); !errors.Is(err, httplimit.ErrMissing) {
			t.Errorf("without a key: %v", err)
		}
	})
}

// A wait beyond the deadline fails at once, and nothing is sent.
func TestTransportFailsEarlyOnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hourly := limiter(t, memstore.New(), weir.PerHour(1))
		for name, transport := range map[string]*httplimit.Transport{"server": {}, "own": {Limiter: hourly}} {
			server := &script{lines: []string{"200"}, start: time.Now()}
			if name == "server" {
				server.lines = []string{`200 RateLimit: "a";r=0;t=20`, "200"}
			}
			transport.Base = server
			client := &http.Client{Transport: transport}
			send(t, client, "http://a/")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			body := &closing{Reader: strings.NewReader("x")}
			request, _ := http.NewRequestWithContext(ctx, "POST", "http://a/", body)
			_, err := client.Do(request)
			if !errors.Is(err, weir.ErrTooLong) || !errors.Is(err, context.DeadlineExceeded) || time.Since(server.start) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(server.start))
			}
			if len(server.sent) != 1 || !body.closed {
				t.Errorf("%s: sent %v, the body closed: %v", name, server.sent, body.closed)
			}
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestTransportRetries(t *testing.T) {
	for _, tt := range []struct {
		name    string
		retries int
		lines   []string
		body    io.Reader // nil: a GET
		want    string
		status  int
	}{
		{"no Retry-After", 0, []string{"429", "200"}, nil, "[0s]", 429},
		{"Retry-After", 2, []string{"429 Retry-After: 3", "503", "200"}, nil, "[0s 3s 5s]", 200}, // then its own second doubles
		{"Retry-After, retries exhausted", 1, []string{"429 Retry-After: 3"}, nil, "[0s 3s]", 429},
		{"another status", 2, []string{"500", "200"}, nil, "[0s]", 500},
		{"a body that can be read again", 1, []string{"429", "200"}, strings.NewReader("x"), "[0sx 1sx]", 200},
		{"a body that cannot", 1, []string{"429", "200"}, io.MultiReader(strings.NewReader("x")), "[0sx]", 429},
		{"longer than MaxWait", 1, []string{"429 Retry-After: 31", "200"}, nil, "[0s]", 429},
		{"longer than the context", 1, []string{"429 Retry-After: 21", "200"}, nil, "[0s]", 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &script{lines: tt.lines, start: time.Now()}
				client := &http.Client{Transport: &httplimit.Transport{Base: server, Retries: tt.retries}}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				method := "GET"
				if tt.body != nil {
					method = "POST"
				}
				request, err := http.NewRequestWithContext(ctx, method, "http://a/", tt.body)
				if err != nil {
					t.Fatal(err)
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(response.Body)
				if got := fmt.Sprint(server.sent); got != tt.want || response.StatusCode != tt.status || string(text) != "body" {
					t.Errorf("sent %v, want %v; answered %d %q", got, tt.want, response.StatusCode, text)
				}
			})
		})
	}
}

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idle{}
	(&http.Client{Transport: &httplimit.Transport{Base: base}}).CloseIdleConnections()
	if !base.closed {
		t.Error("the base did not close its idle connections")
	}
}

type idle struct {
	http.Transport
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

func TestTransportWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &script{lines: []string{"429 Retry-After: 20"}, start: time.Now()}
		client := &http.Client{Transport: &httplimit.Transport{Base: server, Retries: 1}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		for range 2 { // while it waits to repeat; before it is sent
			request, _ := http.NewRequestWithContext(ctx, "GET", "http://a/", nil)
			if _, err := client.Do(request); !errors.Is(err, context.Canceled) || time.Since(server.start) != 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(server.start))
			}
		}
	})
}

// The number of recorded hosts is bounded.
func TestTransportHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &script{lines: []string{"429 Retry-After: 7"}, start: time.Now()}
		client := &http.Client{Transport: &httplimit.Transport{Base: server}}
		for i := range 1025 {
			send(t, client, fmt.Sprintf("http://%d/", i))
		}
		send(t, client, "http://1024/") // not remembered: sent at once
		send(t, client, "http://1023/")
		if last := server.sent[len(server.sent)-2:]; fmt.Sprint(last) != "[0s 7s]" {
			t.Errorf("sent at %v", last)
		}
		send(t, client, "http://1024/") // the others are over: there is room
		send(t, client, "http://1024/")
		if last := server.sent[len(server.sent)-1]; last != "14s" {
			t.Errorf("sent at %v", last)
		}
	})
}

// Both sides over a real socket: the client waits as requested, and its next request passes.
func TestTransportReadsMiddlewareFields(t *testing.T) {
	var refused atomic.Int64
	store := memstore.New()
	m := perAddress(t, limiter(t, store, weir.FixedWindow{Limit: 2, Window: 300 * time.Millisecond}), &httplimit.Options{Observe: func(_ *http.Request, e httplimit.Event) {
		if e.Outcome == httplimit.Refused {
			refused.Add(1)
		}
	}})
	server := httptest.NewServer(m(hello))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &httplimit.Transport{Retries: 3}}
	for range 5 {
		response, err := client.Post(server.URL, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 {
			t.Errorf("%d", response.StatusCode)
		}
	}
	if refused.Load() != 0 {
		t.Errorf("%d were refused: RateLimit says r=0 before that", refused.Load())
	}
}

// The slots of a concurrency limit are held until the bodies are closed: a crawler may send as much as it likes, two at
// a time. A request that fails, or is repeated, leaves none.
func TestTransportHoldsASlotUntilTheBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(memstore.New(), "partner", weir.PerMinute(600),
			weir.Concurrency{Limit: 2, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		transport := &httplimit.Transport{Limiter: limiter, Retries: 1, MaxWait: 10 * time.Second,
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				status := http.StatusOK
				switch n := calls.Add(1); {
				case r.URL.Path == "/broken":
					return nil, errors.New("broken")
				case r.URL.Path == "/again" && n == 1:
					status = http.StatusTooManyRequests
				}
				return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("page")), Request: r}, nil
			})}
		get := func(path string) (*http.Response, error) {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://partner.example"+path, nil)
			return transport.RoundTrip(r)
		}
		first, err := get("/again")
		if err != nil || calls.Load() != 2 {
			t.Fatal(calls.Load(), err)
		}
		if _, err := get("/broken"); err == nil {
			t.Fatal("a request failed without an error")
		}
		if _, err := get("/"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := get("/"); !errors.Is(err, weir.ErrTooLong) || time.Since(begun) != 10*time.Second {
			t.Errorf("a third beside two open bodies: %v after %v", err, time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { first.Body.Close() })
		begun = time.Now()
		if _, err := get("/"); err != nil || time.Since(begun) != time.Second {
			t.Errorf("after one was closed: %v after %v", err, time.Since(begun))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
