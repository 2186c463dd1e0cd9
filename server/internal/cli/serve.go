package cli

import (
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/server/internal/listen"
	"github.com/weirproject/weir/server/internal/rls"
)

// A serveFlags are the flags of serve.
type serveFlags struct {
	rules            ruleFlags
	onLine           []string // the URLs in the command line
	http, gateway    listenerFlags
	resp, grpc       listenerFlags
	metrics          listenerFlags
	apart            bool // /metrics is not at --http
	upstream         string
	upstreamHost     bool
	upstreamRequests int
	strictQuery      bool
	access           accessFlags
	overrides        bool
	service          string
	userHeader       string
	tokenFile        string
	readTokenFile    string
	passwordFile     string
	respFailOpen     bool
	rls              rls.Options
	open             bool
	admin            adminFlags
	alertURLFile     string
	alertSecretFile  string
	otlp             string
	shutdown         time.Duration
	drain            time.Duration
	format, level    string
}

// A listenerFlags are the flags of one listener.
type listenerFlags struct {
	name, addr, clientCA string
	certs, keys          []string
	proxyProtocol        bool
	connections          int
	counts               listen.Counts
	listener             net.Listener // nil: off, or not open yet
}

// defaultConnections is the default ceiling of open connections per listener: far more than
// honest clients keep, and far below the usual limit of open files.
const defaultConnections = 10_000

func (f *listenerFlags) add(flags *pflag.FlagSet, name, addr, what string) {
	flags.StringVar(&f.addr, name, addr, what)
	f.addPairs(flags, name, "; enables TLS on the "+name+" listener")
	flags.StringVar(&f.clientCA, name+"-client-ca", "",
		"PEM `FILE` of the authority of client certificates; requires them")
	flags.BoolVar(&f.proxyProtocol, name+"-proxy-protocol", false, "read the PROXY protocol from trusted proxies")
	flags.IntVar(&f.connections, name+"-max-connections", defaultConnections,
		"maximum `NUMBER` of open connections; connections beyond it are closed")
}

// addPairs adds the flags of certificates and their keys.
func (f *listenerFlags) addPairs(flags *pflag.FlagSet, name, effect string) {
	f.name = name
	flags.StringSliceVar(&f.certs, name+"-tls-cert", nil, "PEM `FILE` of the server certificate"+effect+
		";\nrepeatable or separated by commas, chosen by the name that the client asks for, else the first")
	flags.StringSliceVar(&f.keys, name+"-tls-key", nil, "PEM `FILE` of the key of each certificate, in the same order")
}

// checkPairs refuses certificates without a key, and the reverse.
func (f *listenerFlags) checkPairs() error {
	if (len(f.certs) == 0) != (len(f.keys) == 0) {
		return usagef("--%s-tls-cert and --%s-tls-key go together", f.name, f.name)
	}
	if len(f.certs) != len(f.keys) {
		return usagef("--%[1]s-tls-cert has %[2]d files and --%[1]s-tls-key %[3]d; each certificate needs its key, "+
			"in the same order", f.name, len(f.certs), len(f.keys))
	}
	return nil
}

