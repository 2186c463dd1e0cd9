package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/pathform"
)

// An Option changes what New makes.
type Option func(*api)

// WithTokens has callers show a token (Authorization: Bearer). Those of read may peek and
// list; those of write may do everything. Only hashes are kept. Without this option everybody may
// do everything: then only loopback is a place to listen at.
func WithTokens(read, write []string) Option {
	return func(a *api) {
		a.guarded = true
		a.read, a.write = a.hashed(read), a.hashed(write)
	}
}

// WithHosts gives the names, without port, that requests may be addressed to (Host), such
// as localhost and 127.0.0.1. A server on loopback needs it: by DNS a page of anybody's can
// have a name of its own mean 127.0.0.1, and its script is then of the same origin.
func WithHosts(names ...string) Option {
	return func(a *api) { a.hosts = names }
}

// WithPathForm is the form that paths of callers are brought into before rules see them,
// instead of the strict one. It should be the one that is forwarded.
func WithPathForm(form pathform.Form) Option { return func(a *api) { a.form = form } }

// api is the handler. It is safe for concurrent use.
type api struct {
	gate        *gate.Gate
	form        pathform.Form
	hosts       web.Hosts
	guarded     bool
	read, write []web.Token
	problem     error // of an option
	crossOrigin *http.CrossOriginProtection
	operations  map[string]*operation // by path
	limits      *limits
	calls       sync.Pool // of *call
}

// New makes the handler of all paths below /v1/ that this package has. Other paths are
// answered with 404, as problem+json too. It has no deadlines of its own: those are the
// server's.
func New(g *gate.Gate, opts ...Option) (http.Handler, error) {
	if g == nil {
		return nil, errors.New("httpapi: the gate is nil; make one with gate.New")
	}
	a := &api{gate: g, crossOrigin: http.NewCrossOriginProtection(), operations: operations(), limits: newLimits()}
	a.calls.New = func() any { return &call{verdicts: []*gate.Verdict{new(gate.Verdict)}} }
	for _, opt := range opts {
		opt(a)
	}
	return a, a.problem
}

// An operation is what one path does.
type operation struct {
	method string
	writes bool // it changes something: a token for reading is not enough
	run    func(*api, context.Context, *call) error
	fields []field // of its document
	answer bool    // its answer is a decision, so that deny_status is for it
	brief  bool    // answer=compact is for it
}

func operations() map[string]*operation {
	const post, get = http.MethodPost, http.MethodGet
	return map[string]*operation{
		"/v1/decide":       {method: post, writes: true, run: (*api).decide, fields: decideFields(), answer: true, brief: true},
		"/v1/peek":         {method: post, run: (*api).peek, fields: peekFields(), answer: true},
		"/v1/reserve":      {method: post, writes: true, run: (*api).reserve, fields: reserveFields(), answer: true},
		"/v1/settle":       {method: post, writes: true, run: (*api).settle, fields: settleFields()},
		"/v1/acquire":      {method: post, writes: true, run: (*api).acquire, fields: acquireFields(), answer: true},
		"/v1/renew":        {method: post, writes: true, run: (*api).renew, fields: tokenFields()},
		"/v1/release":      {method: post, writes: true, run: (*api).release, fields: tokenFields()},
		"/v1/reset":        {method: post, writes: true, run: (*api).reset, fields: resetFields()},
		"/v1/bans":         {method: get, run: (*api).bans},
		"/v1/lift":         {method: post, writes: true, run: (*api).lift, fields: liftFields()},
		comparePath:        {method: get, run: (*api).compare},
		"/v1/openapi.json": {method: get, run: (*api).openAPI},
	}
}

// ServeHTTP answers one request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, rule, err := a.admit(r)
	if err != nil {
		writeProblem(w, err)
		return
	}
	c := a.calls.Get().(*call)
	c.reset(a)
	c.rule = rule
	if err = a.serve(op, r, c); err != nil {
		writeProblem(w, err) // may show what lies in c
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
	if op.method == http.MethodPost {
		if err := c.receive(r); err != nil {
			return err
		}
		if err := c.parse(op.fields); err != nil {
			return err
		}
	}
	return op.run(a, r.Context(), c)
}

// admit finds the operation, with the rule that the path names, and checks whether this caller
// may do it. What pages of other sites send is refused before anything else, also where a token
// is asked for.
func (a *api) admit(r *http.Request) (op *operation, rule string, err error) {
	if err := a.checkHost(r); err != nil {
		return nil, "", err
	}
	if err := a.crossOrigin.Check(r); err != nil {
		return nil, "", &problem{status: http.StatusForbidden, detail: "the request comes from a page of another site: " + err.Error()}
	}
	op, rule = a.find(r.URL.Path)
	if op == nil {
		return nil, "", &problem{status: http.StatusNotFound, detail: fmt.Sprintf("there is no %.80q; GET /v1/openapi.json tells what there is", r.URL.Path)}
	}
	if r.Method != op.method && !(r.Method == http.MethodHead && op.method == http.MethodGet) {
		allow := strings.Replace(op.method, http.MethodGet, "GET, HEAD", 1)
		return nil, "", &problem{status: http.StatusMethodNotAllowed, detail: fmt.Sprintf("method is %.20q; allowed: %s", r.Method, allow), allow: allow}
	}
	return op, rule, a.authorize(op, r)
}

func (a *api) checkHost(r *http.Request) error {
	if a.hosts.Allow(r.Host) {
		return nil
	}
	return &problem{status: http.StatusForbidden, detail: fmt.Sprintf("host is %.80q; allowed: %s", r.Host, strings.Join(a.hosts, ", "))}
}
