package admin

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// A Question is the body of explain: a text or a request.
type Question struct {
	Text    string            `json:"text,omitzero" doc:"A key, its value, an address, or a request ID."`
	Request *ExplainedRequest `json:"request,omitzero" doc:"A request as rules match it."`
	// RateLimit is text, because protobuf's JSON has other rules than this API.
	RateLimit string `json:"ratelimit_request,omitzero" doc:"Of Envoy, as text in proto3 JSON."`
}

// An Explanation is the state of keys, or the decision on a request, now, without a charge.
type Explanation struct {
	Now     time.Time    `json:"now,omitzero" doc:"By the server's clock."`
	What    string       `json:"what" enum:"key|address|request_id|request|ratelimit_request" doc:"What was asked."`
	Request *SeenRequest `json:"request,omitzero" doc:"Only of a request, as outcome and reason."`
	gate.Explanation
	More       int64              `json:"more,omitzero" doc:"Rules that are left out."`
	Exceptions []Exception        `json:"exceptions"`
	Answer     *web.Response      `json:"answer,omitzero" doc:"Of the gateway to the request."`
	Samples    []telemetry.Sample `json:"samples" doc:"Of this server, the latest first."`
	Limit      *ServiceLimit      `json:"concurrency,omitzero" doc:"Adaptive limit of the service, after the rules."`

	Code        string                `json:"code,omitzero" enum:"OK|OVER_LIMIT" doc:"Of a RateLimitRequest."`
	Descriptors []ExplainedDescriptor `json:"descriptors,omitzero" doc:"Likewise. The first that decides is beside."`

	Problems []string `json:"problems,omitzero" doc:"What could not be read."`
}

// A ServiceLimit is the adaptive limit of a service, which a request meets after the rules.
type ServiceLimit struct {
	Class string `json:"class,omitzero" doc:"Of the request."`
	Room  int    `json:"room" doc:"Requests in flight at which the class has to wait."`
	Live  bool   `json:"live,omitzero" doc:"The state is that of this server; else it is that of a start."`
	servermetrics.Concurrency
}

// An ExplainedDescriptor is a descriptor of a RateLimitRequest with its decision.
type ExplainedDescriptor struct {
	Descriptor string `json:"descriptor" doc:"The domain and the entries."`
	Code       string `json:"code" enum:"OK|OVER_LIMIT"`
	gate.Explanation
}

// Bounds of an explanation.
const (
	maxExplained = 64  // rules
	maxText      = 512 // bytes of a text
	maxDecided   = 20  // samples
)

// explain answers which rules apply to a key, an address or a request, and why. It does not charge.
func (h *handler) explain(ctx context.Context, c *call) (any, error) {
	var q Question
	if err := c.document(&q); err != nil {
		return nil, err
	}
	given := 0
	for _, is := range []bool{q.Text != "", q.Request != nil, q.RateLimit != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, web.Refuse(invalid, "allowed: text, request or ratelimit_request, one of them")
	}
	if len(q.Text) > maxText {
		return nil, web.Refuse(invalid, "text has %d bytes; allowed: at most %d", len(q.Text), maxText)
	}
	var e *Explanation
	var err error
	switch {
	case q.Request != nil:
		e, err = h.explainRequest(ctx, q.Request)
	case q.RateLimit != "":
		e, err = h.explainer().ExplainRateLimit(ctx, q.RateLimit)
	default:
		e, err = h.explainText(ctx, strings.TrimSpace(q.Text))
	}
	if err != nil {
		return nil, err
	}
	e.More += int64(max(0, len(e.Rules)-maxExplained))
	e.Rules = e.Rules[:min(len(e.Rules), maxExplained)]
	return render(e, nil)
}

// rank sorts rules that refuse before rules with use, and these before the others.
func rank(r *gate.ExplainedRule) int {
	rank := 2
	for _, l := range r.Limits {
		switch {
		case l.RetryAfter == nil || *l.RetryAfter > 0:
			return 0
		case l.ResetAfter > 0:
			rank = 1
		}
	}
	if r.BannedFor > 0 || r.Degraded == rules.RefuseAll {
		return 0
	}
	return rank
}

