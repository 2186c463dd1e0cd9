//go:build !small

package cli

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/ratelimit"
	"github.com/weirproject/weir/server/internal/rls"
	"github.com/weirproject/weir/server/internal/web"
)

// An envoyService has what a server in place of envoyproxy/ratelimit has besides.
type envoyService struct {
	limits  *ratelimit.Limits
	stats   *ratelimit.Stats   // nil: there is no configuration of envoyproxy/ratelimit
	service *ratelimit.Service // of rate limits; nil: not made yet
}

func newEnvoyService() envoyService { return envoyService{limits: new(ratelimit.Limits)} }

func newRatelimit(s *System) *cobra.Command {
	var f ruleFlags
	var overlay string
	command := &cobra.Command{
		Use:   "ratelimit [flags]",
		Short: "Run the server in place of envoyproxy/ratelimit",
		Long: `Run the server with the environment variables, configurations and ports of envoyproxy/ratelimit,
Envoy's rate limit service. A program of the name ratelimit, such as a link to weir, does the same.

A variable without an equal is logged, with what to do. A wrong value ends the start. Each line says
what follows from a variable; a name in code is a setting of weir (docs/reference/server.md), which
its own variable overrides: WEIR_STORE_TIMEOUT=20ms for store.timeout.

The API, the console and the metrics of weir are at http://` + ratelimit.Operators + `, which only this machine
reaches (kubectl port-forward POD 6071); WEIR_HTTP is another address.

Variables:
` + ratelimit.Help(),
		Example: `  # The limits of a directory, counted in Redis.
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true \
    REDIS_SOCKET_TYPE=tcp REDIS_URL=127.0.0.1:6379 weir ratelimit`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given, err := ratelimit.Read(s.Environ)
			if err != nil {
				return program.Usagef("%w", err)
			}
			if err := s.fromEnvironment(cmd.Flags(), "config", "overlay"); err != nil {
				return err
			}
			if f.config != "" && overlay != "" {
				return program.Usagef("both --config and --overlay are given; write the overlay into %s", f.config)
			}
			f.config = cmp.Or(f.config, overlay)
			for _, one := range given.Settings {
				f.usual = append(f.usual, assignment{one.Path, one.Variable, []string{one.Value}})
			}
			f.notes = given.Notes
			f.optional = s.lookup("WEIR_HTTP") == ""
			if err := s.export(given.OTel); err != nil {
				return err
			}
			return serveUntilSignal(cmd.Context(), s, &f)
		},
	}
	f.add(command.Flags())
	command.Flags().StringVar(&overlay, "overlay", "",
		"`FILE` with what to set in limits of the configuration; the same as --config (docs/reference/overlay.md)")
	command.Flags().SortFlags = false
	return command
}

// export sets variables of OpenTelemetry, which its library reads from the environment of the process.
func (s *System) export(entries []string) error {
	s.Environ = append(s.Environ, entries...)
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// isRatelimit reports whether limits come from configurations of envoyproxy/ratelimit.
func (v *server) isRatelimit() bool { return v.engine.EnvoyConfig != "" || v.engine.XDSServer != "" }

// likeRatelimit is a list for a server in place of envoyproxy/ratelimit, and nil for others.
func (v *server) likeRatelimit(list []string) []string {
	if v.isRatelimit() {
		return list
	}
	return nil
}

// countLikeRatelimit counts under the names of envoyproxy/ratelimit too.
func (v *server) countLikeRatelimit() {
	if v.isRatelimit() {
		v.stats = ratelimit.NewStats(v.limits, v.engine.Metrics.Metrics, v.engine.EnvoyNearLimit)
		v.engine.Metrics.Registry().MustRegister(v.stats)
	}
}

// healthy reports whether health checks succeed: /healthcheck, and those of gRPC. envoyproxy/ratelimit is healthy from
// its start on, unless it was told what to wait for.
func (v *server) healthy() bool {
	if !v.isRatelimit() {
		return v.engine.Metrics.IsReady()
	}
	wants := func(word string) bool { return slices.Contains(v.engine.EnvoyHealth, word) }
	switch {
	case !v.engine.Metrics.Serves(),
		wants("config") && !v.limits.Loaded(),
		wants("domain") && v.limits.Domains() == 0,
		wants("store") && !v.engine.Metrics.StoreUp():
		return false
	}
	return true
}

// rateLimits is the service, which gRPC and /json share: made once.
func (v *server) rateLimits() *ratelimit.Service {
	if v.service != nil {
		return v.service
	}
	var trace ratelimit.Trace
	if v.otlp != nil {
		trace = v.otlp.Call
	}
	v.service = ratelimit.NewService(rls.New(v.engine.Gate, v.rlsOptions()), v.stats, trace)
	return v.service
}

// rlsOptions are those of the rate limit service.
func (v *server) rlsOptions() rls.Options {
	options := rls.Options{NoHeaders: v.engine.RLSNoHeaders, NoBody: v.engine.RLSNoBody,
		Unavailable: v.engine.RLSUnavailable}
	if v.stats != nil {
		options.Ratelimit = &rls.Ratelimit{Shadow: v.engine.EnvoyShadow, Quota: v.engine.EnvoyQuota,
			Metadata: v.engine.EnvoyMetadata, Loaded: v.limits.Loaded, Count: v.stats.Count}
		copy(options.Ratelimit.Headers[:], v.engine.EnvoyHeaders)
	}
	return options
}

// known refuses callers without a token, where there are tokens.
func known(access *web.Access, next http.Handler) http.Handler {
	return access.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := access.Identify(r, true)
		var problem *web.Problem
		switch {
		case errors.As(err, &problem):
			problem.Write(w)
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			next.ServeHTTP(w, r)
		}
	}))
}

// openEnvoy serves the HTTP port of envoyproxy/ratelimit.
func (v *server) openEnvoy(l *listener) error {
	callers, err := v.callers(l, l.name)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthcheck", ratelimit.Healthcheck(v.healthy))
	mux.Handle("/json", known(callers, ratelimit.JSON(v.rateLimits())))
	v.health(mux, l)
	v.frontEnds = append(v.frontEnds, newHTTPServer(l.listener, mux, apiBodies, v.count(l), v.log).frontEnd(l.name))
	return nil
}

// openDebug serves the debug port of envoyproxy/ratelimit. A profile takes as long as its caller asks.
func (v *server) openDebug(l *listener) error {
	callers, err := v.callers(l, l.name)
	if err != nil {
		return err
	}
	handler := known(callers, ratelimit.Debug(v.limits, v.stats))
	v.frontEnds = append(v.frontEnds, newHTTPServer(l.listener, handler, 0, v.count(l), v.log).frontEnd(l.name))
	return nil
}
