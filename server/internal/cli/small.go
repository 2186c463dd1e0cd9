//go:build small

package cli

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/server/internal/admin"
)

// The parts that a program built with -tags small leaves out. It is for a first look at weir: they are half the time
// that its compilation takes.

const (
	goRun     = "go run -tags small ./server/cmd/weir"
	smallness = "small: no Redis, gRPC, OpenTelemetry, files of countries, br, zstd; "
)

// leftOut is the error of a setting or command that needs a part which is left out.
func leftOut(name string) error {
	return program.Usagef("%s: this program was built with -tags small, which leaves that out: build it without "+
		"the tag", name)
}

func locate([]string, time.Duration) (engine.Geo, error) { return nil, leftOut("server.geo") }

type tracing struct{}

func (v *server) openOTLP(context.Context) error {
	if v.engine.OTLP == off {
		return nil
	}
	return leftOut("server.otlp")
}

func (v *server) sendMetrics(context.Context) error                 { return nil }
func (v *server) closeOTLP(time.Duration)                           {}
func (d *httpServer) traced(*server, *listener) *httpServer         { return d }
func (*tracing) wrapper() func(http.RoundTripper) http.RoundTripper { return nil }

type envoyService struct{ limits limits }

func newEnvoyService() envoyService { return envoyService{} }

type limits struct{}

// Source is the source of limits in configurations of envoyproxy/ratelimit, of which there must be none.
func (limits) Source(c *engine.Config) (ruleset.Source, error) {
	if c.EnvoyConfig != "" || c.XDSServer != "" {
		return nil, leftOut("server.envoy")
	}
	return nil, nil
}

func (limits) InForce()     {}
func (limits) Loaded() bool { return true }

func (v *server) rlsOptions() (none admin.CallOptions) { return none }
func (v *server) isRatelimit() bool                    { return false }
func (v *server) countLikeRatelimit()                  {}
func (v *server) openGRPC(*listener) error             { return leftOut("server.grpc") }
func (v *server) openEnvoy(*listener) error            { return leftOut("server.envoy.http") }
func (v *server) openDebug(*listener) error            { return leftOut("server.envoy.debug") }

func newRatelimit(*System) *cobra.Command {
	return &cobra.Command{
		Use:                ratelimitName,
		Short:              "Run the server in place of envoyproxy/ratelimit (left out)",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return leftOut("weir " + ratelimitName) },
	}
}
