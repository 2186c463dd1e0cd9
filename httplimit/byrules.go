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

// ByRules makes middleware that decides each request by the rules of a gate. When they are
// replaced, the next request is decided by the new ones.
//
// The path is first brought to one form, that of the rules or [WithPathForm]. Rules match that
// form, and the handler gets it, in a copy of the request where it differs (RequestURI stays
// unchanged). A path without such a form, an invalid host, and an invalid cost in the request are
// answered 400. The route is r.Pattern: rules that match by it need the middleware inside the mux.
// The method is that of the request line, not of X-HTTP-Method-Override; rules for POST match post
// as well, and rules for GET match HEAD. See [WithRegisteredMethods].
//
// The deciding rule defines status, body and fields of a refusal. A granted response has one
// RateLimit-Policy and RateLimit for all rules with draft fields, and one set of X-RateLimit fields
// for the most restrictive rule of those that have them; rules in shadow mode and rules
// without fields are not shown. A request that a list denies, or whose key is missing, is answered
// 403, without the reason; if the store does not respond and a rule says deny, 503, without
// Retry-After, because the duration is unknown. Both are problem+json, or plain JSON if the
// deciding rule has that. A banned request is a refusal: with the end of the ban as Retry-After,
// and the ban among the limits of RateLimit and of the body.
//
// A rule that settles corrects its cost after the handler has returned: from the header or trailer
// that it names (a whole number; a missing or malformed one leaves the estimate and is reported to
// the observer), or from the bytes of the body. Only the latter wraps the ResponseWriter.
// Concurrency limits are held until the handler returns.
func ByRules(g *gate.Gate, options ...Option) (func(http.Handler) http.Handler, error) {
	if g == nil {
		return nil, errors.New("httplimit: the gate is nil; make one with gate.New")
	}
	c, err := configure(options, forRules)
	if err != nil {
		return nil, err
	}
	l := &ruleMiddleware{config: c, gate: g}
	l.pool.New = func() any { return new(scratch) }
	return l.middleware(l.admit), nil
}

// ruleMiddleware admits requests by rules.
type ruleMiddleware struct {
	config
	gate *gate.Gate
	pool sync.Pool
}

// scratch is the memory of one decision. It is pooled.
type scratch struct {
	request    rules.Request
	attributes attributes
	url        url.URL
	cost       int64
	ask        gate.Ask
	verdict    gate.Verdict
	policies   []byte
	limits     []byte
}

// admit decides a request by rules; see config.middleware.
func (l *ruleMiddleware) admit(w http.ResponseWriter, r *http.Request) admission {
	h := l.pool.Get().(*scratch)
	defer l.done(h)
	canonical, err := l.read(h, r)
	if err != nil {
		l.notify(r, Event{Outcome: Failed, Err: err})
		malformed(w, r, err, Problem)
		return admission{}
	}
	r = canonical
	if l.cost != nil {
		h.cost = l.cost(r)
		h.ask.Cost = &h.cost
	}
	v := &h.verdict
	err = l.gate.Decide(r.Context(), &h.request, h.ask, v)
	l.notify(r, event(v))
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
		return admission{request: r, delay: v.Delay, followUp: l.followUp(v)}
	}
	return admission{}
}

// read fills in the rules' view of a request. It returns the request with its path in the matched
// form.
func (l *ruleMiddleware) read(h *scratch, r *http.Request) (*http.Request, error) {
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
		return nil, &weir.InputError{Field: "method", Given: r.Method,
			Allowed: "a registered method in capitals, such as GET or POST"}
	}
	client, _ := l.clients.Of(r)
	h.request = rules.Request{
		Method:     r.Method,
		Host:       host,
		Path:       path,
		Route:      r.Pattern,
		Client:     client,
		Attributes: &h.attributes,
	}
	if l.user != nil {
		h.request.User = l.user(r)
	}
	if l.service != nil {
		h.request.Service = l.service(r)
	}
	h.ask = gate.Once
	return r, nil
}

func (l *ruleMiddleware) pathForm() pathform.Form {
	if l.form != nil {
		return *l.form
	}
	return l.gate.Rules().PathForm()
}

