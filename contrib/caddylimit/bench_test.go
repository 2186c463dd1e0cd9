package caddylimit

import (
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		return adapttest.Asking(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limited == nil {
				_ = next.ServeHTTP(w, r)
				return
			}
			_ = (&Handler{limited: limited}).ServeHTTP(w, r, next)
		}))
	})
}
