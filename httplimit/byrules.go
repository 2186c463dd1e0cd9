package httplimit

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// ByRules makes middleware that decides each request by the rules of a gate; those that are
// swapped in apply to the next request.
//
// The path is brought to one form first, that of the rules or [WithPathForm]; that is what rules match and what
// the handler gets, in a request of its own where it differs (RequestURI stays as it came).
// A path that has no such form, a host that is none, and a cost that the request states
// wrongly are answered 400. The route is r.Pattern: for rules that match by it the
// middleware stands behind the mux. The method is what the request line says, whatever
// X-HTTP-Method-Override may; rules for POST see post as well, and rules for GET see HEAD. See
// [WithRegisteredMethods].
//
// The rule that refused says how: status, body, fields. A granted answer has one
// RateLimit-Policy and RateLimit for all rules whose fields are draft, and one triple of
// X-RateLimit for the worst of those that have it; rules in mode shadow and those without
// fields are not shown. Who is denied by a list or for a missing key is answered 403, which
// does not tell which; where the store did not answer and a rule says deny, 503, without
// Retry-After, because nobody knows how long. Both are problem+json, or plain JSON where
// the rule that decided has that. Who is banned is refused like anybody: with the end of the ban
// as Retry-After, and the ban among the limits of RateLimit and of the body's.
//
// A rule that settles has its cost corrected when the handler has returned: by the header
// or trailer that it names (a whole number; what is missing or malformed leaves the
// estimate, and the observer is told), or by the bytes of the body. Only the last gets the
// handler a ResponseWriter that is not the server's own. Concurrency limits are held until
// the handler returns.
func ByRules(g *gate.Gate, options ...Option) (func(http.Handler) http.Handler, error) {
	if g == nil {
		return nil, errors.New("httplimit: the gate is nil; make one with gate.New")
	}
	c, err := configure(options, forRules)
	if err != nil {
		return nil, err
	}
	l := &ruling{config: c, gate: g}
	l.pool.New = func() any { return new(hearing) }
	return l.wrap, nil
}

// ruling is the middleware, before it has a handler.
type ruling struct {
	config
	gate *gate.Gate
	pool sync.Pool
}

// A hearing is all that one decision needs. It is reused.
type hearing struct {
	request    rules.Request
	attributes attributes
	url        url.URL
	cost       int64
	ask        gate.Ask
	verdict    gate.Verdict
	policies   []byte
	limits     []byte
}

func (l *ruling) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := l.admit(w, r); p.request != nil {
			l.serve(w, p, next)
		}
	})
}

// admit decides and writes what there is to write before the handler does.
func (l *ruling) admit(w http.ResponseWriter, r *http.Request) passage {
	h := l.pool.Get().(*hearing)
	defer l.done(h)
	canonical, err := l.read(h, r)
	if err != nil {
		l.tell(r, Event{Outcome: Failed, Err: err})
		malformed(w, r, err, Problem)
		return passage{}
	}
	r = canonical
	if l.cost != nil {
		h.cost = l.cost(r)
		h.ask.Cost = &h.cost
	}
	v := &h.verdict
	err = l.gate.Decide(r.Context(), &h.request, h.ask, v)
	l.tell(r, event(v))
	switch {
	case err != nil:
		l.fail(w, r, v, err)
	case v.Outcome == gate.Denied:
		answer(w, r, &Refusal{Status: http.StatusForbidden, say: denied}, bodyOf(v.Rule))
	case v.Outcome == gate.Failed:
		answer(w, r, &Refusal{Status: http.StatusServiceUnavailable, say: undecided}, bodyOf(v.Rule))
	case v.Outcome == gate.Refused:
		h.describe(w.Header())
		refuseBy(w, r, v)
	default:
		h.describe(w.Header())
		return passage{request: r, delay: v.Delay, debt: l.debt(v)}
	}
	return passage{}
}

