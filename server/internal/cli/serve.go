package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// serveFields are the settings that have a flag.
var serveFields = []string{"store", "rules", "ledger", "trusted_proxies", "http", "gateway", "resp", "grpc", "metrics",
	"upstream", "token_file", "admin.token_file", "audit", "open", "log.format", "log.level"}

func newServe(s *System) *cobra.Command {
	var f ruleFlags
	command := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the server: API, gateway and Redis protocol",
		Long: `Run the server. Without flags, limits are counted in this process, the API listens on
127.0.0.1:8080, and every request passes because there are no rules.

Rules come from a file, a directory or a URL (--config), from hashes in Redis (--rules), and
from a ledger (--ledger); a later source overrides an earlier one. All sources are watched: a
valid change is in force within a second, as a whole; after an invalid change the last valid
rules stay in force. SIGHUP and POST /-/reload read all sources at once.

The section server of the file has the settings, which docs/reference/server.md lists. Each can be
set by --set and by a variable too, such as --set server.store.timeout=20ms or
WEIR_STORE_TIMEOUT=20ms. Flags override --set, --set overrides variables, and variables override
the file. The first SIGTERM or SIGINT waits for requests in flight; a second one exits at once.

A listener without authentication must be on a loopback address or a Unix socket: on other
addresses the API and gRPC need a token and RESP a password, or client certificates (see --open).`,
		Example: `  # A gateway in front of a built-in service: 5 requests in 10 seconds for each address.
  weir serve --limit "5/10s" --upstream demo

  # With a rule file, in front of your service, counted in Redis.
  weir serve --config weir.yaml --upstream http://127.0.0.1:3000 --store redis://127.0.0.1:6379

  # Reachable from other machines: TLS, and a token for the API.
  weir serve --config weir.yaml --token-file token \
    --http 0.0.0.0:8443 --set server.http.tls_cert=cert.pem --set server.http.tls_key=key.pem

  # CL.THROTTLE for Redis clients.
  weir serve --resp 127.0.0.1:6380

  # The services that Envoy asks.
  weir serve --config weir.yaml --grpc 127.0.0.1:8082`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.fromEnvironment(cmd.Flags(), "config", "limit"); err != nil {
				return err
			}
			return serveUntilSignal(cmd.Context(), s, &f)
		},
	}
	f.add(command.Flags(), serveFields...)
	command.Flags().SortFlags = false
	return command
}

func serveUntilSignal(ctx context.Context, s *System, f *ruleFlags) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return serve(ctx, s, f, signals, hup)
}
