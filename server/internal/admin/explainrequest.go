package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// An ExplainedRequest is a request as a gateway receives it.
type ExplainedRequest struct {
	Method      string            `json:"method,omitzero" doc:"The default is GET."`
	Host        string            `json:"host,omitzero"`
	Path        string            `json:"path,omitzero" doc:"As received, perhaps with a query. The default is /."`
	Route       string            `json:"route,omitzero" doc:"Without it and service, the routes choose both."`
	User        string            `json:"user,omitzero"`
	Service     string            `json:"service,omitzero"`
	Client      string            `json:"client,omitzero" doc:"The address that connects, perhaps a trusted proxy."`
	Headers     map[string]string `json:"headers,omitzero"`
	Query       map[string]string `json:"query,omitzero" doc:"Besides that of path."`
	Cookies     map[string]string `json:"cookies,omitzero"`
	Descriptors Descriptors       `json:"descriptors,omitzero" doc:"In order. An object of texts is read in its order."`
	Body        string            `json:"body,omitzero"`
}

// Descriptors are in the order of the document.
type Descriptors []Descriptor

// A Descriptor is the value of descriptor.NAME in rules.
type Descriptor struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The object, which is the form of /v1/decide, is no map here: that
// would lose the order on which match.descriptor_keys depends.
func (d *Descriptors) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	if from.PeekKind() != '{' {
		return json.UnmarshalDecode(from, (*[]Descriptor)(d))
	}
	if _, err := from.ReadToken(); err != nil {
		return err
	}
	for from.PeekKind() != '}' {
		var one Descriptor
		if err := json.UnmarshalDecode(from, &one.Name); err != nil {
			return err
		}
		if err := json.UnmarshalDecode(from, &one.Value); err != nil {
			return err
		}
		*d = append(*d, one)
	}
	_, err := from.ReadToken()
	return err
}

// value is the first descriptor of the name; "" if the request has no such descriptor.
func (d Descriptors) value(_ *http.Request, name string) string {
	for i := range d {
		if d[i].Name == name {
			return d[i].Value
		}
	}
	return ""
}

// names are the names of all descriptors; each may occur once.
func (d Descriptors) names() (names []string, err error) {
	for i := range d {
		if slices.Contains(names, d[i].Name) {
			return nil, web.Refuse(invalid, "descriptors has %.80q twice; allowed: each name once", d[i].Name)
		}
		names = append(names, d[i].Name)
	}
	return names, nil
}

// A SeenRequest is a request as rules match it.
type SeenRequest struct {
	Method  string   `json:"method"`
	Host    string   `json:"host,omitzero"`
	Path    string   `json:"path,omitzero" doc:"In the form that rules match; absent if it has none."`
	Sent    string   `json:"sent_path" doc:"As received."`
	Client  string   `json:"client,omitzero" doc:"Behind trusted proxies."`
	Country string   `json:"country,omitzero" doc:"If the rules need it."`
	ASN     int64    `json:"asn,omitzero" doc:"The autonomous system, if the rules need it."`
	User    string   `json:"user,omitzero"`
	Route   string   `json:"route,omitzero" doc:"Given, or chosen by the routes."`
	Routed  bool     `json:"routed,omitzero" doc:"The routes chose it."`
	Service string   `json:"service,omitzero" doc:"Given, or that of the route."`
	Doubts  []string `json:"doubts,omitzero" doc:"What a gateway would ignore, or does not know."`
}

// An Explainer explains how a gateway decides requests.
type Explainer struct {
	Gate    *gate.Gate
	Set     *rules.Set             // that decides
	File    *rules.File            // of Set; nil: rules that do not match are not explained
	Options *httplimit.RuleOptions // of the gateway; nil: the defaults

	Services   func() []servermetrics.Service // of the gateway; nil: their state is not known
	RateLimits CallOptions                    // of Envoy's rate limit service
}

// Explain sends the request through the middleware of the gateway, which does not charge, so that the explanation
// cannot differ from a real decision. An error is one of the document.
func (x *Explainer) Explain(ctx context.Context, q *ExplainedRequest) (*Explanation, error) {
	o := httplimit.RuleOptions{}
	if x.Options != nil {
		o = *x.Options
	}
	if o.Clients == nil {
		o.Clients = new(clientaddr.Extractor)
	}
	r, err := q.request(ctx)
	if err != nil {
		return nil, err
	}
	names, err := q.Descriptors.names()
	if err != nil {
		return nil, err
	}
	e := &Explanation{What: "request", Exceptions: []Exception{}, Samples: []telemetry.Sample{}}
	e.Rules, e.Request = []gate.ExplainedRule{}, x.see(q, r, o.Clients)
	o.Explain = func(asked *rules.Request, v *gate.Verdict) {
		e.take(v, asked, x.File)
		e.Limit = x.limitOf(asked)
	}
	o.Observe = func(_ *http.Request, event httplimit.Event) { e.refuse(event.Err) }
	o.Read = func(*http.Request) (*rules.Set, *rules.Request) { return x.Set, nil }
	o.User = func(*http.Request) string { return q.User }
	o.Service = func(*http.Request) string { return e.Request.Service }
	o.Descriptor = q.Descriptors.value
	o.DescriptorKeys = func(*http.Request) []string { return names }
	middleware, err := httplimit.ByRules(x.Gate, &o)
	if err != nil {
		return nil, err
	}
	r.Pattern = e.Request.Route
	e.Answer = web.NewResponse()
	middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(e.Answer, r)
	e.leaveOutMadeID(r.Header)
	e.Answer.End()
	x.doubtGeo(e.Request)
	return e, ctx.Err()
}