// explainText shows the rules that have a text as a key, refusing ones first, then ones in use.
func (h *handler) explainText(ctx context.Context, text string) (*Explanation, error) {
	e := &Explanation{Now: time.Now().UTC(), What: "address", Exceptions: []Exception{},
		Samples: []telemetry.Sample{}}
	e.Rules = []gate.ExplainedRule{}
	only := ""
	if _, err := netip.ParseAddr(text); err != nil {
		e.What = "key"
		if only, text = h.ofRequest(text, e); only != "" {
			e.What = "request_id"
		}
	}
	if h.Telemetry != nil && only == "" {
		e.Samples = append(e.Samples, h.Telemetry.Recent(telemetry.Filter{Key: text}, maxDecided)...)
	}
	for _, rule := range h.Gate.Rules().Rules() {
		if only != "" && rule.Name() != only {
			continue
		}
		if err := h.explainKey(ctx, rule, text, e); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(e.Rules, func(a, b gate.ExplainedRule) int { return cmp.Compare(rank(&a), rank(&b)) })
	values := keytext.Values(text)
	if values == nil {
		values = []string{text}
	}
	h.addExceptions(ctx, e, func(x *Exception) bool { return x.covers(values) })
	return e, nil
}

// explainKey adds a rule with the state of a key, if the text is one of the rule.
func (h *handler) explainKey(ctx context.Context, rule *rules.Rule, text string, e *Explanation) error {
	key, limits, err := rule.LookupText(text)
	if err != nil {
		return nil
	}
	if len(e.Rules) == 4*maxExplained { // of which the worst are shown
		e.More++
		return nil
	}
	one, _ := h.Gate.ExplainKey(ctx, rule, string(key), limits) // it says what it does not know
	if len(rule.Components()) == 1 && !rule.IsKey(text) {
		one.Values = append(one.Values, readable(text))
	}
	if !rule.Enabled() {
		one.Skipped, one.Limits, one.Binding, one.BannedFor = "the rule is disabled", one.Limits[:0], nil, 0
	}
	e.Rules = append(e.Rules, one)
	return ctx.Err()
}

// ofRequest finds the rule and the key of a request ID among the samples; rule is "" if the id is unknown.
func (h *handler) ofRequest(id string, e *Explanation) (rule, key string) {
	if h.Telemetry == nil {
		return "", id
	}
	list := h.samplesOf(telemetry.Filter{}, id, maxDecided)
	if len(list) == 0 {
		return "", id
	}
	e.Samples = list
	return list[0].Rule, list[0].Key
}

// covers reports whether an exception is of a key with these values, or of one of them.
func (x *Exception) covers(values []string) bool {
	if len(values) > 1 && len(x.Values) > 1 {
		return slices.EqualFunc(x.Values, values, coversValue)
	}
	return slices.ContainsFunc(values, func(value string) bool {
		return slices.ContainsFunc(x.Values, func(one string) bool { return coversValue(one, value) })
	})
}

// coversValue reports whether the value of an exception is a value of a key, or a network that contains it.
func coversValue(of, value string) bool {
	network, err := netaddr.Parse(of)
	if err != nil {
		return of == value
	}
	one, err := netaddr.Parse(value)
	return err == nil && network.Bits() <= one.Bits() && network.Contains(one.Addr())
}

// addExceptions adds the exceptions of the ledger that apply.
func (h *handler) addExceptions(ctx context.Context, e *Explanation, applies func(*Exception) bool) {
	if h.Ledger == nil {
		return
	}
	list, now, err := h.Ledger.Exceptions(ctx)
	if err != nil {
		h.Log.Error("admin: the ledger did not answer", "error", err)
		e.Problems = append(e.Problems, "the ledger did not answer: exceptions are not shown")
	}
	for i := range list {
		if x := h.exceptionOf(&list[i], list[i].Until.Sub(now)); applies(&x) {
			e.Exceptions = append(e.Exceptions, x)
		}
	}
}

// explainer explains by the rules in force.
func (h *handler) explainer() *Explainer {
	x := &Explainer{Gate: h.Gate, Set: h.Gate.Rules(), Options: h.Gateway, Services: h.Services,
		RateLimits: h.RateLimits}
	if now := h.Status().RuleSet; now != nil {
		x.Set, x.File = now.Set, now.File
	}
	return x
}

// explainRequest shows how a request would be decided, with the last decisions of the key that decides.
func (h *handler) explainRequest(ctx context.Context, q *ExplainedRequest) (*Explanation, error) {
	e, err := h.explainer().Explain(ctx, q)
	if err != nil {
		return nil, err
	}
	if e.Reason != gate.BadInput.String() && e.Error != "" {
		h.Log.Error("admin: the store did not answer", "error", e.Error)
		e.Error = "the store did not answer; the server's log has the reason"
	}
	e.Now = time.Now().UTC()
	for i := range e.Rules {
		if one := &e.Rules[i]; one.Decides && one.Key != "" && h.Telemetry != nil {
			f := telemetry.Filter{Rule: one.Rule, Key: one.Key}
			e.Samples = append(e.Samples, h.Telemetry.Recent(f, maxDecided)...)
		}
	}
	ids := e.Exceptions
	e.Exceptions = []Exception{}
	h.addExceptions(ctx, e, func(x *Exception) bool {
		return slices.ContainsFunc(ids, func(one Exception) bool { return one.ID == x.ID })
	})
	return e, nil
}
