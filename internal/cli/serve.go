package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/listen"
)

// A serveFlags is what serve is told.
type serveFlags struct {
	rules            ruleFlags
	onLine           []string // the URLs that were named in the command line
	http, gateway    listenerFlags
	resp             listenerFlags
	metrics          listenerFlags
	apart            bool // /metrics is not at --http
	upstream         string
	upstreamHost     bool
	upstreamRequests int
	strictQuery      bool
	overrides        bool
	service          string
	userHeader       string
	tokenFile        string
	readTokenFile    string
	passwordFile     string
	respFailOpen     bool
	open             bool
	state            string
	admin            adminFlags
	shutdown         time.Duration
	drain            time.Duration
	format, level    string
}

// A listenerFlags says where a door listens, and to whom.
type listenerFlags struct {
	name                      string
	addr, cert, key, clientCA string
	proxyProtocol             bool
	connections               int
	counts                    listen.Counts
}

// defaultConnections is what a door has open at one time, if nobody says otherwise: far more than
// honest clients keep, and far less than the files that a process of today may open.
const defaultConnections = 10_000

func (f *listenerFlags) add(flags *pflag.FlagSet, name, addr, what string) {
	f.name = name
	flags.StringVar(&f.addr, name, addr, what)
	flags.StringVar(&f.cert, name+"-tls-cert", "", "PEM `FILE` of the certificate: the "+name+" door speaks TLS then")
	flags.StringVar(&f.key, name+"-tls-key", "", "PEM `FILE` of the certificate's key")
	flags.StringVar(&f.clientCA, name+"-client-ca", "", "PEM `FILE` of the authority that signs the clients' certificates: they are asked for then")
	flags.BoolVar(&f.proxyProtocol, name+"-proxy-protocol", false, "read the PROXY protocol from trusted proxies")
	flags.IntVar(&f.connections, name+"-max-connections", defaultConnections, "the `NUMBER` of connections that are open at one time; those beyond are closed")
}

func (f *serveFlags) add(flags *pflag.FlagSet) {
	f.rules.add(flags)
	flags.StringVar(&f.state, "state", "", "`FILE` in which what is counted in memory survives a restart (default: it does not)")
	f.http.add(flags, "http", "127.0.0.1:8080", "`ADDR` of the API, forward-auth, metrics and health: host:port, unix:///path, or off")
	f.gateway.add(flags, "gateway", "", "`ADDR` of the gateway (default 127.0.0.1:8081 if there is an upstream)")
	f.resp.add(flags, "resp", "", "`ADDR` where Redis' protocol is spoken (default: nowhere)")
	f.metrics.add(flags, "metrics", "", "`ADDR` of /metrics, which is not at --http then, and of health too;\noff: there are no metrics (default: at --http)")
	flags.StringVar(&f.upstream, "upstream", "", "`URL` of the service behind the gateway, or demo for one that is built in")
	flags.BoolVar(&f.upstreamHost, "upstream-host", false, "send the upstream its own name as Host instead of the client's")
	flags.IntVar(&f.upstreamRequests, "upstream-max-requests", defaultConnections, "the `NUMBER` of requests that are at the upstream at one time; those beyond are answered 503")
	flags.BoolVar(&f.overrides, "forward-overrides", false, "forward headers that override path or method, such as X-Original-URL and X-HTTP-Method-Override")
	flags.BoolVar(&f.strictQuery, "strict-query", false, "refuse queries that servers read differently")
	flags.StringVar(&f.service, "service", "", "the `NAME` that rules know the service behind the gateway by")
	flags.StringVar(&f.userHeader, "user-header", "", "the `NAME` of the header in which trusted proxies say who the user is")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token that the API asks for (or WEIR_TOKEN)")
	flags.StringVar(&f.readTokenFile, "read-token-file", "", "`FILE` with a token that may only look (or WEIR_READ_TOKEN)")
	f.admin.add(flags)
	flags.StringVar(&f.passwordFile, "resp-password-file", "", "`FILE` with the password of the RESP door (or WEIR_RESP_PASSWORD)")
	flags.BoolVar(&f.respFailOpen, "resp-fail-open", false, "grant CL.THROTTLE while the store does not answer, instead of an error")
	flags.BoolVar(&f.open, "open", false, "listen beyond this machine without token, password or client certificates")
	flags.DurationVar(&f.shutdown, "shutdown-timeout", 10*time.Second, "after a signal, the `TIME` that what is in flight has to finish")
	flags.DurationVar(&f.drain, "drain", 0, "after a signal, the `TIME` to serve on while /readyz says no")
	flags.StringVar(&f.format, "log-format", "text", "`FORMAT` of the log: text or json")
	flags.StringVar(&f.level, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
}

func newServe(s *System) *cobra.Command {
	var f serveFlags
	command := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Decide for other programs, and stand before a service",
		Long: `Serve decisions by rules. Without flags: limits are counted in this process, the API listens
on 127.0.0.1:8080, and without rules everything passes.

Rules are from a file, a directory or a URL (--config), from hashes in Redis (--rules) and
from a ledger in Redis (--ledger), and the later of these beat the earlier. All are watched:
a change is in force within a second, as a whole; where it is wrong, the last good rules
stay. SIGHUP and POST /-/reload have all of them read at once.

Each flag is also a variable of the environment: WEIR_STORE for --store, and so on. Flags
beat variables, variables beat the file. The first SIGTERM or SIGINT lets finish what is in
flight; a second one ends at once.

What would be open to everybody does not start: beyond this machine the API needs a token
and the RESP door a password, or client certificates.`,
		Example: `  # A gateway before a built-in service: 5 requests in 10 seconds for each address.
  weir serve --limit "5/10s" --upstream demo

  # By a file, before a service of yours, counted in Redis.
  weir serve --config weir.yaml --upstream http://127.0.0.1:3000 --store redis://127.0.0.1:6379

  # For all to see: TLS, and a token for the API.
  weir serve --config weir.yaml --token-file token \
    --http 0.0.0.0:8443 --http-tls-cert cert.pem --http-tls-key key.pem

  # CL.THROTTLE for Redis clients.
  weir serve --resp 127.0.0.1:6380`,
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
