package rls

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

const (
	codeOK   = ratelimit.RateLimitResponse_OK
	codeOver = ratelimit.RateLimitResponse_OVER_LIMIT
)

// A response is the memory of an answer to one descriptor, which the transport keeps until it is sent.
type response struct {
	ratelimit.RateLimitResponse
	descriptorStatus
	statuses [1]*ratelimit.RateLimitResponse_DescriptorStatus
	headers  [defaultHeaders]*core.HeaderValue
	values   [defaultHeaders]core.HeaderValue
}

// defaultHeaders are RateLimit-Policy and RateLimit.
const defaultHeaders = 2

type descriptorStatus struct {
	ratelimit.RateLimitResponse_DescriptorStatus
	reset durationpb.Duration
}

// answer makes the answer of a decided call.
func (s *service) answer(c *call) *ratelimit.RateLimitResponse {
	first := new(response)
	r := &first.RateLimitResponse
	r.OverallCode, r.Statuses = codeOK, first.statuses[:0]
	known := s.limits()
	lead := c.parts[0]
	for i := range c.questions {
		p, status := c.parts[i], &first.descriptorStatus
		if i > 0 {
			status = new(descriptorStatus)
		}
		r.Statuses = append(r.Statuses, known.status(p, status))
		if leads(p, lead) {
			lead = p
		}
	}
	if over(&lead.verdict) {
		r.OverallCode = codeOver
	}
	known.describe(&lead.verdict, r)
	if !s.NoHeaders {
		r.ResponseHeadersToAdd = first.headers[:0]
		c.headers(first, known)
	}
	if r.OverallCode == codeOver && !s.NoHeaders {
		add(r, "x-request-id", lead.MakeRequestID())
	}
	if !s.NoBody && r.OverallCode == codeOver {
		lead.body(r)
	}
	return r
}

// over reports whether a request is refused for itself.
func over(v *gate.Verdict) bool { return v.Outcome != gate.Passed && v.Reason != gate.OtherRefused }

// leads reports whether a part explains the answer better than another: it refuses, or less is left.
func leads(p, other *part) bool {
	if over(&p.verdict) != over(&other.verdict) {
		return over(&p.verdict)
	}
	a, ok := p.verdict.Worst()
	b, has := other.verdict.Worst()
	return ok && (!has || weir.Worse(a.Decision, b.Decision))
}

// status fills in the status of a descriptor. A ban is shown as the first limit of its rule without a unit left.
func (k *known) status(p *part, s *descriptorStatus) *ratelimit.RateLimitResponse_DescriptorStatus {
	v := &p.verdict
	s.Code = codeOK
	if over(v) || v.Reason == gate.OtherGranted {
		s.Code = codeOver
	}
	check, ok := v.Worst()
	if !ok {
		return &s.RateLimitResponse_DescriptorStatus
	}
	limit, remaining := check.Claim.Limit, check.Decision.Remaining
	if check.Ban {
		limit, remaining = check.Rule.Limits()[0], 0
	}
	s.CurrentLimit = k.limit(limit)
	if p.blocked {
		s.CurrentLimit, remaining = currentLimit(limit), 0
		s.CurrentLimit.RequestsPerUnit = 0
	}
	s.LimitRemaining = uint32(min(remaining, math.MaxUint32))
	wait := check.Decision.ResetAfter
	if s.Code == codeOver && check.Decision.RetryAfter != weir.Never {
		wait = v.RetryAfter()
	}
	s.reset.Seconds = ratefields.Seconds(wait) // Envoy rounds down
	s.DurationUntilReset = &s.reset
	return &s.RateLimitResponse_DescriptorStatus
}

// known are the messages of the limits of a set of rules, which all answers share.
type known struct {
	set    *rules.Set
	none   []byte // that of a request without a rule
	limits map[*weir.Limit]*ratelimit.RateLimitResponse_RateLimit
	passed map[*weir.Limit][]byte // the encoded field dynamic_metadata
	policy map[*weir.Limit]string // RateLimit-Policy of one limit
	theirs map[*weir.Limit]*ratelimit.RateLimitResponse_RateLimit
}

