package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/doors/admit"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
)

// Prefix is where all paths of this door begin.
const Prefix = "/v1/admin/"

// A Server is what the door changes and shows.
type Server struct {
	Ledger *ledger.Ledger // nil: the server keeps none, and what would lie there is refused
	// NoLedger is what whoever asks for that is told then: how to come by a ledger.
	NoLedger string
	Layer    string                // what Status calls the ledger's layer
	Status   func() *source.Status // as source.Keeper.Status
	Gate     *gate.Gate
	// Compile is how the server compiles rules; nil is rules.Compile without options.
	Compile func(*rules.File) (*rules.Set, error)
	Log     *slog.Logger // where writes are told; nil: nowhere
}

// An Option changes what New makes.
type Option func(*door)

// A Token is one that callers may show. Its name stands in the history.
type Token struct {
	Name, Secret string
	Write        bool // otherwise it may only read
}

// WithTokens has callers show one of these tokens (Authorization: Bearer). Only hashes are
// kept.
func WithTokens(tokens ...Token) Option {
	return func(d *door) {
		for _, t := range tokens {
			hash, err := admit.NewToken(t.Secret)
			if err == nil && !plain(t.Name, mostActor) {
				err = fmt.Errorf("the name of a token is %.80q; allowed: 1 to %d printable characters of ASCII", t.Name, mostActor)
			}
			d.problem = errors.Join(d.problem, err)
			d.hashes = append(d.hashes, hash)
			d.tokens = append(d.tokens, Token{Name: t.Name, Write: t.Write})
		}
		d.guarded = true
	}
}

// WithCertificates lets in callers by the common name of the certificate that the TLS
// connection has verified; "*" is any.
func WithCertificates(read, write []string) Option {
	return func(d *door) { d.guarded, d.readers, d.writers = true, read, write }
}

// WithHosts gives the names, without port, that requests may be addressed to (Host). A
// server on loopback needs it: by DNS a page of anybody's can have a name of its own mean
// 127.0.0.1.
func WithHosts(names ...string) Option { return func(d *door) { d.hosts = admit.NewHosts(names...) } }

// A door is the handler. It is safe for concurrent use.
type door struct {
	Server
	guarded          bool
	tokens           []Token // without secrets
	hashes           []admit.Token
	readers, writers []string // common names
	hosts            admit.Hosts
	crossOrigin      *http.CrossOriginProtection
	mux              *http.ServeMux
	problem          error // of an option
}

// New makes the handler of all paths below Prefix. Without tokens and certificates
// everybody may do everything: then only loopback is a place to listen at.
func New(s Server, opts ...Option) (http.Handler, error) {
	if s.Status == nil || s.Gate == nil || s.Ledger == nil && s.NoLedger == "" {
		return nil, errors.New("admin: Status, Gate, and Ledger or NoLedger are needed")
	}
	d := &door{Server: s, crossOrigin: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	if d.Compile == nil {
		d.Compile = func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) }
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	for _, opt := range opts {
		opt(d)
	}
	if d.problem != nil {
		return nil, fmt.Errorf("admin: %w", d.problem)
	}
	for path, methods := range d.operations() {
		d.mux.Handle(Prefix+path, d.resource(methods))
	}
	d.mux.Handle("/", d.resource(nil))
	return d, nil
}

type run = func(context.Context, *call) (any, error)

// kept is for what the ledger keeps. What lies in the store, or is in force from elsewhere,
// can be had without one.
func (d *door) kept(do run) run {
	if d.Ledger != nil {
		return do
	}
	return func(context.Context, *call) (any, error) { return nil, refusef(http.StatusForbidden, "%s", d.NoLedger) }
}

// An operation is what one method of one path does.
type operation struct {
	run        run
	writes     bool
	parameters []string // of the query
}

func (d *door) operations() map[string]map[string]operation {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	type methods = map[string]operation
	return map[string]methods{
		"rules":                 {get: {d.listRules, false, nil}},
		"rules/{name}":          {get: {d.getRule, false, nil}, put: {d.kept(d.putRule), true, []string{"why", "dry_run"}}, del: {d.kept(d.deleteRule), true, []string{"why"}}},
		"rules/{name}/enable":   {post: {d.kept(d.enableRule), true, []string{"why"}}},
		"rules/{name}/disable":  {post: {d.kept(d.disableRule), true, []string{"why"}}},
		"rules/{name}/rollback": {post: {d.kept(d.rollback), true, []string{"why", "to", "dry_run"}}},
		"rules/{name}/compare":  {get: {d.compare, false, nil}},
		"rules/{name}/promote":  {post: {d.kept(d.promote), true, []string{"why", "dry_run"}}},
		"diff":                  {post: {d.diff, false, []string{"rule"}}},
		"history":               {get: {d.kept(d.history), false, []string{"name", "most"}}},
		"exceptions":            {get: {d.kept(d.listExceptions), false, nil}, post: {d.kept(d.postException), true, nil}},
		"exceptions/{id}":       {get: {d.kept(d.getException), false, nil}, del: {d.kept(d.deleteException), true, []string{"why"}}},
		"restore":               {post: {d.kept(d.restore), true, []string{"why", "dry_run", "forget"}}},
		"keys":                  {get: {d.getKey, false, []string{"rule", "value"}}},
		"keys/reset":            {post: {d.resetKey, true, []string{"rule", "value", "why"}}},
		"bans":                  {get: {d.listBans, false, nil}},
		"bans/lift":             {post: {d.liftBan, true, []string{"rule", "key", "value", "why"}}},
		"openapi.json":          {get: {openAPI, false, nil}},
	}
}

// ServeHTTP answers one request.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.hosts.Allow(r.Host) {
		writeProblem(w, refusef(http.StatusForbidden, "host is %.80q; allowed: %s", r.Host, strings.Join(d.hosts, ", ")))
		return
	}
	if err := d.crossOrigin.Check(r); err != nil {
		writeProblem(w, refusef(http.StatusForbidden, "the request comes from a page of another site: %v", err))
		return
	}
	d.mux.ServeHTTP(w, r)
}

// resource answers the requests of one path.
func (d *door) resource(methods map[string]operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, op, err := d.admit(r, methods)
		var answer any
		if err == nil {
			answer, err = op.run(r.Context(), c)
		}
		if err != nil {
			writeProblem(w, err)
			return
		}
		write(w, c, answer)
	})
}

// admit asks whether this caller may do what the request asks for.
func (d *door) admit(r *http.Request, methods map[string]operation) (*call, operation, error) {
	c := &call{request: r}
	op, ok := methods[r.Method]
	if r.Method == http.MethodHead {
		op, ok = methods[http.MethodGet]
	}
	// Who may not come in is not told what there is.
	if err := d.identify(c, op.writes); err != nil {
		return nil, op, err
	}
	if methods == nil {
		return nil, op, refusef(http.StatusNotFound, "there is no %.80q; GET %sopenapi.json tells what there is", r.URL.Path, Prefix)
	}
	if !ok {
		var names []string
		for name := range methods {
			names = append(names, name)
		}
		slices.Sort(names)
		p := refusef(http.StatusMethodNotAllowed, "method is %.20q; allowed: %s", r.Method, strings.Join(names, ", "))
		p.allow = strings.Join(names, ", ")
		return nil, op, p
	}
	return c, op, c.readQuery(op.parameters)
}
