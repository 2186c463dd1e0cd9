package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
)

// An explainFlags are the flags of explain.
type explainFlags struct {
	rules   ruleFlags
	request requestFlags
	server  serverFlags
	envoy   string // file with a RateLimitRequest
	json    bool
}

func newExplain(s *System) *cobra.Command {
	var f explainFlags
	command := &cobra.Command{
		Use:   "explain [flags] [URL]",
		Short: "Show how a request would be decided, and why",
		Long: `Show which rules apply to a request, its keys, and the answer. The request is a URL, and is
changed by the flags; -X, -H, -b and -d are those of curl. Nothing is charged.

By default all counts are zero. With --store redis://… they are those of that Redis, and the
rules and exceptions of its own ledger count, as for weir serve. With --server a running server
decides by its own rules. A store in the rule file is used only if --store names it too.`,
		Example: `  weir explain --config weir.yaml https://api.example.com/login
  weir explain --config weir.yaml -X POST https://api.example.com/login -H 'X-User: 42'
  weir explain --config weir.yaml --client 203.0.113.7 --path '/./login?next=%2F' --json
  weir explain --limit "5/10s per header.X-User" --header X-User=42
  weir explain --config weir.yaml --ratelimit-request recorded.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.fromEnvironment(cmd.Flags(), "config", "limit", "server", "server-ca", "server-cert",
				"server-key"); err != nil {
				return err
			}
			return explain(cmd.Context(), s, &f, cmd.Flags(), args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	f.request.add(flags)
	f.rules.local = true
	f.rules.add(flags, "store", "rules", "ledger", "trusted_proxies", "client_header")
	f.server.add(flags)
	flags.StringVar(&f.server.tokenFile, "token-file", "",
		"`FILE` with the token of an operator (or WEIR_TOKEN, or WEIR_ADMIN_TOKEN)")
	flags.StringVar(&f.envoy, "ratelimit-request", "",
		"`FILE` (- for stdin) with a RateLimitRequest of Envoy as JSON, which is explained in place\nof a URL")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return command
}

func explain(ctx context.Context, s *System, f *explainFlags, flags *pflag.FlagSet, args []string) error {
	setup, err := f.rules.read(ctx, s, s.warn)
	if err != nil {
		return err
	}
	live := setup.StoreGiven && setup.Store != engine.Memory
	if !f.rules.asked(s) && !flags.Changed("server") && !live {
		return program.Usagef("there are no rules: give --config FILE, --limit \"5/10s\", or --server URL")
	}
	if !flags.Changed("server") {
		if err := setup.Gather(ctx); err != nil {
			return err
		}
	}
	var q admin.Question
	if f.envoy != "" {
		q.RateLimit, err = f.recorded(s, args)
	} else {
		q.Request, err = f.request.read(args)
	}
	if err != nil {
		return err
	}
	p := explanationPrinter{assumed: f.request.client == ""}
	if flags.Changed("server") {
		p.Explanation, err = askServer(ctx, s, &f.server, &q)
		p.store = "by the server " + f.server.url
	} else {
		p.Explanation, p.store, err = explainAlone(ctx, s, setup, live, &q)
		p.of = fmt.Sprintf(" (of %s in %s), with their keys",
			program.Count(len(setup.Set.Rules()), "rule"), setup.Source)
	}
	if err != nil {
		return err
	}
	if f.json {
		return program.PrintJSON(s.Out, p.Explanation)
	}
	return p.print(s.Out)
}

// recorded reads the request of --ratelimit-request.
func (f *explainFlags) recorded(s *System, args []string) (string, error) {
	if len(args) > 0 {
		return "", program.Usagef("--ratelimit-request takes the place of the argument %.80q: give one of them",
			args[0])
	}
	_, text, err := engine.ReadFile(s.In, f.envoy)
	switch {
	case err != nil:
	case len(text) == 0:
		err = fmt.Errorf("--ratelimit-request %s: it is empty; allowed: a RateLimitRequest in JSON", f.envoy)
	case len(text) > rules.MaxFile:
		err = fmt.Errorf("--ratelimit-request %s: it has over %d bytes, which is the most", f.envoy, rules.MaxFile)
	}
	return string(text), err
}

// explainAlone explains the request by the rules of the flags, and names the counts.
func explainAlone(ctx context.Context, s *System, l *engine.Engine, live bool, q *admin.Question) (
	e *admin.Explanation, counts string, err error) {
	store, counts := weir.Store(memstore.New()), "with all counts zero"
	if live {
		l.Log = newLog(s.Err, "text", "warn", new(slog.LevelVar))
		redis, err := engine.OpenRedis(ctx, &l.Config)
		if err != nil {
			return nil, "", err
		}
		store, counts = redis, "with the counts of "+engine.Masked(l.Store)
	}
	defer store.Close()
	g, err := gate.New(store, l.Set, gate.WithLocal(memstore.New()), gate.WithGeo(l.Located))
	if err != nil {
		return nil, "", err
	}
	x := admin.Explainer{Gate: g, Set: l.Set, File: l.File, Options: l.HTTPOptions()}
	if q.RateLimit != "" {
		e, err = x.ExplainRateLimit(ctx, q.RateLimit)
	} else {
		e, err = x.Explain(ctx, q.Request)
	}
	return e, counts, err
}

// askServer has a running server explain the request by its own rules.
func askServer(ctx context.Context, s *System, f *serverFlags, q *admin.Question) (*admin.Explanation, error) {
	o := &operator{serverFlags: *f, system: s}
	if err := o.connect(ctx); err != nil {
		return nil, err
	}
	defer o.cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	e := new(admin.Explanation)
	_, err = o.send(&serverRequest{method: http.MethodPost, path: "explain", kind: "application/json", body: body}, e)
	return e, err
}