func (f *serveFlags) add(flags *pflag.FlagSet) {
	f.rules.add(flags)
	flags.StringVar(&f.rules.State, "state", "",
		"`FILE` that preserves the counts in memory across restarts (default: none)")
	f.http.add(flags, "http", "127.0.0.1:8080",
		"`ADDR` of the API, forward-auth, metrics and health: host:port, unix:///path,\n"+
			"fd:NAME (a socket that systemd passed), or off")
	f.gateway.add(flags, "gateway", "",
		"`ADDR` of the gateway (default 127.0.0.1:8081 if there is an upstream\nor a route)")
	f.resp.add(flags, "resp", "", "`ADDR` of the Redis protocol (RESP) listener (default: off)")
	f.grpc.add(flags, "grpc", "", "`ADDR` of the gRPC listener: Envoy's rate limit service and ext_authz, health\n"+
		"(default: off)")
	flags.BoolVar(&f.rls.NoHeaders, "rls-no-headers", false,
		"leave RateLimit, Retry-After and the like out of answers to Envoy's rate limit filter")
	flags.BoolVar(&f.rls.NoBody, "rls-no-body", false,
		"leave out the body of refusals to Envoy's rate limit filter; to gRPC clients Envoy sends it as the message")
	flags.BoolVar(&f.rls.Unavailable, "rls-unavailable", false,
		"answer Envoy's rate limit filter UNAVAILABLE, so that its failure_mode_deny decides,\nwhere the store "+
			"does not answer and a rule has on_store_error: deny; otherwise OVER_LIMIT")
	f.metrics.add(flags, "metrics", "",
		"`ADDR` of /metrics and health, instead of /metrics at --http;\noff: no metrics (default: at --http)")
	flags.StringVar(&f.upstream, "upstream", "",
		"`URL` of the service behind the gateway, or demo for a built-in one;\nwith routes in the rules, of requests "+
			"without a route")
	flags.BoolVar(&f.upstreamHost, "upstream-host", false, "send the upstream's name as Host instead of the client's")
	flags.IntVar(&f.upstreamRequests, "upstream-max-requests", defaultConnections,
		"maximum `NUMBER` of concurrent requests to the upstream; requests beyond it are answered 503")
	flags.BoolVar(&f.overrides, "forward-overrides", false,
		"forward headers that override path or method, such as X-Original-URL and X-HTTP-Method-Override")
	f.access.add(flags)
	flags.BoolVar(&f.strictQuery, "strict-query", false, "refuse query strings that servers parse differently")
	flags.StringVar(&f.service, "service", "", "`NAME` of the service behind the gateway, for rules that match service")
	flags.StringVar(&f.userHeader, "user-header", "", "`NAME` of the header with the user, set by trusted proxies")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token of the API (or WEIR_TOKEN)")
	flags.StringVar(&f.readTokenFile, "read-token-file", "",
		"`FILE` with a read-only token of the API (or WEIR_READ_TOKEN)")
	f.admin.add(flags)
	flags.StringVar(&f.passwordFile, "resp-password-file", "",
		"`FILE` with the password of the RESP listener (or WEIR_RESP_PASSWORD)")
	flags.BoolVar(&f.respFailOpen, "resp-fail-open", false,
		"allow CL.THROTTLE while the store is down, instead of returning an error")
	flags.BoolVar(&f.open, "open", false, "allow listening on other than loopback addresses without authentication")
	flags.DurationVar(&f.shutdown, "shutdown-timeout", 10*time.Second,
		"`TIME` for requests in flight to finish after a signal")
	flags.DurationVar(&f.drain, "drain", 0, "`TIME` to continue serving after a signal, with /readyz failing")
	f.rules.addAudit(flags)
	f.addAlerts(flags)
	flags.StringVar(&f.rules.Telemetry, "telemetry", engine.TelemetryOn,
		"statistics of rules and keys, for the console and its API: on, hidden\n(keys as digests) or off; one `WORD`")
	flags.StringVar(&f.rules.StateDir, "state-dir", "",
		"`FOLDER` that keeps 24 hours of these statistics, where counts are in\nmemory; with a --store in Redis they "+
			"are there (default: none, so that\na restart loses them)")
	f.addOTLP(flags)
	flags.StringVar(&f.format, "log-format", "text", "log `FORMAT`: text or json")
	flags.StringVar(&f.level, "log-level", "info", "minimum log `LEVEL`: debug, info, warn or error")
}

func newServe(s *System) *cobra.Command {
	var f serveFlags
	command := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the server: API, gateway and Redis protocol",
		Long: `Run the server. Without flags, limits are counted in this process, the API listens on
127.0.0.1:8080, and every request passes because there are no rules.

Rules come from a file, a directory or a URL (--config), from hashes in Redis (--rules), and
from a ledger (--ledger); a later source overrides an earlier one. All sources are watched: a
valid change is in force within a second, as a whole; after an invalid change the last valid
rules stay in force. SIGHUP and POST /-/reload read all sources at once.

Each flag is also an environment variable: WEIR_STORE for --store, and so on. Flags override
variables, and variables override the file. The first SIGTERM or SIGINT waits for requests in
flight; a second one exits at once.

A listener without authentication must be on a loopback address or a Unix socket: on other
addresses the API and gRPC need a token and RESP a password, or client certificates (see --open).`,
		Example: `  # A gateway in front of a built-in service: 5 requests in 10 seconds for each address.
  weir serve --limit "5/10s" --upstream demo

  # With a rule file, in front of your service, counted in Redis.
  weir serve --config weir.yaml --upstream http://127.0.0.1:3000 --store redis://127.0.0.1:6379

  # Reachable from other machines: TLS, and a token for the API.
  weir serve --config weir.yaml --token-file token \
    --http 0.0.0.0:8443 --http-tls-cert cert.pem --http-tls-key key.pem

  # CL.THROTTLE for Redis clients.
  weir serve --resp 127.0.0.1:6380

  # The services that Envoy asks.
  weir serve --config weir.yaml --grpc 127.0.0.1:8082`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.onLine = f.rules.urls(cmd.Flags())
			if err := s.fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(signals)
			return serve(cmd.Context(), s, &f, cmd.Flags(), signals, hup)
		},
	}
	f.add(command.Flags())
	command.Flags().SortFlags = false
	return command
}
