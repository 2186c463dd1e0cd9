package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestAPI(t *testing.T) {
	handler, err := api(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(time.Hour.Microseconds() * 1e5) })))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, from, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = from + ":1"
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	// granted is how many of 400 requests pass, and who refused the rest.
	granted := func(path, from, key string) (n int, by string) {
		for range 400 {
			w := ask(path, from, key)
			if w.Code == 200 {
				n++
				continue
			}
			body := w.Body.String()
			by = body[strings.Index(body, "policies"):]
			by, _, _ = strings.Cut(strings.TrimPrefix(by, `policies":["`), `"`)
		}
		return n, by
	}
	for _, test := range []struct {
		who, path, from, key string
		want                 int
		by                   string
	}{
		{"a user", "/users/7", "192.0.2.1", "secret-of-ann", 100, "user"},
		{"the endpoint has 100 left this second", "/users/8", "192.0.2.2", "made-up", 100, "endpoint"},
		{"another endpoint, five exports", "/users/7/export", "192.0.2.3", "secret-of-acme", 5, "export.2"},
	} {
		if got, by := granted(test.path, test.from, test.key); got != test.want || by != test.by {
			t.Errorf("%s: %d of 400, the rest refused by %s; want %d, %s", test.who, got, by, test.want, test.by)
		}
	}
	w := ask("/users/9", "192.0.2.9", "secret-of-acme")
	if fields := w.Header().Get("RateLimit-Policy"); w.Code != 429 || !strings.Contains(fields, `"user";q=1000;w=60`) {
		t.Errorf("a partner: %d, %s", w.Code, fields)
	}
}
