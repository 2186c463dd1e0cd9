package httplimit

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// ByRules makes middleware that decides each request by the rules of a gate. When they are
// replaced, the next request is decided by the new ones.
//
// The path is first brought to one form: the rules' or RuleOptions.PathForm. Rules match that form, and the handler
// gets it, in a copy of the request where it differs (RequestURI stays unchanged). A path without such a form, an
// invalid host, and an invalid cost in the request are answered 400. The route is r.Pattern: rules that match by it
// need the middleware inside the mux. The method is taken from the request line, not from X-HTTP-Method-Override; rules
// for POST match post as well, and rules for GET match HEAD. See RuleOptions.RegisteredMethods.
//
// The deciding rule defines status, body and fields of a refusal. A granted response has one RateLimit-Policy and
// RateLimit for all rules with draft fields, and one set of X-RateLimit fields for the most restrictive rule that has
// them; rules in shadow mode and rules without fields are not shown. A request that a list denies, or that lacks its
// key, is answered 403, without the reason; if the store does not respond and a rule says deny, 503, without
// Retry-After, because the duration is unknown. Both are problem+json, or plain JSON if the deciding rule has that. A
// banned request is a refusal: with the end of the ban as Retry-After, and the ban among the limits of RateLimit and of
// the body.
//
// A rule that settles corrects its cost after the handler has returned: from the header or trailer that it names (a
// whole number; a missing or malformed one leaves the estimate and is reported to the observer), or from the bytes of
// the body. A rule with count_if keeps or gives back its units before the head of the response is sent; a request
// counts if its client has left. Only the latter two wrap the ResponseWriter. Concurrency limits are held until the
// handler returns.
func ByRules(g *gate.Gate, options *RuleOptions) (func(http.Handler) http.Handler, error) {
	d, err := newByRules(g, options)
	if err != nil {
		return nil, err
	}
	return d.config().middleware(d.decide, nil), nil
}

// byRules decides by the rules of a gate.
type byRules struct {
	RuleOptions
	gate     *gate.Gate
	sends    bool // the program sends the requests: see TransportByRules
	policies atomic.Pointer[policies]
}

func newByRules(g *gate.Gate, options *RuleOptions) (*byRules, error) {
	if g == nil {
		return nil, errors.New("httplimit: the gate is nil; make one with gate.New")
	}
	d := &byRules{gate: g}
	if options != nil {
		d.RuleOptions = *options
	}
	if d.Clients == nil {
		d.Clients = new(clientaddr.Extractor)
	}
	return d, nil
}

func (d *byRules) config() *config {
	return &config{grpc: d.GRPCStatus, pages: d.Pages, observe: d.Observe}
}

// policies are the values of RateLimit-Policy for the first limit of each rule of a set, once they are asked for.
type policies struct {
	set *rules.Set
	of  []atomic.Pointer[[]string]
}

// policy is the value for the first limit of a rule in force, without spare capacity; nil for other limits.
func (d *byRules) policy(rule *rules.Rule, limit *weir.Limit) []string {
	set, known := d.gate.Rules(), d.policies.Load()
	all := set.Rules()
	if known == nil || known.set != set {
		known = &policies{set, make([]atomic.Pointer[[]string], len(all))}
		d.policies.Store(known)
	}
	i := rule.Index()
	if i >= len(all) || all[i] != rule || rule.Limits()[0] != limit {
		return nil
	}
	value := known.of[i].Load()
	if value == nil {
		value = &[]string{ratefields.Policy(rule.Limits()[:1], rule.Unit().String())}
		known.of[i].Store(value)
	}
	return *value
}