// limits are the messages of the rules in force.
func (s *service) limits() *known {
	set := s.gate.Rules()
	if k := s.known.Load(); k != nil && k.set == set {
		return k
	}
	none := encoded(metadata("", "", gate.Passed, gate.NoRule, 0, nil))
	k := &known{set: set, none: none, limits: make(map[*weir.Limit]*ratelimit.RateLimitResponse_RateLimit),
		passed: make(map[*weir.Limit][]byte), policy: make(map[*weir.Limit]string),
		theirs: make(map[*weir.Limit]*ratelimit.RateLimitResponse_RateLimit)}
	for _, rule := range set.Rules() {
		unit := rule.Unit().String()
		for _, limit := range rule.Limits() {
			if s.Ratelimit != nil {
				k.theirs[limit] = theirLimit(limit, rule)
				continue
			}
			k.limits[limit], k.policy[limit] = currentLimit(limit), ratefields.Policy([]*weir.Limit{limit}, unit)
			k.passed[limit] = encoded(metadata(rule.Name(), limit.Name(), gate.Passed, gate.WithinLimits, 0, nil))
		}
	}
	s.known.Store(k)
	return k
}

func (k *known) limit(l *weir.Limit) *ratelimit.RateLimitResponse_RateLimit {
	if message := k.limits[l]; message != nil {
		return message
	}
	return currentLimit(l) // of an override
}

// encoded is the field dynamic_metadata on the wire, or nil.
func encoded(m *structpb.Struct) []byte {
	const field = 6
	message, err := proto.Marshal(m)
	if err != nil { // impossible: names are ASCII
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), message)
}

// describe adds the metadata, which explains the deciding verdict. That of a usual pass is encoded once for each
// limit, since encoding a map takes as long as the decision: it is appended like a field that this program does not
// know.
func (k *known) describe(v *gate.Verdict, r *ratelimit.RateLimitResponse) {
	shadow := shadows(v)
	check, ok := v.Worst()
	if len(shadow) == 0 && v.Outcome == gate.Passed {
		var field []byte
		switch {
		case v.Reason == gate.NoRule:
			field = k.none
		case v.Reason == gate.WithinLimits && ok:
			field = k.passed[check.Claim.Limit]
		}
		if field != nil {
			r.ProtoReflect().SetUnknown(field)
			return
		}
	}
	rule, limit, wait := "", "", time.Duration(0)
	if v.Rule != nil {
		rule = v.Rule.Name()
	}
	if ok {
		limit = check.Claim.Limit.Name()
		if v.Outcome == gate.Refused {
			wait = check.Decision.RetryAfter
		}
	}
	r.DynamicMetadata = metadata(rule, limit, v.Outcome, v.Reason, wait, shadow)
}

// shadows are the shadow rules that would refuse the request.
func shadows(v *gate.Verdict) (names []any) {
	for i := range v.Len() {
		rule, _, shadow, granted, ok := v.Counted(i)
		if ok && shadow && !granted && v.At(i).Decided {
			names = append(names, rule.Name())
		}
	}
	return names
}

// metadata explains an outcome. A wait that never ends is −1.
func metadata(rule, limit string, outcome gate.Outcome, reason gate.Reason, wait time.Duration,
	shadow []any) *structpb.Struct {
	micros := wait.Microseconds()
	if wait == weir.Never {
		micros = -1
	}
	fields := map[string]any{"outcome": outcome.String(), "reason": reason.String(), "retry_after_us": micros}
	if rule != "" {
		fields["rule"] = rule
	}
	if limit != "" {
		fields["limit"] = limit
	}
	if len(shadow) > 0 {
		fields["shadow"] = shadow
	}
	message, err := structpb.NewStruct(fields)
	if err != nil { // impossible: names are ASCII
		return nil
	}
	return message
}