// read fills in what rules see of a request, and returns the request with its path in the
// form that they see.
func (l *ruling) read(h *hearing, r *http.Request) (*http.Request, error) {
	h.url = *r.URL
	path, err := l.pathForm().Apply(&h.url)
	if err != nil {
		return nil, err
	}
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	if h.url.Path != r.URL.Path || h.url.RawPath != r.URL.RawPath {
		r = r.WithContext(r.Context())
		r.URL = new(url.URL)
		*r.URL = h.url
	}
	h.attributes = attributes{request: r, descriptor: l.descriptor}
	if err := h.attributes.check(); err != nil {
		return nil, err
	}
	if l.registered && !isRegistered(r.Method) {
		return nil, &weir.InputError{Field: "method", Given: r.Method, Allowed: "a registered method in capitals, such as GET or POST"}
	}
	client, _ := l.clients.Of(r)
	h.request = rules.Request{Method: r.Method, Host: host, Path: path, Route: r.Pattern, Client: client, Attributes: &h.attributes}
	if l.user != nil {
		h.request.User = l.user(r)
	}
	if l.service != nil {
		h.request.Service = l.service(r)
	}
	h.ask = gate.Once
	return r, nil
}

func (l *ruling) pathForm() pathform.Form {
	if l.form != nil {
		return *l.form
	}
	return l.gate.Rules().PathForm()
}

// done lets go of the request. The verdict's keys are in a buffer of its own.
func (l *ruling) done(h *hearing) {
	h.request, h.attributes, h.url = rules.Request{}, attributes{}, url.URL{}
	h.verdict.Err = nil
	l.pool.Put(h)
}

// event is what the observer is told.
func event(v *gate.Verdict) Event {
	e := Event{Rule: v.Rule, Err: v.Err}
	if worst, ok := v.Worst(); ok {
		e.Answer = weir.Answer{Allowed: v.Outcome == gate.Passed, Limit: worst.Claim.Limit, Decision: *worst.Decision}
		e.Answer.Delay = v.Delay
	}
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
	return e
}

// fail answers for a request that could not be decided. What it says wrongly of itself is
// the client's mistake; what else is wrong, such as more rules than one decision takes, is
// the service's.
func (l *ruling) fail(w http.ResponseWriter, r *http.Request, v *gate.Verdict, err error) {
	var input *weir.InputError
	switch {
	case !errors.As(err, &input):
		l.unavailable(w, r)
	case v.Rule != nil:
		malformed(w, r, err, bodyOf(v.Rule))
	default:
		answer(w, r, &Refusal{Status: http.StatusInternalServerError, say: undecided}, Problem)
	}
}

// malformed says what is allowed instead. What was given is the client's own text: it is
// not repeated.
func malformed(w http.ResponseWriter, r *http.Request, err error, body Body) {
	field, allowed := "request", "a request that can be read"
	var input *weir.InputError
	if errors.As(err, &input) {
		field, allowed = input.Field, input.Allowed
	}
	say := func(language string, _ int64) string { return wrong(language, field, allowed) }
	answer(w, r, &Refusal{Status: http.StatusBadRequest, say: say}, body)
}

// refuseBy is the refusal of the rule that decided.
func refuseBy(w http.ResponseWriter, r *http.Request, v *gate.Verdict) {
	worst, _ := v.Worst()
	refusal := exceeded(w.Header(), worst.Rule.Response().Status, weir.Answer{Limit: worst.Claim.Limit, Decision: *worst.Decision})
	refusal.Rule, refusal.Label = worst.Rule.Name(), worst.Rule.Label()
	for i := range v.Len() {
		if c := v.At(i); c.Decided && !c.Shadow && c.Decision.RetryAfter != 0 && familyOf(c.Rule) != NoFields {
			refusal.Violated = append(refusal.Violated, c.Claim.Limit.Name())
		}
	}
	answer(w, r, refusal, bodyOf(worst.Rule))
}

// bodyOf is the body of the rule that decided; nil: no rule did.
func bodyOf(rule *rules.Rule) Body {
	switch {
	case rule == nil:
		return Problem
	case rule.Response().Template != nil:
		return templated(rule.Response())
	case rule.Response().Body == rules.JSONBody:
		return PlainJSON
	}
	return Problem
}

func templated(response *rules.Response) Body {
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		return execute(response.Template, response.ContentType, refusal, &rules.Refusal{Status: refusal.Status,
			RetryAfter: max(0, refusal.RetryAfter), Message: refusal.Message, Violated: refusal.Violated, Language: refusal.Language})
	}
}