// done drops the references to the request and pools the memory. The verdict's keys are in its own
// buffer.
func (l *ruleMiddleware) done(h *scratch) {
	h.request, h.attributes, h.url = rules.Request{}, attributes{}, url.URL{}
	h.verdict.Err = nil
	l.pool.Put(h)
}

// event is the observer's event for a verdict.
func event(v *gate.Verdict) Event {
	e := Event{Rule: v.Rule, Err: v.Err, Answer: answerOf(v)}
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

// fail responds to a request that could not be decided. Invalid input of a rule's key or cost is
// the client's mistake (400); other invalid input, such as too many rules for one decision, is the
// server's (500).
func (l *ruleMiddleware) fail(w http.ResponseWriter, r *http.Request, v *gate.Verdict, err error) {
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

// malformed responds with the allowed form of the input. The given text is the client's own and is
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

// refuseBy writes the refusal of the deciding rule.
func refuseBy(w http.ResponseWriter, r *http.Request, v *gate.Verdict) {
	worst, _ := v.Worst()
	refusal := exceeded(w.Header(), worst.Rule.Response().Status, answerOf(v))
	refusal.Rule, refusal.Label = worst.Rule.Name(), worst.Rule.Label()
	for i := range v.Len() {
		if c := v.At(i); c.Decided && !c.Shadow && c.Decision.RetryAfter != 0 && familyOf(c.Rule) != NoFields {
			refusal.Violated = append(refusal.Violated, c.Claim.Limit.Name())
		}
	}
	answer(w, r, refusal, bodyOf(worst.Rule))
}

// bodyOf is the body of the deciding rule, which may be nil.
func bodyOf(rule *rules.Rule) Body {
	if rule == nil || rule.Response().Body == "problem" {
		return Problem
	}
	if rule.Response().Body == "json" {
		return PlainJSON
	}
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		text, _ := rule.Body(&rules.Refusal{
			Status:     refusal.Status,
			RetryAfter: max(0, refusal.RetryAfter),
			Message:    refusal.Message,
			Violated:   refusal.Violated,
			Language:   refusal.Language,
		})
		return rule.Response().ContentType, text
	}
}

func familyOf(rule *rules.Rule) Fields {
	switch rule.Response().Fields {
	case "seconds":
		return Seconds
	case "unix_time":
		return UnixTime
	case "none":
		return NoFields
	}
	return Draft
}

// describe adds the fields of each family that the rules use.
func (h *scratch) describe(header http.Header) {
	v, worst := &h.verdict, gate.Check{}
	h.policies, h.limits = h.policies[:0], h.limits[:0]
	for i := range v.Len() {
		c := v.At(i)
		if !c.Decided || c.Shadow || c.Aside {
			continue
		}
		switch familyOf(c.Rule) {
		case Draft:
			if !c.Ban { // a ban has no quota
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

// addPair adds the two draft fields from the halves of one text, in one slice. The halves have no
// spare capacity, so that appending a value copies them.
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

// followUp is the follow-up of a granted verdict, or nil.
func (l *ruleMiddleware) followUp(v *gate.Verdict) *followUp {
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
	d := newFollowUp(l.gate, v.Receipt(), pay)
	d.measured, d.detached = measured, detachedTime(v)
	return d
}

// detachedTime is the time that the handler goes on after a disconnect: the longest time-to-live of
// the rules with hold_until: done, or 0.
func detachedTime(v *gate.Verdict) (ttl time.Duration) {
	for i := range v.Len() {
		c := v.At(i)
		if c.Decided && c.Rule.HoldUntilDone() && c.Claim.Limit.Algorithm() == weir.AlgorithmConcurrency {
			ttl = max(ttl, time.Duration(c.Claim.Limit.Period())*time.Microsecond)
		}
	}
	return ttl
}

// inBytes is the value of settle for the length of the body.
const inBytes = "bytes"

// actual is the cost of a claim according to the response.
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

// reported is the cost in a header or trailer. The trailer is final, so it precedes.
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
		return 0, false, &weir.InputError{Field: "the response's " + name, Given: text,
			Allowed: "a whole number from 0 to 4503599627370496 (2^52)"}
	}
	return units, true, nil
}
