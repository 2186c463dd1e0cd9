package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func handler(t *testing.T, store weir.Store, limit string) http.Handler {
	t.Helper()
	spec, err := weir.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := weir.New(store, "per-address", spec)
	if err != nil {
		t.Fatal(err)
	}
	return limited(limiter, http.HandlerFunc(hello))
}

func get(h http.Handler, peer string) *http.Response {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestTheLimitIsToldInFields(t *testing.T) {
	now := weir.Instant(1_790_000_000_000_000)
	h := handler(t, memstore.New(memstore.WithClock(func() weir.Instant { return now })), "sliding_log 2/1m")
	for _, want := range []struct {
		after                        time.Duration
		status                       int
		policy, remaining, retryTime string
	}{
		{0, 200, `"per-address";q=2;w=60`, `"per-address";r=1;t=60`, ""},
		{0, 200, `"per-address";q=2;w=60`, `"per-address";r=0;t=60`, ""},
		{0, 429, `"per-address";q=2;w=60`, `"per-address";r=0;t=60`, "60"},
		{59*time.Second - time.Microsecond, 429, `"per-address";q=2;w=60`, `"per-address";r=0;t=2`, "2"}, // 1.000001 s
		{time.Second + time.Microsecond, 200, `"per-address";q=2;w=60`, `"per-address";r=1;t=60`, ""},
	} {
		now += weir.Instant(want.after.Microseconds())
		got := get(h, "192.0.2.1:1234")
		if got.StatusCode != want.status || got.Header.Get("RateLimit-Policy") != want.policy ||
			got.Header.Get("RateLimit") != want.remaining || got.Header.Get("Retry-After") != want.retryTime {
			t.Errorf("got %d %v, want %+v", got.StatusCode, got.Header, want)
		}
	}
}

func TestAClientIsItsAddressOrItsNetwork(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:1234":                "ip:192.0.2.1",
		"[::ffff:192.0.2.1]:1234":       "ip:192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":     "ip:2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":             "ip:fe80::/64",
		"@":                             "ip:unknown",
		"":                              "ip:unknown",
		"203.0.113.7, 192.0.2.1:80":     "ip:unknown",
		"[2001:db8:1:2:ffff:ff:f:f]:80": "ip:2001:db8:1:2::/64",
	} {
		if got := client(&http.Request{RemoteAddr: peer}); got != want {
			t.Errorf("%q is %q, want %q", peer, got, want)
		}
	}
}

func TestAQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, start := handler(t, memstore.New(), "leaky_queue 1/s queue 2"), time.Now()
		for i, want := range []int{200, 200} {
			if got := get(h, "192.0.2.1:1"); got.StatusCode != want || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("the %dth: %d after %v", i+1, got.StatusCode, time.Since(start))
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if pause(gone, time.Hour) {
			t.Error("served a client that left")
		}
	})
}

func TestRequestsPassWhileTheStoreDoesNotAnswer(t *testing.T) {
	store := memstore.New()
	h := handler(t, store, "1/h")
	store.Close()
	for range 3 {
		if got := get(h, "192.0.2.1:1"); got.StatusCode != 200 {
			t.Errorf("got %d", got.StatusCode)
		}
	}
}

func TestRunRefusesWhatItCannotServe(t *testing.T) {
	for limit, says := range map[string]string{"0/s": "capacity is 0", "concurrency 5 ttl 1s": "release"} {
		if err := run(t.Context(), "127.0.0.1:0", limit, "memory", time.Second); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", limit, err)
		}
	}
	if err := run(t.Context(), "127.0.0.1:0", "1/s", "nonsense://", time.Second); err == nil {
		t.Error("opened a store that is none")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, listener, http.HandlerFunc(hello)) }()
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(response.Body); string(body) != "Hello.\n" {
		t.Errorf("got %q", body)
	}
	response.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
