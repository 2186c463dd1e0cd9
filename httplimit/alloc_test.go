//go:build !race

// The race detector makes sync.Pool drop items at random, so these counts hold without it.

package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
)

// A writer is a ResponseWriter with an allocated header map, as in net/http.
type writer struct{ header http.Header }

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(int)             {}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A field's value costs two allocations, its text and the slice of net/http; a key that is not a
// constant costs one. RateLimit-Policy costs none.
func TestGrantedRequestAllocations(t *testing.T) {
	store := memstore.New()
	constant := httplimit.Constant("all")
	four := []httplimit.Part{
		{Key: constant, Limits: []*weir.Limit{weir.MustLimit("a", weir.PerHour(1e9)), weir.MustLimit("b", weir.PerDay(1e9))}},
		{Key: httplimit.PeerAddress, Limits: []*weir.Limit{weir.MustLimit("c", weir.PerHour(1e9)), weir.MustLimit("d", weir.PerDay(1e9))}},
	}
	made := func(m middleware, err error) middleware {
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	l := limiter(t, store, weir.PerHour(1e9))
	none := &httplimit.Options{Fields: httplimit.NoFields}
	for _, tt := range []struct {
		name string
		m    middleware
		want float64
	}{
		{"a constant key, no fields", made(httplimit.New(l, constant, none)), 0},
		{"an address, no fields", made(httplimit.New(l, httplimit.PeerAddress, none)), 1},
		{"a constant key, the draft's fields", made(httplimit.New(l, constant, nil)), 2},
		{"an address, the draft's fields", made(httplimit.New(l, httplimit.PeerAddress, nil)), 3},
		{"four limits of two keys, the draft's fields", made(httplimit.Together(store, four, nil)), 3},
		// Rules keep their keys in a buffer of their own. The two fields are one text and one slice.
		{"a rule for addresses, the draft's fields", byRules(t, store, "  - {name: r, key: [client.ip], limit: 1000000000/1h}", nil), 2},
		{"a rule for a header, the draft's fields", byRules(t, store, "  - {name: u, key: [header.X-H], limit: 1000000000/1h}", nil), 2},
		{"a rule for a query, a cookie and a header, the draft's fields", byRules(t, store,
			"  - {name: s, key: [query.q, cookie.c, header.X-H], on_missing: deny, limit: 1000000000/1h}", nil), 2},
		{"no rule that matches", byRules(t, store, "  - {name: t, match: {path: /other}, limit: 1000000000/1h}", nil), 0},
	} {
		handler := tt.m(nothing)
		r := httptest.NewRequest("GET", "/?p=1&q=2", nil)
		r.Header = http.Header{"Cookie": {"a=b; c=d"}, "X-H": {"h"}}
		w := &writer{header: make(http.Header, 8)}
		allocs := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			handler.ServeHTTP(w, r)
		})
		if allocs != tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, allocs, tt.want)
		}
	}
}

// BenchmarkMiddleware is a request that passes, counted by a header field: by a limiter, and by the same limit as a
// rule.
func BenchmarkMiddleware(b *testing.B) {
	l, err := weir.New(memstore.New(), "x", weir.FixedWindow{Limit: 1e12, Window: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	limited, err := httplimit.New(l, httplimit.Header("X-Api-Key"), nil)
	if err != nil {
		b.Fatal(err)
	}
	ruled := byRules(b, memstore.New(), "  - {name: x, key: [header.X-Api-Key], limit: fixed_window 1000000000000/1m}", nil)
	for name, handler := range map[string]http.Handler{"limiter": limited(nothing), "rule": ruled(nothing)} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/items", nil)
			r.Header = http.Header{"X-Api-Key": {"k1"}}
			w := &writer{header: make(http.Header, 8)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				handler.ServeHTTP(w, r)
			}
		})
	}
}
