package kratoslimit_test

import (
	"context"

	"github.com/go-kratos/kratos/v2/middleware/recovery"
	"github.com/go-kratos/kratos/v2/transport/grpc"
	"github.com/go-kratos/kratos/v2/transport/http"

	"github.com/weirproject/weir/contrib/kratoslimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	limited := adapttest.Limited()

	limit := kratoslimit.Server(limited)
	httpServer := http.NewServer(http.Middleware(recovery.Recovery(), limit))
	grpcServer := grpc.NewServer(grpc.Middleware(recovery.Recovery(), limit))

	defer grpcServer.Stop(context.Background())
	httpServer.Route("/").GET("/items/{id}", func(c http.Context) error { // as generated code does
		reply, err := c.Middleware(func(context.Context, any) (any, error) { return "item", nil })(c, nil)
		if err != nil {
			return err
		}
		return c.String(200, reply.(string))
	})
	adapttest.Show(httpServer, "/items/1", "/items/2")
	// Output:
	// /items/1 200
	// /items/2 429
}