func familyOf(rule *rules.Rule) Fields {
	switch rule.Response().Fields {
	case rules.SecondsFields:
		return Seconds
	case rules.UnixTimeFields:
		return UnixTime
	case rules.NoFields:
		return NoFields
	}
	return Draft
}

// describe adds the fields of each family that a rule asks for.
func (h *hearing) describe(header http.Header) {
	v, worst := &h.verdict, gate.Check{}
	h.policies, h.limits = h.policies[:0], h.limits[:0]
	for i := range v.Len() {
		c := v.At(i)
		if !c.Decided || c.Shadow || c.Aside {
			continue
		}
		switch familyOf(c.Rule) {
		case Draft:
			if !c.Ban { // which has no quota
				h.policies = appendPolicy(comma(h.policies), c.Claim.Limit)
			}
			h.limits = appendLimit(comma(h.limits), c.Claim.Limit, c.Decision, v.Outcome == gate.Passed)
		case Seconds, UnixTime:
			if worst.Rule == nil || weir.Worse(c.Decision, worst.Decision) {
				worst = c
			}
		}
	}
	if len(h.limits) > 0 {
		cut := len(h.policies)
		h.policies = append(h.policies, h.limits...)
		addPair(header, string(h.policies), cut)
	}
	if worst.Rule != nil {
		describeWorst(header, familyOf(worst.Rule), worst.Claim.Limit, worst.Decision)
	}
}

// addPair adds the two fields of the draft, which are the halves of one text, in one slice
// whose halves have no room to append: whoever adds a value copies them.
func addPair(header http.Header, text string, cut int) {
	values := []string{text[:cut], text[cut:]}
	addAll(header, fieldPolicy, values[:1:1])
	addAll(header, fieldLimit, values[1:])
}

func addAll(header http.Header, name string, values []string) {
	if header[name] == nil {
		header[name] = values
		return
	}
	header[name] = append(header[name], values...)
}

// debt is what the verdict leaves to do; nil is nothing.
func (l *ruling) debt(v *gate.Verdict) *debt {
	settles, measured := false, false
	for i := range v.Len() {
		if c := v.At(i); !l.estimated && c.Decided && c.Rule.Settle() != "" {
			settles, measured = true, measured || c.Rule.Settle() == inBytes
		}
	}
	if !settles && !v.Holds() {
		return nil
	}
	pay := actual
	if !settles {
		pay = nil
	}
	d := owed(l.gate, v.Receipt(), pay)
	d.measured, d.lasting = measured, lasting(v)
	return d
}

// lasting is how long the work goes on when the client has left, as long as a rule says that
// holds until it is done: the longest time-to-live of theirs. 0: it is called off.
func lasting(v *gate.Verdict) (ttl time.Duration) {
	for i := range v.Len() {
		c := v.At(i)
		if c.Decided && c.Rule.HoldUntil() == rules.Done && c.Claim.Limit.Algorithm() == weir.AlgorithmConcurrency {
			ttl = max(ttl, time.Duration(c.Claim.Limit.Period())*time.Microsecond)
		}
	}
	return ttl
}

// inBytes is how a rule says that its cost is the length of the body.
const inBytes = "bytes"

// actual is what the response says a claim has cost.
func actual(c *gate.Charged, s *served) (units int64, ok bool, err error) {
	if c.Rule == nil {
		return 0, false, nil
	}
	switch where := c.Rule.Settle(); where {
	case "":
		return 0, false, nil
	case inBytes:
		return s.meter.bytes, true, nil
	default:
		return reported(s.header, where)
	}
}

// reported is the cost in a header or trailer. A trailer comes last, so it counts.
func reported(header http.Header, name string) (units int64, ok bool, err error) {
	lines := header[http.TrailerPrefix+name]
	if len(lines) == 0 {
		lines = header[name]
	}
	text := ""
	if len(lines) > 0 {
		text = strings.Trim(lines[len(lines)-1], " \t")
	}
	if units, ok = digits(text); !ok || units > weir.MaxUnits {
		return 0, false, &weir.InputError{Field: "the response's " + name, Given: text, Allowed: "a whole number from 0 to 4503599627370496 (2^52)"}
	}
	return units, true, nil
}
