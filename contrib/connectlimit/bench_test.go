package connectlimit_test

import (
	"net/http"
	"testing"

	"github.com/weirproject/weir/contrib/connectlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		var handler http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		if limited != nil {
			handler = connectlimit.Wrap(limited)(handler)
		}
		return adapttest.Asking(handler)
	})
}
