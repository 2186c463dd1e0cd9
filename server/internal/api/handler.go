package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/web"
)

// A Config has the parts that a handler needs besides the gate.
type Config struct {
	Access *web.Access // read-only callers may peek; nil: everybody may do everything
	// Form is the form into which paths are brought before rules are matched. It should be the form
	// that is forwarded.
	Form pathform.Form
}

// api is the handler. It is safe for concurrent use.
type api struct {
	Config
	gate       *gate.Gate
	operations map[string]*operation // by path
	document   func() []byte
	limits     *limits
	calls      sync.Pool // of *call
}

// New makes the handler of the paths below /v1/ in the package comment. It answers other paths with
// 404, as problem+json too. It has no timeouts: those are the HTTP server's.
func New(g *gate.Gate, c Config) (http.Handler, error) {
	if g == nil {
		return nil, errors.New("api: the gate is nil; make one with gate.New")
	}
	if c.Access == nil {
		c.Access = new(web.Access)
	}
	a := &api{Config: c, gate: g, operations: operations(), document: sync.OnceValue(Document), limits: newLimits()}
	a.calls.New = func() any { return &call{verdicts: []*gate.Verdict{new(gate.Verdict)}} }
	return a.Access.Guard(a), nil
}

// ServeHTTP answers one request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, err := a.admit(r)
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	c := a.calls.Get().(*call)
	c.reset(a)
	if err = a.serve(op, r, c); err != nil {
		problemOf(err).Write(w) // it may refer to memory of c
	} else {
		c.write(w)
	}
	if !c.large() {
		a.calls.Put(c)
	}
}

func (a *api) serve(op *operation, r *http.Request, c *call) error {
	if err := c.parameters(op, r); err != nil {
		return err
	}
	if op.body != nil {
		if err := c.body.ReadAll(r, maxBody, "application/json"); err != nil {
			return err
		}
		if err := c.parse(op.members); err != nil {
			return err
		}
	}
	return op.run(a, r.Context(), c)
}

// admit finds the operation, and checks the access of the caller to it.
func (a *api) admit(r *http.Request) (*operation, error) {
	op := a.operations[r.URL.Path]
	switch {
	case op == nil && moved(r.URL.Path):
		return nil, web.Refuse(http.StatusNotFound, "bans and comparisons are in the admin API: "+
			"GET /v1/admin/bans, POST /v1/admin/bans/lift, GET /v1/admin/rules/NAME/compare")
	case op == nil:
		return nil, web.Refuse(http.StatusNotFound, "there is no %.80q; GET /v1/openapi.json lists all paths",
			r.URL.Path)
	case r.Method != op.method && !(r.Method == http.MethodHead && op.method == http.MethodGet):
		return nil, web.NotAllowed(r, strings.Replace(op.method, http.MethodGet, "GET, HEAD", 1))
	}
	_, err := a.Access.Identify(r, op.writes)
	return op, err
}

// moved reports whether a path was part of this API before.
func moved(path string) bool {
	return path == "/v1/bans" || path == "/v1/lift" || strings.HasPrefix(path, "/v1/rules/")
}

func (a *api) openAPI(_ context.Context, c *call) error {
	c.out = append(c.out, a.document()...)
	return nil
}
