package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/rules"
)

// Upstreams are the services and routes of the rule set in force. They keep connections and the health of addresses
// when rules change. Prepare is called by one goroutine at a time; the other methods may be called concurrently.
type Upstreams struct {
	maxConns int
	log      *slog.Logger
	now      atomic.Pointer[table]
}

// NewUpstreams makes upstreams without a route. maxConns bounds the connections to each address; 0 is no bound.
func NewUpstreams(maxConns int, log *slog.Logger) *Upstreams {
	u := &Upstreams{maxConns: maxConns, log: log}
	u.now.Store(&table{})
	return u
}

// A table is the services and routes of one rule set.
type table struct {
	set      *rules.Set // nil: none yet
	services []*service
	list     []*route
	routes   map[*rules.Route]*route
}

// A route is one of a table, and its counts.
type route struct {
	*rules.Route
	service *service
	counts  *routeCounts
}

// routeCounts go on while a route has its name.
type routeCounts struct {
	requests atomic.Uint64
	outcomes [outcomes]atomic.Uint64
}

// The outcomes of a request with a route.
const (
	forwarded = iota // to its service
	refused          // by a rule, by the store that did not answer, or because too many are in progress
	invalid          // answered 400 or 413
	gone             // its client left before the decision
	outcomes
)

// Prepare makes the services of a rule set, with the files of their TLS. use puts them in force: call it when the
// rules are. An unchanged service is kept, and so is the health of an address that stays in its service.
func (u *Upstreams) Prepare(set *rules.Set) (use func(), err error) {
	before := u.now.Load()
	t := &table{set: set, routes: make(map[*rules.Route]*route)}
	made := make(map[*rules.Service]*service)
	var errs []error
	for _, spec := range set.Services() {
		s, err := u.service(spec, before.service(spec.Name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		made[spec] = s
		t.services = append(t.services, s)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	for _, spec := range set.Routes() {
		r := &route{Route: spec, service: made[spec.Service], counts: before.counts(spec.Name)}
		t.list, t.routes[spec] = append(t.list, r), r
	}
	return func() {
		u.now.Store(t)
		for _, s := range before.services {
			if t.service(s.spec.Name) != s {
				s.watcher.end()
				s.transport.CloseIdleConnections()
			}
		}
		for _, s := range t.services {
			s.watcher.start()
		}
	}, nil
}

func (t *table) service(name string) *service {
	for _, s := range t.services {
		if s.spec.Name == name {
			return s
		}
	}
	return nil
}

func (t *table) counts(name string) *routeCounts {
	for _, r := range t.list {
		if r.Name == name {
			return r.counts
		}
	}
	return new(routeCounts)
}

// service makes a service; old, which may be nil, has its name.
func (u *Upstreams) service(spec *rules.Service, old *service) (*service, error) {
	if old != nil && reflect.DeepEqual(old.spec, spec) {
		return old, nil
	}
	s := &service{spec: spec, retries: new(atomic.Uint64)}
	transport, err := newServiceTransport(s, u.log)
	if err != nil {
		return nil, err
	}
	s.transport = transport
	var known records
	if old != nil {
		known = old.pool.Load().known
	}
	next := newPool(spec, known)
	transport.MaxConnsPerHost = u.maxConns
	if u.maxConns > 0 {
		transport.MaxIdleConnsPerHost = min(transport.MaxIdleConnsPerHost, u.maxConns)
	}
	if old != nil {
		s.retries = old.retries
		next.adopt(old.pool.Load())
	}
	s.pool.Store(next)
	s.watcher = newWatcher(s, u.log)
	s.limiter, err = limiterOf(spec, old)
	return s, err
}

// Close ends the checks of addresses. Prepare and the function that it returned must have ended.
func (u *Upstreams) Close() {
	for _, s := range u.now.Load().services {
		s.watcher.end()
	}
}

// Services is the state of the services, for metrics and operators.
func (u *Upstreams) Services() (list []servermetrics.Service) {
	now := time.Now()
	for _, s := range u.now.Load().services {
		one := servermetrics.Service{Name: s.spec.Name, Retries: s.retries.Load(), Concurrency: s.concurrency()}
		p := s.pool.Load()
		for i := range p.members {
			one.Addresses = append(one.Addresses, p.state(&p.members[i], now))
		}
		list = append(list, one)
	}
	return list
}

// Routes is the state of the routes, for metrics and operators.
func (u *Upstreams) Routes() (list []servermetrics.Route) {
	for _, r := range u.now.Load().list {
		one, o := servermetrics.Route{Name: r.Name, Service: r.service.spec.Name}, &r.counts.outcomes
		one.Forwarded, one.Refused = o[forwarded].Load(), o[refused].Load()
		one.Invalid, one.Gone = o[invalid].Load(), o[gone].Load()
		one.Requests = r.counts.requests.Load() // last, so that it is not smaller
		list = append(list, one)
	}
	return list
}

// A routedRequest is the context of a request through a gateway. It has one version of the table from the choice of the
// route to the response.
type routedRequest struct {
	context.Context
	table    *table
	request  rules.Request // as routes and rules see it
	peer     netip.Addr    // not valid: a Unix socket
	trusted  bool          // the peer is a trusted proxy
	route    *route        // nil: the gateway's own upstream
	address  *address      // that answers; nil: none yet
	began    time.Time     // of the last attempt
	body     *upload       // nil: none
	response responseBody  // that of the answer
	timer    *time.Timer   // of timeout.total; nil: none
	admitted bool          // by the limit of the service; it has a place there
	counted  bool          // its outcome
}

type routedKey struct{}

// Value implements context.Context.
func (p *routedRequest) Value(key any) any {
	if _, is := key.(routedKey); is {
		return p
	}
	return p.Context.Value(key)
}

// routedOf is nil for a request of no gateway.
func routedOf(ctx context.Context) *routedRequest {
	p, _ := ctx.Value(routedKey{}).(*routedRequest)
	return p
}

// ServiceOf is the name of the service that a request is forwarded to by a route; "" without a route.
func ServiceOf(r *http.Request) string {
	if p := routedOf(r.Context()); p != nil && p.route != nil {
		return p.route.service.spec.Name
	}
	return ""
}

// Read returns the values that the gateway has read of a request, for httplimit.RuleOptions.
func Read(r *http.Request) (*rules.Set, *rules.Request) {
	if p := routedOf(r.Context()); p != nil {
		return p.table.set, &p.request
	}
	return nil, nil
}

// TrustsPeer reports whether the peer of a request is a trusted proxy.
func TrustsPeer(r *http.Request) bool {
	p := routedOf(r.Context())
	return p != nil && p.trusted
}

// choose chooses the route of a request.
func (p *routedRequest) choose(r *http.Request) {
	if p.table.set == nil {
		return
	}
	if chosen := p.table.set.Route(&p.request); chosen != nil {
		p.route = p.table.routes[chosen]
		p.route.counts.requests.Add(1)
		r.Pattern = chosen.Name
	}
}

// rewrite sets the URL of a request to a service. The address is chosen later.
func (p *routedRequest) rewrite(out, in *url.URL) {
	first := &p.route.service.spec.Addresses[0].URL
	out.Scheme, out.Host = first.Scheme, first.Host
	if first.Scheme == h2c {
		out.Scheme = "http"
	}
	out.RawQuery = in.RawQuery
	out.Path, out.RawPath = in.Path, in.RawPath
	if !p.route.Rewrites() {
		return
	}
	raw := p.route.Forwarded(p.request.Path)
	if plain, err := url.PathUnescape(raw); err == nil { // the path has a form, so its escapes are valid
		out.Path, out.RawPath = plain, raw
	}
}

// maxBody is the largest body of a request; 0 is no bound.
func (p *routedRequest) maxBody() int64 {
	if p.route == nil {
		return 0
	}
	return p.route.MaxBody
}

// is counts the outcome of a request with a route. The first one counts.
func (p *routedRequest) is(outcome int) {
	if p.route != nil && !p.counted {
		p.counted = true
		p.route.counts.outcomes[outcome].Add(1)
	}
}

// Decided notes the decision on a request, as an observer of the limit.
func Decided(r *http.Request, e httplimit.Event) {
	var input *weir.InputError
	switch {
	case e.Outcome == httplimit.Refused, e.Outcome == httplimit.Denied:
		routedOf(r.Context()).is(refused)
	case e.Outcome == httplimit.Failed && errors.As(e.Err, &input):
		routedOf(r.Context()).is(invalid)
	}
}

// decided counts a request that the limit has answered, if it was not counted before.
func (p *routedRequest) decided() {
	if p.Err() != nil {
		p.is(gone)
	}
	p.is(refused)
}

// finish ends a request at its service.
func (p *routedRequest) finish() {
	if p.address != nil {
		p.address.active.Add(-1)
	}
	p.release(adaptive.Ignored, 0)
}