func (d *byRules) decide(c *call) {
	if err := d.read(c); err != nil {
		c.event = Event{Outcome: Failed, Err: err}
		c.refuse(http.StatusBadRequest, wording.Invalid(err), nil)
		return
	}
	if !d.readMessages(c) {
		return
	}
	ask := gate.Once
	ask.Rules, ask.Settles = c.rules, !d.KeepEstimates && !c.attributes.several()
	if d.Cost != nil {
		c.cost = d.Cost(c.request)
		ask.Cost = &c.cost
	}
	if d.Explain != nil {
		ask.Times = 0
	}
	v := &c.verdict
	var err error
	if c.attributes.several() {
		err = d.decideBatch(c, ask)
	} else {
		err = d.gate.Decide(c.request.Context(), &c.view, ask, v)
	}
	if d.Explain != nil {
		d.Explain(&c.view, v)
	}
	c.request = c.attributes.request
	if c.event.Answer.Delay = v.Delay; d.Observe != nil || v.Outcome != gate.Passed { // else the rest is not needed
		c.event.take(v)
	}
	if err != nil {
		c.failByRules(err)
		return
	}
	c.render(v, &c.view)
	if len(c.checks) == 1 && v.Rule != nil { // nearly always
		c.policy = d.policy(v.Rule, c.checks[0].Limit)
	}
	if v.Outcome == gate.Passed && d.Explain == nil {
		c.add(v)
		c.followUp = d.followUp(c, v)
	}
}

// render takes the texts and fields that rules define for a verdict. Claims without a rule have the defaults.
func (c *call) render(v *gate.Verdict, request *rules.Request) {
	switch v.Outcome {
	case gate.Denied:
		c.refuse(http.StatusForbidden, wording.Denied, c.bodyOf(v))
	case gate.Failed:
		c.refuse(http.StatusServiceUnavailable, wording.Undecided, c.bodyOf(v))
	case gate.Refused:
		if v.Reason == gate.Repeated {
			c.refuse(http.StatusConflict, wording.Repeated, c.bodyOf(v))
			c.refusal.Rule, c.refusal.Label = v.Rule.Name(), v.Rule.Label()
			return
		}
		c.take(v, styleOf)
		status, name, label := http.StatusTooManyRequests, "", ""
		if v.Rule != nil {
			status, name, label = v.Rule.Response().Status, v.Rule.Name(), v.Rule.Label()
		}
		c.exceed(status, v.RetryAfter(), c.bodyOf(v))
		c.refusal.Rule, c.refusal.Label, c.refusal.say = name, label, wording.Of(v, request)
	default:
		c.take(v, styleOf)
	}
}

// Respond answers as ByRules does: with the fields of a request that passes, or with its whole refusal. request is the
// decided request, or nil; id is its id. Front ends use it where the caller, such as a proxy, forwards the response.
func Respond(w http.ResponseWriter, request *rules.Request, v *gate.Verdict, id string) {
	c := &call{event: EventOf(v), request: &http.Request{Header: make(http.Header)}}
	if request != nil && request.Attributes != nil {
		for _, name := range []string{"Accept", "Accept-Language"} {
			c.request.Header.Set(name, request.Attributes.Header(name))
		}
		if a, ok := request.Attributes.(interface{ Messages() *mcp.Body }); ok {
			c.attributes.messages = a.Messages()
		}
	}
	c.render(v, request)
	m := middleware{config: &config{pages: true}}
	m.describe(w.Header(), c)
	if c.refusal != nil {
		c.refusal.RequestID = id
		m.answer(w, c.request, c.refusal, c.body)
	}
}

// read fills in the rules' view of a request.
func (d *byRules) read(c *call) error {
	c.view.Attributes = &c.attributes // so that done clears both
	var known *rules.Request
	if d.Read != nil {
		c.rules, known = d.Read(c.request)
	}
	if known != nil {
		c.view.Path, c.view.Host, c.view.Client = known.Path, known.Host, known.Client
	} else if err := d.form(c); err != nil {
		return err
	}
	r := c.request
	c.attributes.of(r, c.writer, d.Descriptor)
	c.attributes.rules = d.gate.Rules()
	c.attributes.Kind = c.attributes.rules.ServiceKind()
	if err := c.attributes.Check(); err != nil {
		return err
	}
	if d.RegisteredMethods && !webvalues.IsRegistered(r.Method) {
		return &weir.InputError{Field: "method", Given: r.Method,
			Allowed: "a registered method in capitals, such as GET or POST"}
	}
	c.view.Method, c.view.Route = r.Method, r.Pattern
	if d.User != nil {
		c.view.User = d.User(r)
	}
	if d.Country != nil {
		c.view.Country = d.Country(r)
	}
	if d.Service != nil {
		c.view.Service = d.Service(r)
	}
	if d.DescriptorKeys != nil {
		c.view.DescriptorKeys = d.DescriptorKeys(r)
	}
	return nil
}

