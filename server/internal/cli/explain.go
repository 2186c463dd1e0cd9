package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/whynot"
	"github.com/weirproject/weir/memstore"
)

// An explainFlags are the flags of explain.
type explainFlags struct {
	rules   ruleFlags
	request requestFlags
	server  serverFlags
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
  weir explain --limit "5/10s per header.X-User" --header X-User=42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.fromEnvironment(cmd.Flags(), ruleFlagNames(cmd.Flags())...); err != nil {
				return err
			}
			return explain(cmd.Context(), s, &f, cmd.Flags(), args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	f.request.add(flags)
	f.rules.add(flags)
	f.server.add(flags)
	flags.StringVar(&f.server.tokenFile, "token-file", "",
		"`FILE` with the token of the server's API (or WEIR_TOKEN)")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return command
}

// ruleFlagNames are the flags that are read from the environment too; --user and --path are not,
// since WEIR_USER may have another meaning.
func ruleFlagNames(flags *pflag.FlagSet) []string {
	setup := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(ruleFlags).add(setup)
	names := flagNames(setup)
	names = slices.DeleteFunc(names, func(name string) bool { return flags.Lookup(name) == nil })
	return append(names, "server", "server-ca", "server-cert", "server-key")
}

func explain(ctx context.Context, s *System, f *explainFlags, flags *pflag.FlagSet, args []string) error {
	live := flags.Changed("store")
	if !f.rules.asked() && !flags.Changed("server") && (!live || f.rules.Store == engine.Memory) {
		return usagef("there are no rules: give --config FILE, --limit \"5/10s\", or --server URL")
	}
	setup, err := f.rules.read(ctx, s, flags, func(text string) { warnTo(s.Err, text) })
	if err != nil {
		return err
	}
	if !flags.Changed("server") {
		if err := setup.Gather(ctx); err != nil {
			return err
		}
	}
	a, err := f.request.read(args, setup)
	if err != nil {
		return err
	}
	var e *explanation
	if flags.Changed("server") {
		e, err = askServer(ctx, s, &f.server, a)
	} else {
		e, err = evaluate(ctx, s, setup, live, a)
	}
	if err != nil {
		return err
	}
	e.introduce(a)
	if f.json {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(e)
	}
	return e.print(s.Out)
}

// evaluate sends the request through the middleware of the gateway, with a read-only store, so that
// the explanation cannot differ from a real decision.
func evaluate(ctx context.Context, s *System, l *engine.Setup, live bool, a *explainedRequest) (*explanation, error) {
	store, where := weir.Store(memstore.New()), "with all counts zero"
	if live && l.Store != engine.Memory {
		l.Log, _ = newLog(s.Err, "text", "warn")
		redis, err := engine.OpenRedis(ctx, &l.Config)
		if err != nil {
			return nil, err
		}
		store, where = redis, "with the counts of "+engine.Masked(l.Store)
	}
	defer store.Close()
	a.choose(l.Set)
	e := &explanation{
		Store:     where,
		RulesFrom: l.Source,
		Rules:     len(l.Set.Rules()),
		nodes:     l.Nodes,
		asked:     &a.Request,
	}
	locate := gate.WithObserver(func(v *gate.Verdict) { a.Country, a.ASN = v.Located() })
	g, err := gate.New(readOnlyStore{store}, l.Set, gate.WithLocal(readOnlyStore{memstore.New()}),
		gate.WithObserver(e.note), locate, gate.WithGeo(l.Geo))
	if err != nil {
		return nil, err
	}
	o := l.HTTPOptions()
	o.Observe = e.event
	o.User = func(*http.Request) string { return a.User }
	o.Service = func(*http.Request) string { return a.Service }
	o.Descriptor = func(_ *http.Request, name string) string { return a.described[name] }
	o.DescriptorKeys = func(*http.Request) []string { return a.DescriptorKeys }
	middleware, err := httplimit.ByRules(g, o)
	if err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	passed := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { e.Passed = true })
	middleware(passed).ServeHTTP(recorder, a.served(ctx))
	e.Answer.Status, e.Answer.Header, e.Answer.Body = recorder.Code, recorder.Result().Header, recorder.Body.String()
	e.leaveOutMadeID(a.request.Header)
	a.doubtGeo(l)
	if a.Path != "" {
		e.Misses, e.MoreMisses = whynot.Misses(l.File, e.matched, &a.Request)
	}
	return e, nil
}

// leaveOutMadeID leaves out the id that a refusal gets if its request has none: it is another one each time.
func (e *explanation) leaveOutMadeID(asked http.Header) {
	id := e.Answer.Header.Get(requestid.Field)
	if id == "" || id == requestid.For(asked) {
		return
	}
	e.Answer.Header.Del(requestid.Field)
	instance := fmt.Sprintf(`,"instance":%q`, requestid.Instance(id))
	e.Answer.Body = strings.Replace(e.Answer.Body, instance, "", 1)
}

// served is the request as a server receives it.
func (a *explainedRequest) served(ctx context.Context) *http.Request {
	r := a.request.Clone(ctx)
	r.RemoteAddr = net.JoinHostPort(a.peer, "1")
	r.RequestURI = r.URL.RequestURI()
	r.Pattern = a.Route
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(a.body)), int64(len(a.body))
	u := *r.URL
	u.Scheme, u.Host, u.User = "", "", nil
	r.URL = &u
	return r
}

// A readOnlyStore decides without charging.
type readOnlyStore struct{ weir.Store }

// Decide implements weir.Store.
func (l readOnlyStore) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if decisions == nil {
		decisions = make([]weir.Decision, len(claims))
	}
	if _, err := l.Store.Decide(ctx, claims, 0, decisions); err != nil {
		return 0, err
	}
	for i := range decisions {
		if decisions[i].RetryAfter != 0 {
			return 0, nil
		}
	}
	return times, nil
}

// Charge implements weir.Store.
func (readOnlyStore) Charge(context.Context, []weir.Claim, []weir.Decision) error { return nil }

// Refund implements weir.Store.
func (readOnlyStore) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return nil
}

// Reset implements weir.Store.
func (readOnlyStore) Reset(context.Context, []weir.Claim) error { return nil }
