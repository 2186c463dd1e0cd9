package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// Prefix is the prefix of all paths.
const Prefix = "/v1/admin/"

// A Server has the parts of a server that the API shows and changes.
type Server struct {
	Ledger *ledger.Ledger // nil: the server has none, and requests that need it are refused
	// NoLedger is the error text of these requests: how to get a ledger.
	NoLedger   string
	Layer      string                 // name of the ledger's layer in Status
	Status     func() *ruleset.Status // as ruleset.Manager.Status
	Gate       *gate.Gate
	Gateway    *httplimit.RuleOptions // of the middleware, for explanations; nil: the defaults
	RateLimits CallOptions            // of Envoy's rate limit service, likewise
	// Compile compiles rules as the server does; nil is rules.Compile without options.
	Compile func(*rules.File) (*rules.Set, error)
	// ResetRule deletes counts of keys of a rule, as many as it can in a second, beginning at the cursor of the answer
	// before; next is "" after the last key.
	ResetRule func(ctx context.Context, rule *rules.Rule, cursor string) (keys int, next string, err error)
	// Reload reads all sources, and returns when their rules are in force, or their mistakes.
	Reload   func(context.Context) error
	Mistakes func(error) []web.Mistake // in errors of Reload and Status
	Access   *web.Access               // nil: everybody has access; listen on loopback only
	Log      *slog.Logger              // logs writes; nil: none
	Mark     func(telemetry.Mark)      // records writes; nil: nobody does

	// Services and Routes are the state of the gateway; nil without a gateway.
	Services func() []servermetrics.Service
	Routes   func() []servermetrics.Route

	// Audit returns the last records that a filter selects, the oldest first. nil: there is no log to be read.
	Audit func(ctx context.Context, f *telemetry.AuditFilter, most int) ([]telemetry.AuditRecord, error)

	Telemetry telemetry.Reader // nil: off, and requests that need it are refused

	Also []web.Operation // of other handlers below Prefix, for the OpenAPI document
}

// A handler is safe for concurrent use.
type handler struct {
	Server
	mux      *http.ServeMux
	document func() []byte
	reports  reports
}

// New makes the handler of all paths below Prefix.
func New(s Server) (http.Handler, error) {
	h, err := newHandler(s)
	if err != nil {
		return nil, err
	}
	paths := map[string][]operation{}
	for _, op := range operations() {
		paths[op.path] = append(paths[op.path], op)
	}
	for path, methods := range paths {
		h.mux.Handle(Prefix+path, h.resource(methods))
	}
	h.mux.Handle("/", h.resource(nil))
	return h.Access.Guard(h.mux), nil
}

// NewReload makes the handler of POST /-/reload: the operation reload, for callers with another Access
// than operators.
func NewReload(s Server) (http.Handler, error) {
	h, err := newHandler(s)
	if err != nil {
		return nil, err
	}
	return h.Access.Guard(h.resource([]operation{reloading})), nil
}

func newHandler(s Server) (*handler, error) {
	if s.Status == nil || s.Gate == nil || s.Ledger == nil && s.NoLedger == "" {
		return nil, errors.New("admin: Status, Gate, and Ledger or NoLedger are needed")
	}
	h := &handler{Server: s, mux: http.NewServeMux(),
		document: sync.OnceValue(func() []byte { return Document(s.Also...) })}
	if h.Compile == nil {
		h.Compile = func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) }
	}
	if h.Access == nil {
		h.Access = new(web.Access)
	}
	if h.Mark == nil {
		h.Mark = func(telemetry.Mark) {}
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	return h, nil
}

// resource handles the requests of one path.
func (h *handler) resource(methods []operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, op, err := h.admit(r, methods)
		var answer any
		if err == nil {
			answer, err = op.run(h, r.Context(), c)
		}
		if err != nil {
			p, hides := problemOf(err)
			if hides {
				h.Log.Error("admin: the ledger or the store did not answer", "error", err)
			}
			p.Write(w)
			return
		}
		c.write(w, answer)
	})
}

// admit authorises a request, and returns its operation.
func (h *handler) admit(r *http.Request, methods []operation) (*call, operation, error) {
	var op operation
	var names []string
	for _, one := range methods {
		names = append(names, one.method)
		if one.method == r.Method || one.method == get && r.Method == http.MethodHead {
			op = one
		}
	}
	// Authorisation comes first: the paths are not disclosed to others.
	who, err := h.Access.Identify(r, op.writes)
	if err != nil {
		return nil, op, err
	}
	if who == "" {
		who = "somebody at " + peer(r)
	}
	switch {
	case methods == nil:
		return nil, op, web.Refuse(missing, "there is no %.80q; GET %sopenapi.json lists all paths", r.URL.Path, Prefix)
	case op.run == nil:
		slices.Sort(names)
		return nil, op, web.NotAllowed(r, strings.Join(names, ", "))
	}
	c := &call{request: r, who: who}
	if err := c.readQuery(strings.Fields(op.query)); err != nil {
		return nil, op, err
	}
	if op.ledger && h.Ledger == nil {
		return nil, op, web.Refuse(http.StatusForbidden, "%s", h.NoLedger)
	}
	if op.telemetry && h.Telemetry == nil {
		return nil, op, web.Refuse(http.StatusForbidden, "telemetry is off: start the server with "+
			"--set server.telemetry=on")
	}
	if op.versioned {
		return c, op, c.readVersion()
	}
	return c, op, nil
}

// peer is the address of a caller without credentials. X-Weir-Actor would be no proof.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "this machine"
	}
	return host
}

func (h *handler) openAPI(context.Context, *call) (any, error) {
	return jsontext.Value(h.document()), nil
}
