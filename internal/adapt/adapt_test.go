package adapt_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

// TestServeMux: the suite with net/http itself, whose handlers write their responses themselves.
func TestServeMux(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Route: "GET /items/{id}", Serve: func(
		t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
		mux := http.NewServeMux()
		for pattern, handler := range s.Handlers() {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				adapt.Serve(limited, w, r, func(limitedWriter http.ResponseWriter, r *http.Request) int {
					if limitedWriter != nil {
						w = limitedWriter
					}
					handler(w, r)
					return 0
				})
			})
		}
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.URL
	}})
}
