//go:build !small

package cli

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/server/internal/extauthz"
	"github.com/weirproject/weir/server/internal/gateway"
	"github.com/weirproject/weir/server/internal/grpcserver"
)

// grpcServices are the services at --grpc. A front end has one entry here, which registers it.
func (v *server) grpcServices(counts *servermetrics.Server) ([]grpcserver.Service, error) {
	authorization, err := extauthz.New(v.engine.Gate, v.byRules(counts, v.engine.Clients.TrustsPeer))
	if err != nil {
		return nil, err
	}
	options := v.byRules(counts, v.engine.Clients.TrustsPeer)
	options.Decoders = gateway.Decoders()
	processor, err := extauthz.NewProcessor(v.engine.Gate, options)
	if err != nil {
		return nil, err
	}
	return []grpcserver.Service{v.rateLimits().Register, authorization, processor}, nil
}

func (v *server) openGRPC(l *listener) error {
	callers, err := v.callers(l, "grpc")
	if err != nil {
		return err
	}
	services, err := v.grpcServices(v.count(l))
	if err != nil {
		return err
	}
	server := grpcserver.New(grpcserver.Config{
		Access: callers,
		Ready:  v.healthy,
		Named:  v.likeRatelimit([]string{"ratelimit"}),
		MaxAge: v.engine.GRPCMaxAge, MaxAgeGrace: v.engine.GRPCMaxAgeGrace,
		Counts: v.engine.Metrics.GRPC(),
		Log:    v.log,
		Warn:   v.repeated.warn,
	}, services...)
	v.frontEnds = append(v.frontEnds, frontEnd{name: "grpc",
		serve: func() error {
			if err := server.Serve(l.listener); !errors.Is(err, grpc.ErrServerStopped) {
				return err
			}
			return nil
		},
		drain:    server.Drain,
		shutdown: server.Shutdown,
		cut:      server.Close})
	return nil
}
