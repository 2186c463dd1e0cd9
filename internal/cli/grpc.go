package cli

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/weirproject/weir/internal/server/grpcserver"
	"github.com/weirproject/weir/internal/server/rls"
)

// grpcServices are the services at --grpc. A front end has one entry here, which registers it.
func (v *server) grpcServices() ([]grpcserver.Service, error) {
	return []grpcserver.Service{
		rls.New(v.engine.Gate, v.flags.rls),
	}, nil
}

func (v *server) openGRPC(l *listenerFlags) error {
	callers, err := v.callers(l)
	if err != nil {
		return err
	}
	services, err := v.grpcServices()
	if err != nil {
		return err
	}
	v.count(l)
	server := grpcserver.New(grpcserver.Config{
		Access: callers,
		Ready:  v.engine.Metrics.IsReady,
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