// form brings the path of a request to the matched form, and reads the host and the client.
func (d *byRules) form(c *call) (err error) {
	r := c.request
	formed := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, Opaque: r.URL.Opaque}
	if c.view.Path, err = d.pathForm().Apply(&formed); err != nil {
		return err
	}
	if c.view.Host, err = webvalues.Host(r); err != nil {
		return err
	}
	c.view.Client, _ = d.Clients.Of(r)
	if formed.Path != r.URL.Path || formed.RawPath != r.URL.RawPath {
		c.request = r.WithContext(r.Context())
		whole := *r.URL
		c.request.URL = &whole
		whole.Path, whole.RawPath = formed.Path, formed.RawPath
	}
	return nil
}

func (d *byRules) pathForm() pathform.Form {
	if d.PathForm != nil {
		return *d.PathForm
	}
	return d.gate.Rules().PathForm()
}

// EventOf is the event of a verdict. It is for middleware of other protocols.
func EventOf(v *gate.Verdict) (e Event) {
	e.take(v)
	return e
}

// take fills a zero event from a verdict.
func (e *Event) take(v *gate.Verdict) {
	e.Rule, e.Err = v.Rule, v.Err
	takeAnswer(&e.Answer, v)
	switch {
	case v.Outcome == gate.Refused:
		e.Outcome = Refused
	case v.Outcome == gate.Denied:
		e.Outcome = Denied
	case v.Outcome == gate.Failed || v.Reason == gate.StoreFailed:
		e.Outcome = Failed
	case v.Reason != gate.WithinLimits:
		e.Outcome = Skipped
	}
}

// failByRules refuses a request that rules could not decide. Invalid input of a rule's key or cost is
// the client's mistake (400); other invalid input, such as too many rules for one decision, is the
// server's (500).
func (c *call) failByRules(err error) {
	rule := c.verdict.Rule
	var input *weir.InputError
	switch {
	case !errors.As(err, &input):
		c.refuse(http.StatusServiceUnavailable, wording.Undecided, c.bodyOf(nil))
	case rule != nil:
		c.refuse(http.StatusBadRequest, wording.Invalid(err), c.bodyOf(&c.verdict))
	case c.attributes.several(): // it calls more tools than a decision holds
		c.refuse(http.StatusBadRequest, wording.Invalid(err), c.bodyOf(nil))
	default:
		c.refuse(http.StatusInternalServerError, wording.Undecided, c.bodyOf(nil))
	}
}

// bodyOf is the body of the deciding rule; nil is a Problem, or a page. A nil verdict has no rule.
func (c *call) bodyOf(v *gate.Verdict) Body {
	var rule *rules.Rule
	if v != nil {
		rule = v.Rule
	}
	if c.attributes.messages != nil && (rule == nil || rule.Response().Shape == "mcp") {
		return c.answerMessages(rule, v)
	}
	if rule == nil {
		return nil
	}
	if shaped := modelErrors[rule.Response().Shape]; shaped != nil {
		return c.answerModel(shaped, rule, v)
	}
	if rule.Response().Shape == "problem" {
		return Problem
	}
	if rule.Response().Body == "" {
		return nil
	}
	return func(_ *http.Request, refusal *Refusal) (string, []byte) { return refusal.BodyOf(rule) }
}

// BodyOf is the body of a refusal by a rule, which may be nil. It is for middleware of other protocols.
func (r *Refusal) BodyOf(rule *rules.Rule) (contentType string, body []byte) {
	switch {
	case rule == nil || rule.Response().Body == "" || rule.Response().Body == "problem":
		return Problem(nil, r)
	case rule.Response().Body == "json":
		return PlainJSON(nil, r)
	}
	body, _ = rule.Body(&rules.Refusal{
		Status:     r.Status,
		RetryAfter: max(0, r.RetryAfter),
		Message:    r.Message,
		Violated:   r.Violated,
		Language:   r.Language,
	})
	return rule.Response().ContentType, body
}

func styleOf(c gate.Check) (ratefields.Style, []byte) {
	if c.Rule == nil {
		return ratefields.Draft, nil
	}
	return ratefields.StyleOf(c.Rule.Response().Fields), nil
}

