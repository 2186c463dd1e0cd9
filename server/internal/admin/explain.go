package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// A Question is the body of explain: a text or a request.
type Question struct {
	Text    string            `json:"text,omitzero" doc:"A key, its value, an address, or a request ID."`
	Request *ExplainedRequest `json:"request,omitzero" doc:"A request as rules match it."`
}

// An ExplainedRequest is a request as rules match it. Parts that are left out are missing.
type ExplainedRequest struct {
	Method      string            `json:"method,omitzero"`
	Host        string            `json:"host,omitzero"`
	Path        string            `json:"path,omitzero" doc:"As received, without the query."`
	Route       string            `json:"route,omitzero" doc:"Without it and service, the routes choose both."`
	User        string            `json:"user,omitzero"`
	Service     string            `json:"service,omitzero"`
	Client      string            `json:"client,omitzero" doc:"The address of the client."`
	Headers     map[string]string `json:"headers,omitzero"`
	Query       map[string]string `json:"query,omitzero"`
	Cookies     map[string]string `json:"cookies,omitzero"`
	Descriptors descriptors       `json:"descriptors,omitzero" doc:"In order. An object of texts is read in its order."`
}

// descriptors are in the order of the document.
type descriptors []Descriptor

// A Descriptor is the value of descriptor.NAME in rules.
type Descriptor struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The object, which is the form of /v1/decide, is no map here: that
// would lose the order on which match.descriptor_keys depends.
func (d *descriptors) UnmarshalJSONFrom(from *jsontext.Decoder) error {
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

// An Explanation is the state of keys now. Nothing was charged.
type Explanation struct {
	Now        time.Time          `json:"now"`
	What       string             `json:"what" enum:"key|address|request_id|request" doc:"How the text was understood."`
	Outcome    string             `json:"outcome,omitzero" doc:"That the request would get now; only of a request."`
	Reason     string             `json:"reason,omitzero"`
	Rule       string             `json:"rule,omitzero" doc:"That decides the request."`
	Route      string             `json:"route,omitzero" doc:"Of the request: given, or chosen by the routes."`
	Service    string             `json:"service,omitzero" doc:"Of the request: given, or that of the route."`
	Rules      []ExplainedRule    `json:"rules" max:"64" doc:"Refusing ones first, then those in use."`
	More       int64              `json:"more,omitzero" doc:"Rules that are left out."`
	Exceptions []Exception        `json:"exceptions"`
	Samples    []telemetry.Sample `json:"samples" doc:"Of this server, the latest first."`
	Problems   []string           `json:"problems,omitzero" doc:"What could not be read."`
}

// An ExplainedRule is a key under one rule.
type ExplainedRule struct {
	Key
	Label   string `json:"label,omitzero"`
	Mode    string `json:"mode"`
	Binding *int64 `json:"binding,omitzero" doc:"Index of the limit with the longest wait."`
	Skipped string `json:"skipped,omitzero" doc:"Why the rule matches and is not decided."`
	Decides bool   `json:"decides,omitzero" doc:"Its limit decides the request."`
	// Degraded is the rule's on_store_error.
	Degraded rules.StoreError `json:"degraded,omitzero" enum:"local|allow|deny" doc:"The store did not answer."`
}

// Bounds of an explanation.
const (
	mostExplained = 64  // rules
	mostText      = 512 // bytes of a text
	mostDecided   = 20  // samples
)

// explain answers which rules apply to a key, an address or a request, and why. It charges nothing.
func (h *handler) explain(ctx context.Context, c *call) (any, error) {
	var q Question
	if err := c.document(&q); err != nil {
		return nil, err
	}
	if (q.Text == "") == (q.Request == nil) {
		return nil, web.Refuse(invalid, "allowed: text or request, one of them")
	}
	if len(q.Text) > mostText {
		return nil, web.Refuse(invalid, "text has %d bytes; allowed: at most %d", len(q.Text), mostText)
	}
	e := &Explanation{Now: time.Now().UTC(), What: "request", Exceptions: []Exception{}, Samples: []telemetry.Sample{}}
	var err error
	if q.Request != nil {
		err = h.explainRequest(ctx, q.Request, e)
	} else {
		err = h.explainText(ctx, strings.TrimSpace(q.Text), e)
	}
	if err != nil {
		return nil, err
	}
	e.finish()
	return render(e, nil)
}

// finish sorts the rules.
func (e *Explanation) finish() {
	for i := range e.Rules {
		e.Rules[i].bind()
	}
	slices.SortStableFunc(e.Rules, func(a, b ExplainedRule) int { return cmp.Compare(a.rank(), b.rank()) })
	e.More = int64(max(0, len(e.Rules)-mostExplained))
	e.Rules = append([]ExplainedRule{}, e.Rules[:min(len(e.Rules), mostExplained)]...)
}

// rank sorts rules that refuse before those with use, and these before the others.
func (r *ExplainedRule) rank() int {
	rank := 2
	for _, l := range r.Limits {
		switch {
		case l.waits():
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

// waits reports whether a request would be refused now.
func (l *KeyLimit) waits() bool { return l.RetryAfter == nil || *l.RetryAfter > 0 }

// bind finds the limit that decides.
func (r *ExplainedRule) bind() {
	if len(r.Limits) == 0 {
		return
	}
	worst := slices.MinFunc(r.Limits, func(a, b KeyLimit) int {
		return cmp.Or(cmp.Compare(b.wait(), a.wait()), cmp.Compare(a.Remaining, b.Remaining))
	})
	at := int64(slices.Index(r.Limits, worst))
	r.Binding = &at
}

// wait is the time until a request is granted, in seconds.
func (l *KeyLimit) wait() float64 {
	if l.RetryAfter == nil {
		return weir.Never.Seconds()
	}
	return *l.RetryAfter
}

// explainText shows the rules that have a text as a key.
func (h *handler) explainText(ctx context.Context, text string, e *Explanation) error {
	only := ""
	e.What = "address"
	if _, err := netip.ParseAddr(text); err != nil {
		e.What = "key"
		if only, text = h.ofRequest(text, e); only != "" {
			e.What = "request_id"
		}
	}
	if h.Telemetry != nil && only == "" {
		e.Samples = append(e.Samples, h.Telemetry.Recent(telemetry.Filter{Key: text}, mostDecided)...)
	}
	for _, rule := range h.Gate.Rules().Rules() {
		if only != "" && rule.Name() != only {
			continue
		}
		key, limits, err := rule.LookupText(text)
		if err != nil {
			continue
		}
		if len(e.Rules) == 4*mostExplained { // of which the worst are shown
			e.More++
			continue
		}
		l := &lookup{rule: rule, key: string(key), limits: limits}
		if !rule.IsKey(text) {
			l.values = []string{text}
		}
		if !rule.Enabled() {
			e.Rules = append(e.Rules, ExplainedRule{Key: keyOf(rule, l.key, l.values), Label: rule.Label(),
				Mode: string(rule.Mode()), Skipped: "the rule is disabled"})
			continue
		}
		if err := h.explainKey(ctx, l, e); err != nil {
			return err
		}
	}
	values := keytext.Values(text)
	if values == nil {
		values = []string{text}
	}
	h.addExceptions(ctx, e, func(x *Exception) bool { return x.covers(values) })
	return nil
}

// ofRequest finds the rule and the key of a request ID among the samples; rule is "" if there is none.
func (h *handler) ofRequest(id string, e *Explanation) (rule, key string) {
	if h.Telemetry == nil {
		return "", id
	}
	list := h.samplesOf(telemetry.Filter{}, id, mostDecided)
	if len(list) == 0 {
		return "", id
	}
	e.Samples = list
	return list[0].Rule, list[0].Key
}

// explainKey adds a rule with the state of a key.
func (h *handler) explainKey(ctx context.Context, l *lookup, e *Explanation) error {
	one := ExplainedRule{Label: l.rule.Label(), Mode: string(l.rule.Mode())}
	key, _, err := h.stateOf(ctx, l)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		one.Key, one.Skipped, one.Degraded = h.localState(ctx, l), gate.Unasked, l.rule.OnStoreError()
	default:
		one.Key = *key
	}
	e.Rules = append(e.Rules, one)
	return nil
}

// localState is a key as this server decides it while the store does not answer. It has limits if the rule's
// on_store_error is local.
func (h *handler) localState(ctx context.Context, l *lookup) Key {
	answer := keyOf(l.rule, l.key, l.values)
	if h.Local == nil || l.rule.OnStoreError() != rules.Local {
		return answer
	}
	claims := h.Gate.ClaimsOf(l.rule, []byte(l.key), l.limits)
	limits := len(claims)
	if bans := l.rule.Bans(); bans != nil {
		claims = append(claims, weir.Claim{Key: l.key, Limit: bans.Hold})
	}
	decisions := make([]weir.Decision, len(claims))
	if _, err := h.Local.Decide(ctx, claims, 0, decisions); err != nil {
		return answer
	}
	for i := range limits {
		answer.Limits = append(answer.Limits, keyLimit(&gate.Check{Claim: &claims[i], Decision: &decisions[i]}))
	}
	if len(claims) > limits {
		answer.BannedFor = decisions[limits].RetryAfter.Seconds()
	}
	return answer
}

// keyOf is a key without limits.
func keyOf(rule *rules.Rule, key string, values []string) Key {
	k := Key{Rule: rule.Name(), Key: readable(key), Components: append([]string{}, rule.Components()...),
		Values: []string{}, Limits: []KeyLimit{}}
	for _, value := range values {
		k.Values = append(k.Values, readable(value))
	}
	return k
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

// explainRequest shows how a request would be decided.
func (h *handler) explainRequest(ctx context.Context, q *ExplainedRequest, e *Explanation) error {
	r, err := q.request(h.Gate.Rules().PathForm())
	if err != nil {
		return err
	}
	h.Gate.Rules().SetRoute(r)
	e.Route, e.Service = r.Route, r.Service
	v := new(gate.Verdict)
	if err := h.Gate.Decide(ctx, r, gate.Ask{}, v); err != nil {
		return err
	}
	e.Outcome, e.Reason = v.Outcome.String(), v.Reason.String()
	if v.Rule != nil {
		e.Rule = v.Rule.Name()
	}
	for _, rule := range v.Matched() {
		one := ExplainedRule{Key: keyOf(rule, "", nil), Label: rule.Label(), Mode: string(rule.Mode()),
			Decides: rule == v.Rule}
		one.fill(v, rule)
		e.Rules = append(e.Rules, one)
	}
	h.addSamples(v, e)
	ids := v.Exceptions(r)
	h.addExceptions(ctx, e, func(x *Exception) bool {
		return slices.ContainsFunc(ids, func(one rules.Exception) bool { return one.ID == x.ID })
	})
	return nil
}

// fill takes a rule's part of a verdict.
func (r *ExplainedRule) fill(v *gate.Verdict, rule *rules.Rule) {
	r.Skipped = "the request is " + v.Outcome.String() + " before its limits are read"
	for i := range v.Len() {
		check := v.At(i)
		if check.Rule != rule || check.Aside || check.Candidate {
			continue
		}
		r.Key.Key, r.Skipped = readable(check.Claim.Key), ""
		if v.Degraded() && (check.Local || !check.Decided) {
			r.Degraded = rule.OnStoreError()
		}
		switch {
		case !check.Decided:
			r.Skipped = gate.Unasked
		case check.Ban:
			r.BannedFor = check.Decision.RetryAfter.Seconds()
		default:
			r.Limits = append(r.Limits, keyLimit(&check))
		}
	}
	for _, skip := range v.Skips() {
		if skip.Rule == rule {
			r.Skipped = skip.Why
		}
	}
}

// addSamples adds the last decisions of the key of the rule that decides.
func (h *handler) addSamples(v *gate.Verdict, e *Explanation) {
	if worst, ok := v.Worst(); ok && h.Telemetry != nil {
		f := telemetry.Filter{Rule: e.Rule, Key: worst.Claim.Key}
		e.Samples = append(e.Samples, h.Telemetry.Recent(f, mostDecided)...)
	}
}

// request brings the request into the form that rules match.
func (q *ExplainedRequest) request(form pathform.Form) (r *rules.Request, err error) {
	r = &rules.Request{Method: q.Method, Route: q.Route, User: q.User, Service: q.Service}
	if q.Host != "" {
		if r.Host, err = pathform.Host(q.Host); err != nil {
			return nil, err
		}
	}
	if q.Path != "" {
		if r.Path, err = form.Path(q.Path); err != nil {
			return nil, err
		}
	}
	if q.Client != "" {
		client, err := netip.ParseAddr(q.Client)
		if err != nil {
			return nil, web.Refuse(invalid, "client is %.80q; allowed: an address, such as 203.0.113.7", q.Client)
		}
		r.Client = client.Unmap().WithZone("")
	}
	named := &named{headers: make(map[string]string), ExplainedRequest: q}
	for name, value := range q.Headers {
		named.headers[http.CanonicalHeaderKey(name)] = value
	}
	for i := range q.Descriptors {
		if slices.Contains(r.DescriptorKeys, q.Descriptors[i].Name) {
			return nil, web.Refuse(invalid, "descriptors has %.80q twice; allowed: each name once",
				q.Descriptors[i].Name)
		}
		r.DescriptorKeys = append(r.DescriptorKeys, q.Descriptors[i].Name)
	}
	r.Attributes = named
	return r, nil
}

// named are the parts of a request that have names.
type named struct {
	headers map[string]string // by canonical name
	*ExplainedRequest
}

// Header implements rules.Attributes.
func (n *named) Header(name string) string { return n.headers[http.CanonicalHeaderKey(name)] }

// Query implements rules.Attributes.
func (n *named) Query(name string) string { return n.ExplainedRequest.Query[name] }

// Cookie implements rules.Attributes.
func (n *named) Cookie(name string) string { return n.Cookies[name] }

// Descriptor implements rules.Attributes.
func (n *named) Descriptor(name string) string {
	for i := range n.Descriptors {
		if n.Descriptors[i].Name == name {
			return n.Descriptors[i].Value
		}
	}
	return ""
}
