package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/rules"
)

// Prefix is the prefix of all paths.
const Prefix = "/v1/admin/"

// A Server has the parts of a server that the API shows and changes.
type Server struct {
	Ledger *ledger.Ledger // nil: the server has none, and requests that need it are refused
	// NoLedger is the error text of these requests: how to get a ledger.
	NoLedger string
	Layer    string                 // name of the ledger's layer in Status
	Status   func() *ruleset.Status // as ruleset.Keeper.Status
	Gate     *gate.Gate
	// Compile compiles rules as the server does; nil is rules.Compile without options.
	Compile func(*rules.File) (*rules.Set, error)
	Log     *slog.Logger // logs writes; nil: none
}

// An Option changes the handler that New makes.
type Option func(*handler)

// A Token authorises callers. Its name is in the history.
type Token struct {
	Name, Secret string
	Write        bool // otherwise read-only
}

// WithTokens requires one of these tokens (Authorization: Bearer). Only hashes are kept.
func WithTokens(tokens ...Token) Option {
	return func(h *handler) {
		for _, t := range tokens {
			hash, err := web.NewToken(t.Secret)
			if err == nil && !plain(t.Name, maxActor) {
				err = fmt.Errorf("the name of a token is %.80q; allowed: 1 to %d printable characters of ASCII",
					t.Name, maxActor)
			}
			h.problem = errors.Join(h.problem, err)
			h.hashes = append(h.hashes, hash)
			h.tokens = append(h.tokens, Token{Name: t.Name, Write: t.Write})
		}
		h.guarded = true
	}
}

// WithCertificates admits callers by the common name of the verified TLS client certificate; "*" is
// any.
func WithCertificates(read, write []string) Option {
	return func(h *handler) { h.guarded, h.readers, h.writers = true, read, write }
}

// WithHosts sets the allowed values of Host, without port. A server on loopback needs it, because
// any web page's DNS name can resolve to 127.0.0.1.
func WithHosts(names ...string) Option {
	return func(h *handler) { h.hosts = names }
}

// A handler is safe for concurrent use.
type handler struct {
	Server
	guarded          bool
	tokens           []Token // without secrets
	hashes           []web.Token
	readers, writers []string // common names
	hosts            web.Hosts
	crossOrigin      *http.CrossOriginProtection
	mux              *http.ServeMux
	problem          error // of an option
}

// New makes the handler of all paths below Prefix. Without tokens and certificates it admits
// everybody: listen on loopback only.
func New(s Server, opts ...Option) (http.Handler, error) {
	if s.Status == nil || s.Gate == nil || s.Ledger == nil && s.NoLedger == "" {
		return nil, errors.New("admin: Status, Gate, and Ledger or NoLedger are needed")
	}
	h := &handler{Server: s, crossOrigin: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	if h.Compile == nil {
		h.Compile = func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) }
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	for _, opt := range opts {
		opt(h)
	}
	if h.problem != nil {
		return nil, fmt.Errorf("admin: %w", h.problem)
	}
	for path, methods := range h.operations() {
		h.mux.Handle(Prefix+path, h.resource(methods))
	}
	h.mux.Handle("/", h.resource(nil))
	return h, nil
}

type run = func(context.Context, *call) (any, error)

// needsLedger refuses an operation on a server without a ledger.
func (h *handler) needsLedger(do run) run {
	if h.Ledger != nil {
		return do
	}
	return func(context.Context, *call) (any, error) { return nil, refusef(http.StatusForbidden, "%s", h.NoLedger) }
}

// An operation is a method of a path.
type operation struct {
	run        run
	writes     bool
	parameters []string // of the query
}

func (h *handler) operations() map[string]map[string]operation {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	type methods = map[string]operation
	return map[string]methods{
		"rules": {get: {h.listRules, false, nil}},
		"rules/{name}": {get: {h.getRule, false, nil},
			put: {h.needsLedger(h.putRule), true, []string{"why", "dry_run"}},
			del: {h.needsLedger(h.deleteRule), true, []string{"why"}}},
		"rules/{name}/enable":   {post: {h.needsLedger(h.enableRule), true, []string{"why"}}},
		"rules/{name}/disable":  {post: {h.needsLedger(h.disableRule), true, []string{"why"}}},
		"rules/{name}/rollback": {post: {h.needsLedger(h.rollback), true, []string{"why", "to", "dry_run"}}},
		"rules/{name}/compare":  {get: {h.compare, false, nil}},
		"rules/{name}/promote":  {post: {h.needsLedger(h.promote), true, []string{"why", "dry_run"}}},
		"diff":                  {post: {h.diff, false, []string{"rule"}}},
		"history":               {get: {h.needsLedger(h.history), false, []string{"name", "most"}}},
		"exceptions": {get: {h.needsLedger(h.listExceptions), false, nil},
			post: {h.needsLedger(h.postException), true, nil}},
		"exceptions/{id}": {get: {h.needsLedger(h.getException), false, nil},
			del: {h.needsLedger(h.deleteException), true, []string{"why"}}},
		"restore":      {post: {h.needsLedger(h.restore), true, []string{"why", "dry_run", "forget"}}},
		"keys":         {get: {h.getKey, false, []string{"rule", "key", "value"}}},
		"keys/reset":   {post: {h.resetKey, true, []string{"rule", "key", "value", "why"}}},
		"bans":         {get: {h.listBans, false, nil}},
		"bans/lift":    {post: {h.liftBan, true, []string{"rule", "key", "value", "why"}}},
		"openapi.json": {get: {openAPI, false, nil}},
	}
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.hosts.Allow(r.Host) {
		writeProblem(w, refusef(http.StatusForbidden, "host is %.80q; allowed: %s", r.Host,
			strings.Join(h.hosts, ", ")))
		return
	}
	if err := h.crossOrigin.Check(r); err != nil {
		writeProblem(w, refusef(http.StatusForbidden, "the request comes from a page of another site: %v", err))
		return
	}
	h.mux.ServeHTTP(w, r)
}

// resource handles the requests of one path.
func (h *handler) resource(methods map[string]operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, op, err := h.admit(r, methods)
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

// admit authorises a request, and returns its operation.
func (h *handler) admit(r *http.Request, methods map[string]operation) (*call, operation, error) {
	c := &call{request: r}
	op, ok := methods[r.Method]
	if r.Method == http.MethodHead {
		op, ok = methods[http.MethodGet]
	}
	// Authorisation comes first: the paths are not disclosed to others.
	if err := h.identify(c, op.writes); err != nil {
		return nil, op, err
	}
	if methods == nil {
		return nil, op, refusef(http.StatusNotFound, "there is no %.80q; GET %sopenapi.json lists all paths",
			r.URL.Path, Prefix)
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