// headers adds the fields of all decided limits, of each limit the fields of the key with the least left.
func (c *call) headers(to *response, known *known) {
	c.checks = c.checks[:0]
	var wait time.Duration
	for i := range c.questions {
		v := &c.parts[i].verdict
		if worst, ok := v.Worst(); ok && over(v) && worst.Decision.RetryAfter != weir.Never {
			wait = max(wait, v.RetryAfter())
		}
		for j := range v.Len() {
			if check := v.At(j); check.Decided && !check.Shadow && !check.Aside {
				c.include(&check)
			}
		}
	}
	c.describe(to, known)
	if wait > 0 {
		add(&to.RateLimitResponse, "retry-after", strconv.FormatInt(ratefields.Seconds(wait), 10))
	}
	clear(c.checks)
}

// include adds a check, unless its limit has a worse one.
func (c *call) include(check *gate.Check) {
	one := ratefields.Check{Limit: check.Claim.Limit, Decision: check.Decision, Ban: check.Ban}
	if check.Rule != nil { // a limit that is no rule's has the default
		one.Style, one.Unit = ratefields.StyleOf(check.Rule.Response().Fields), check.Rule.Unit().String()
	}
	for i := range c.checks {
		if other := &c.checks[i]; other.Limit.SameState(one.Limit) {
			if weir.Worse(one.Decision, other.Decision) {
				*other = one
			}
			return
		}
	}
	c.checks = append(c.checks, one)
}

// describe adds the fields of the limits. Names of limits need no escaping in them.
func (c *call) describe(to *response, known *known) {
	r, policy := &to.RateLimitResponse, ""
	if len(c.checks) == 1 && c.checks[0].Style == ratefields.Draft && !c.checks[0].Ban { // nearly always
		policy = known.policy[c.checks[0].Limit]
	}
	worst := c.fields.Describe(c.checks, r.OverallCode == codeOK, policy == "")
	if policy == "" {
		policy = string(c.fields.Policy)
	}
	for i, value := range [defaultHeaders]string{policy, string(c.fields.Limit)} {
		if value != "" {
			h := &to.values[i]
			h.Key, h.Value = [defaultHeaders]string{"ratelimit-policy", "ratelimit"}[i], value
			r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, h)
		}
	}
	if worst != nil {
		for i, value := range worst.Single() {
			add(r, ratefields.Singles[i], value)
		}
	}
}

func add(r *ratelimit.RateLimitResponse, name, value string) {
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: value})
}

// status429 is the status that Envoy answers, unless its configuration has another.
const status429 = 429

// body adds the body of a refusal, and its type.
func (p *part) body(r *ratelimit.RateLimitResponse) {
	v := &p.verdict
	refusal := &httplimit.Refusal{Status: status429, Message: "Too many requests.", Language: "en",
		Exceeded: v.Outcome == gate.Refused}
	if v.Rule != nil {
		refusal.Rule, refusal.Label = v.Rule.Name(), v.Rule.Label()
	}
	if _, ok := v.Worst(); ok && refusal.Exceeded {
		refusal.RetryAfter = -1
		if wait := v.RetryAfter(); wait != weir.Never {
			refusal.RetryAfter = ratefields.Seconds(wait)
		}
		refusal.Message, refusal.Language = wording.Of(v, &p.request)(nil) // Envoy sends no Accept-Language
		refusal.Violated = violated(v)
	}
	kind, text := refusal.BodyOf(v.Rule)
	r.RawBody = text
	add(r, "content-type", kind)
}

// violated are the names of the limits that refuse.
func violated(v *gate.Verdict) (names []string) {
	for i := range v.Len() {
		if c := v.At(i); c.Decided && !c.Shadow && !c.Aside && c.Decision.RetryAfter != 0 {
			names = append(names, c.Claim.Limit.Name())
		}
	}
	return names
}
