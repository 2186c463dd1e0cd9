package kratoslimit_test

import (
	"context"
	"testing"

	khttp "github.com/go-kratos/kratos/v2/transport/http"

	"github.com/weirproject/weir/contrib/kratoslimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		var options []khttp.ServerOption
		if limited != nil {
			options = append(options, khttp.Middleware(kratoslimit.Server(limited)))
		}
		server := khttp.NewServer(options...)
		server.Route("/").GET("/items/{id}", func(c khttp.Context) error {
			_, err := c.Middleware(func(context.Context, any) (any, error) { return nil, nil })(c, nil)
			return err
		})
		return adapttest.Asking(server)
	})
}