// request is the request as a server receives it.
func (q *ExplainedRequest) request(ctx context.Context) (*http.Request, error) {
	if _, err := netip.ParseAddr(q.Client); q.Client != "" && err != nil {
		return nil, web.Refuse(invalid, "client is %.80q; allowed: an address, such as 203.0.113.7", q.Client)
	}
	target := cmp.Or(q.Path, "/")
	u, err := url.ParseRequestURI(target)
	if err != nil || target[0] != '/' {
		return nil, web.Refuse(invalid, "path is %.200q; allowed: a path that begins with a slash, as in a request",
			target)
	}
	query := make(url.Values)
	for name, value := range q.Query {
		query.Set(name, value)
	}
	u.RawQuery = strings.Trim(u.RawQuery+"&"+query.Encode(), "&")
	r := &http.Request{Method: cmp.Or(q.Method, http.MethodGet), URL: u, Host: q.Host, RequestURI: u.RequestURI(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(q.Body)), ContentLength: int64(len(q.Body))}
	if q.Host == "" {
		r.ProtoMinor = 0 // only HTTP/1.0 allows no host
	}
	if q.Client != "" {
		r.RemoteAddr = net.JoinHostPort(q.Client, "1")
	}
	for name, value := range q.Headers {
		r.Header.Set(name, value)
	}
	for name, value := range q.Cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return r.WithContext(ctx), nil
}

// see is the request as rules match it, with the route that the gateway chooses.
func (x *Explainer) see(q *ExplainedRequest, r *http.Request, clients *clientaddr.Extractor) *SeenRequest {
	s := &SeenRequest{Method: r.Method, Sent: r.URL.EscapedPath(), User: q.User, Route: q.Route, Service: q.Service}
	s.Host, _ = pathform.Host(r.Host)
	s.Path, _ = x.Set.PathForm().Path(s.Sent) // the middleware refuses an ambiguous path
	if client, ok := clients.Of(r); ok {
		s.Client = client.String()
	}
	trusted := clients.TrustsPeer(r)
	if header := clients.Header(); !trusted && r.Header.Get(header) != "" {
		s.doubt("%s is ignored: %s is not in --trusted-proxies", header, cmp.Or(q.Client, "the peer"))
	}
	if !trusted && q.User != "" {
		s.doubt("a gateway would ignore the user: %s is not in --trusted-proxies", cmp.Or(q.Client, "the peer"))
	}
	if s.Route+s.Service != "" || s.Path == "" || len(x.Set.Routes()) == 0 {
		return s
	}
	chosen := x.Set.Route(&rules.Request{Method: s.Method, Host: s.Host, Path: s.Path})
	if chosen == nil {
		s.doubt("no route matches: a gateway without --upstream answers 404")
		return s
	}
	s.Route, s.Service, s.Routed = chosen.Name, chosen.Service.Name, true
	return s
}

func (s *SeenRequest) doubt(format string, args ...any) {
	s.Doubts = append(s.Doubts, fmt.Sprintf(format, args...))
}

// doubtGeo says which facts about the client are unknown although the rules need them.
func (x *Explainer) doubtGeo(s *SeenRequest) {
	country, asn := x.Set.Located()
	if country && s.Country == "" {
		s.doubt("the country of the client is not known: see server.geo and server.country_header")
	}
	if asn && s.ASN == 0 {
		s.doubt("the autonomous system of the client is not known: see server.geo")
	}
}

// take takes the verdict.
func (e *Explanation) take(v *gate.Verdict, r *rules.Request, file *rules.File) {
	e.Explanation = *v.Explain(file, r)
	country, asn := v.Located()
	e.Request.Country, e.Request.ASN = country, int64(asn)
	for _, one := range v.Exceptions(r) {
		e.Exceptions = append(e.Exceptions, Exception{ID: one.ID, Kind: one.Kind, Rule: one.Rule, By: one.Component,
			Values: one.Values, Limit: one.Limit, Until: one.Until.UTC().Truncate(time.Second), Why: one.Why,
			InForce: true})
	}
}

// limitOf is the adaptive limit of the service of a request; nil: the service has none.
func (x *Explainer) limitOf(r *rules.Request) *ServiceLimit {
	i := slices.IndexFunc(x.Set.Services(), func(s *rules.Service) bool { return s.Name == r.Service })
	if i < 0 || x.Set.Services()[i].Concurrency == nil {
		return nil
	}
	s, l := x.Set.Services()[i], new(ServiceLimit)
	if fresh, err := adaptive.New(*s.Concurrency); err == nil {
		l.Concurrency = *servermetrics.NewConcurrency(s.Concurrency, fresh.State())
	}
	if x.Services != nil {
		list := x.Services()
		i := slices.IndexFunc(list, func(one servermetrics.Service) bool { return one.Name == s.Name })
		if i >= 0 && list[i].Concurrency != nil {
			l.Live, l.Concurrency = true, *list[i].Concurrency
		}
	}
	if class := s.ClassOf(r); class < len(l.Classes) {
		l.Class, l.Room = l.Classes[class].Name, l.Classes[class].Room
	}
	return l
}

// refuse takes the error of a request that the middleware refuses before the gate.
func (e *Explanation) refuse(err error) {
	if e.Outcome == "" && err != nil {
		e.Outcome, e.Reason, e.Error = gate.Failed.String(), gate.BadInput.String(), err.Error()
	}
}

// leaveOutMadeID leaves out the id that a refusal gets if its request has no id: it is another one each time.
func (e *Explanation) leaveOutMadeID(asked http.Header) {
	id := e.Answer.Header().Get(requestid.Field)
	if id == "" || id == requestid.For(asked) {
		return
	}
	e.Answer.Header().Del(requestid.Field)
	e.Answer.Body = strings.Replace(e.Answer.Body, fmt.Sprintf(`,"instance":%q`, requestid.Instance(id)), "", 1)
}