// followUp is the follow-up of a granted verdict, or nil.
func (d *byRules) followUp(c *call, v *gate.Verdict) *followUp {
	if c.attributes.several() {
		return d.followBatch(c)
	}
	settles, measured, counted, read := false, false, false, false
	var paced []pacedRule
	var answer *rules.Answer
	for i := range v.Len() {
		if d.KeepEstimates {
			break
		}
		c := v.At(i)
		if !c.Decided || c.Rule == nil {
			continue
		}
		if c.Rule.Settles() {
			length, body := c.Rule.SettlesBy()
			answer, settles, measured, read = c.Rule.Answer(), true, measured || length || body, read || body
		}
		if _, _, ok := c.Rule.Steps(); ok && c.Granted > 0 &&
			!slices.ContainsFunc(paced, func(p pacedRule) bool { return p.Rule == c.Rule }) {
			answer, paced, measured, read = c.Rule.Answer(), append(paced, pacedRule{Rule: c.Rule}), true, true
		}
		counted = counted || (c.Rule.HasCountIf() || c.Rule.ByPath()) && c.Granted > 0
	}
	if !settles && !counted && len(paced) == 0 && !v.Holds() && !d.sends {
		return nil
	}
	pay := actual
	if !settles {
		pay = nil
	}
	if len(paced) > 0 {
		c.uncompressed()
	}
	f := newFollowUp(d.gate, v.Receipt(), pay, counted)
	f.measured, f.detached = measured || counted, detachedTime(v)
	f.toEnd = settles || len(paced) > 0 || v.Holds()
	f.answer, f.read, f.decoders, f.paced = answer, read, d.Decoders, paced
	return f
}

// detachedTime is the time that the handler goes on after a disconnect: the longest time-to-live of
// the rules with hold_until: done, or 0.
func detachedTime(v *gate.Verdict) (ttl time.Duration) {
	for i := range v.Len() {
		c := v.At(i)
		if c.Decided && c.Rule.HoldUntilDone() && c.Claim.Limit.Leases() {
			ttl = max(ttl, time.Duration(c.Claim.Limit.Period())*time.Microsecond)
		}
	}
	return ttl
}

// actual is the cost of a claim according to the response. An error of the service costs 0 if its body should state the
// cost and does not.
func actual(c *gate.Charged, s *served) (units int64, ok bool, err error) {
	if c.Rule == nil || !c.Rule.Settles() {
		return 0, false, nil
	}
	length, body := c.Rule.SettlesBy()
	s.answer.Header, s.answer.Bytes = s.lastLine, s.meter.bytes
	missing := s.unfinished || s.unseen && (length || body) || body && (!s.returned || s.meter.broken)
	if missing { // the missing part may state a higher cost
		units, ok = s.atLeast(c)
		return units, ok, nil
	}
	if units, err = c.Rule.Actual(s.answer); err == nil || !body {
		return units, true, err
	}
	if status := s.status(); status >= http.StatusBadRequest || status == http.StatusTemporaryRedirect ||
		status == http.StatusPermanentRedirect { // the client sends the same request elsewhere
		return 0, true, nil
	}
	if units, ok = s.atLeast(c); ok {
		return units, true, nil
	}
	return 0, false, err
}

// atLeast is the cost of the part of a response that has passed, if that is more than the charge: its length, or the
// usage that it has stated so far. It is for responses that do not state their whole cost: a client that leaves before
// the last usage arrives must not get more than it pays for. If the response was charged in steps, they include the
// length already.
func (s *served) atLeast(c *gate.Charged) (units int64, ok bool) {
	status := s.status()
	if status == 0 || status >= http.StatusBadRequest {
		return 0, false
	}
	charged := c.Claim.Cost + s.meter.pace.charged(c.Rule)
	if paced := s.meter.paces && !s.meter.pace.stopped; !paced {
		units = c.Known + c.Rule.Passed(s.answer)
		if _, _, steps := c.Rule.Steps(); steps { // the charge is of the prompt alone
			units += c.Claim.Cost
		}
	}
	if stated, err := c.Rule.Actual(s.answer); err == nil {
		units = max(units, stated)
	}
	return units, units > charged
}

// lastLine is the last line of a trailer or a header field. The trailer is final, so it precedes.
func (s *served) lastLine(name string) string {
	lines := s.header[http.TrailerPrefix+name]
	if len(lines) == 0 {
		lines = s.header[name]
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Trim(lines[len(lines)-1], " \t")
}
