package adapttest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

// Bench measures how long a framework takes to serve a request with an empty handler: without middleware; behind empty
// middleware, which shows the cost of the adapter; behind a limiter; and behind a rule. start returns a function that
// lets the framework serve one request, in memory; a nil limited means no middleware.
func Bench(b *testing.B, start func(limited adapt.Middleware) (ask func())) {
	key := httplimit.Header("X-Api-Key")
	limiter, err := weir.New(memstore.New(), "x", weir.FixedWindow{Limit: 1e12, Window: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	byLimiter, err := httplimit.New(limiter, key, nil)
	if err != nil {
		b.Fatal(err)
	}
	byRules, err := httplimit.ByRules(gatetest.New(b, memstore.New(),
		"rules: [{name: x, key: [header.X-Api-Key], limit: fixed_window 1000000000000/1m}]"), nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		limited adapt.Middleware
	}{
		{"framework", nil},
		{"adapter", func(next http.Handler) http.Handler { return next }},
		{"limiter", byLimiter},
		{"rule", byRules},
	} {
		b.Run(test.name, func(b *testing.B) {
			ask := start(test.limited)
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

// Asking returns a function that lets a handler of net/http serve the request of Bench.
func Asking(handler http.Handler) func() {
	r := httptest.NewRequest("GET", "/items/1", nil)
	r.Header.Set("X-Api-Key", "k1")
	r.Header.Set("User-Agent", "bench")
	w := &discard{header: make(http.Header, 8)}
	return func() {
		clear(w.header)
		handler.ServeHTTP(w, r)
	}
}

// A discard is a ResponseWriter that keeps the header alone.
type discard struct{ header http.Header }

func (w *discard) Header() http.Header         { return w.header }
func (w *discard) Write(b []byte) (int, error) { return len(b), nil }
func (w *discard) WriteHeader(int)             {}
