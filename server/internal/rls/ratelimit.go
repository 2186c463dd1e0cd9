package rls

import (
	"context"
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/rules"
)

// Ratelimit makes the service answer as envoyproxy/ratelimit does. docs/reference/ratelimit.md lists the differences.
type Ratelimit struct {
	// Headers are the names of three header fields of each answer: the limit, the remaining hits, and the seconds until
	// the window ends. The fields are about the descriptor with the fewest remaining hits. Without names, answers
	// do not have the fields.
	Headers [3]string
	// Shadow lets every call pass. The statuses say which descriptors are over their limits.
	Shadow bool
	// Quota decides each descriptor of a call on its own. A call is refused if all its descriptors are over their
	// limits.
	Quota bool
	// Metadata adds the descriptors to each answer, and the metadata of the rules that grant.
	Metadata bool
	// Loaded reports whether a configuration is loaded; before that each call is an error. nil: it is always loaded.
	Loaded func() bool
	// Count, if non-nil, is called with the entries of each descriptor that was decided, its verdict and its hits.
	Count func(entries []*common.RateLimitDescriptor_Entry, v *gate.Verdict, hits int64)
}

// The errors of envoyproxy/ratelimit have no code of their own.
var (
	errNoRules       = status.Error(codes.Unknown, "no rate limit configuration loaded")
	errNoDomain      = status.Error(codes.Unknown, "rate limit domain must not be empty")
	errNoDescriptors = status.Error(codes.Unknown, "rate limit descriptor list must not be empty")
)

// check returns the error of a call that cannot be decided; nil if it can.
func (o *Ratelimit) check(r *ratelimit.RateLimitRequest) error {
	switch {
	case r.GetDomain() == "":
		return errNoDomain
	case len(r.GetDescriptors()) == 0:
		return errNoDescriptors
	case o.Loaded != nil && !o.Loaded():
		return errNoRules
	}
	return nil
}

// adapt makes a question count as envoyproxy/ratelimit counts. A descriptor with 0 hits passes until more than the
// limit is used. Hits that the descriptor itself states may be spent already, so they are charged even if they are
// refused. A limit in the descriptor replaces all others.
func (o *Ratelimit) adapt(p *part, r *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor, q *gate.Question,
	set *rules.Set) {
	stated := d.GetHitsAddend() != nil
	if p.hits = max(1, int64(r.GetHitsAddend())); stated {
		p.hits = int64(d.GetHitsAddend().GetValue())
	}
	q.Ask.Times, q.Ask.Cost = 1, &p.hits
	q.Ask.Spent = stated && p.hits > 0 && q.Act == gate.Decided
	if o := q.Ask.Override; o != nil {
		o.Alone, o.Limit.Anchor = true, weir.Epoch
		o.Key += " " + o.Limit.Window.String() // the windows of each unit have their own counts
		switch {                               // a limit of 0 is asked as a limit of 1
		case p.blocked && p.hits == 0:
			q.Ask.Times, p.hits = 0, 1
		case p.blocked:
			p.hits, q.Ask.Spent = max(p.hits, 2), false
		}
		if !set.Serves(r.GetDomain()) {
			q.Ask.Override = nil
		}
	}
	if (o.Shadow || o.Quota) && len(r.GetDescriptors()) > 1 && q.Act == gate.Decided {
		q.Act = gate.Quota
	}
}

// likeTheirs makes the answer of a decided call, as envoyproxy/ratelimit makes it.
func (s *service) likeTheirs(ctx context.Context, r *ratelimit.RateLimitRequest, c *call) *ratelimit.RateLimitResponse {
	first := new(response)
	answer := &first.RateLimitResponse
	answer.OverallCode, answer.Statuses = codeOK, first.statuses[:0]
	known := s.limits()
	var least *ratelimit.RateLimitResponse_DescriptorStatus
	for i := range c.questions {
		p, to := c.parts[i], &first.descriptorStatus
		if i > 0 {
			to = new(descriptorStatus)
		}
		status := known.theirStatus(p, to)
		if status.CurrentLimit == nil && s.trial(ctx, c, i) {
			status = known.theirStatus(p, to)
		}
		answer.Statuses = append(answer.Statuses, status)
		if s.Ratelimit.Count != nil {
			s.Ratelimit.Count(p.entries, &p.verdict, p.hits)
		}
		refuses := over(&p.verdict)
		if refuses {
			answer.OverallCode = codeOver
		}
		leads := refuses && c.questions[i].Act != gate.Quota
		if status.CurrentLimit != nil && (leads || least == nil || status.LimitRemaining < least.LimitRemaining) {
			least = status
		}
	}
	if s.Ratelimit.Shadow {
		answer.OverallCode = codeOK
	}
	if s.Ratelimit.Headers[0] != "" && least != nil {
		answer.ResponseHeadersToAdd = s.Ratelimit.fields(least)
	}
	if s.Ratelimit.Metadata {
		answer.DynamicMetadata = theirMetadata(r, c, answer)
	}
	return answer
}

// trial peeks at the shadow rules of a descriptor that were not decided, because another descriptor was refused. It
// reports whether the verdict of the descriptor is a new one.
func (s *service) trial(ctx context.Context, c *call, i int) bool {
	p, q := c.parts[i], &c.questions[i]
	if p.verdict.Reason != gate.OtherRefused && p.verdict.Reason != gate.NoRule || q.Request == nil {
		return false
	}
	for _, rule := range p.verdict.Matched() {
		if rule.Mode() == rules.Shadow && !rule.Unlimited() {
			look := gate.Ask{Cost: q.Ask.Cost, HoldsCost: q.Ask.HoldsCost}
			return s.gate.Decide(ctx, q.Request, look, &p.verdict) == nil
		}
	}
	return false
}

// theirStatus fills in the status of a descriptor.
func (k *known) theirStatus(p *part, s *descriptorStatus) *ratelimit.RateLimitResponse_DescriptorStatus {
	v := &p.verdict
	s.Code = codeOK
	if over(v) || v.Reason == gate.OtherGranted {
		s.Code = codeOver
	}
	if v.Unlimited() {
		s.LimitRemaining = math.MaxUint32
		return &s.RateLimitResponse_DescriptorStatus
	}
	if rule := closedBy(v); rule != nil {
		k.closed(rule, s)
		return &s.RateLimitResponse_DescriptorStatus
	}
	check, ok := counting(v)
	if !ok {
		return &s.RateLimitResponse_DescriptorStatus
	}
	limit := check.Claim.Limit
	if s.CurrentLimit = k.theirs[limit]; s.CurrentLimit == nil || p.blocked {
		s.CurrentLimit = theirLimit(limit, check.Rule)
	}
	if p.blocked {
		s.CurrentLimit.RequestsPerUnit = 0
	}
	tried := check.Shadow && check.Granted == 0 && check.Decision.RetryAfter != 0
	if s.Code == codeOK && !tried && !p.blocked { // tried: a shadow rule would refuse
		s.LimitRemaining = clamped(check.Decision.Remaining)
	}
	s.reset.Seconds = untilReset(limit, check.Decision)
	s.DurationUntilReset = &s.reset
	return &s.RateLimitResponse_DescriptorStatus
}

// counting returns the check that a status shows: the check that decided, or else the first check of a shadow rule.
func counting(v *gate.Verdict) (check gate.Check, ok bool) {
	if check, ok = v.Worst(); ok {
		return check, true
	}
	for i := range v.Len() {
		if check = v.At(i); check.Shadow && !check.Candidate && check.Decided {
			return check, true
		}
	}
	return check, false
}

// closedBy returns the rule with a limit of 0 that denies the request, or that would deny it outside shadow mode. It
// returns nil if there is no such rule.
func closedBy(v *gate.Verdict) *rules.Rule {
	if _, counts := v.Worst(); v.Outcome == gate.Denied || v.Reason == gate.OtherGranted && !counts {
		return v.Rule
	}
	for _, skip := range v.Skips() {
		if skip.Why == gate.WouldDeny {
			return skip.Rule
		}
	}
	return nil
}

// closed fills in the status of a limit of 0.
func (k *known) closed(rule *rules.Rule, s *descriptorStatus) {
	limit := rule.Limits()[0]
	s.CurrentLimit = theirLimit(limit, rule)
	s.CurrentLimit.RequestsPerUnit = 0
	s.reset.Seconds = untilReset(limit, &weir.Decision{At: weir.Instant(time.Now().UnixMicro())})
	s.DurationUntilReset = &s.reset
}

// theirLimit describes a limit as envoyproxy/ratelimit does: with the alias of its rule as its name, a window of 30
// days as a month, and a window of 365 days as a year.
func theirLimit(l *weir.Limit, rule *rules.Rule) *ratelimit.RateLimitResponse_RateLimit {
	message := currentLimit(l)
	message.Name = ""
	if rule != nil {
		message.Name = rule.Alias()
	}
	if message.Unit == ratelimit.RateLimitResponse_RateLimit_DAY {
		switch message.GetUnitMultiplier().GetValue() {
		case 30:
			message.Unit, message.UnitMultiplier = ratelimit.RateLimitResponse_RateLimit_MONTH, nil
		case 365:
			message.Unit, message.UnitMultiplier = ratelimit.RateLimitResponse_RateLimit_YEAR, nil
		}
	}
	return message
}

// untilReset returns the seconds until the window ends, however much of it is used. For a limit without such windows it
// returns the seconds until all units have returned.
func untilReset(l *weir.Limit, d *weir.Decision) int64 {
	window, ok := l.Spec().(weir.FixedWindow)
	if !ok || window.Anchor != weir.Epoch || window.Window < time.Second {
		return ratefields.Seconds(d.ResetAfter)
	}
	seconds := int64(window.Window / time.Second)
	return seconds - int64(d.At)/second%seconds
}

// fields are the header fields of a status.
func (o *Ratelimit) fields(s *ratelimit.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	values := [3]int64{int64(s.CurrentLimit.RequestsPerUnit), int64(s.LimitRemaining),
		s.DurationUntilReset.GetSeconds()}
	list := make([]*core.HeaderValue, len(values))
	for i, value := range values {
		list[i] = &core.HeaderValue{Key: o.Headers[i], Value: strconv.FormatInt(value, 10)}
	}
	return list
}

// theirMetadata is the dynamic metadata of an answer.
func theirMetadata(r *ratelimit.RateLimitRequest, c *call, answer *ratelimit.RateLimitResponse) *structpb.Struct {
	descriptors := make([]any, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		descriptors[i] = describedAs(d)
	}
	fields := map[string]any{"domain": r.GetDomain(), "descriptors": descriptors}
	if hits := r.GetHitsAddend(); hits > 0 {
		fields["hitsAddend"] = float64(hits)
	}
	merged := make(map[string]any)
	for i, status := range answer.GetStatuses() {
		if status.GetCode() != codeOK || status.GetCurrentLimit() == nil {
			continue
		}
		for _, rule := range c.parts[i].verdict.Matched() {
			merge(merged, rule.Metadata())
		}
	}
	if len(merged) > 0 {
		fields["metadata"] = merged
	}
	message, err := structpb.NewStruct(fields)
	if err != nil { // a text that is not UTF-8, which the transport refuses
		return nil
	}
	return message
}

// describedAs is a descriptor in metadata.
func describedAs(d *common.RateLimitDescriptor) map[string]any {
	entries := make([]any, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = e.GetKey() + "=" + e.GetValue()
	}
	fields := map[string]any{"entries": entries}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = l.String()
	}
	if hits := d.GetHitsAddend(); hits != nil {
		fields["hitsAddend"] = float64(hits.GetValue())
	}
	return fields
}

// merge adds the values that to lacks. Two mappings with the same name are merged.
func merge(to, from map[string]any) {
	for name, value := range from {
		there, has := to[name]
		mapping, isMapping := value.(map[string]any)
		switch {
		case !has && isMapping:
			inner := make(map[string]any, len(mapping)) // a copy, because other mappings are merged into it
			merge(inner, mapping)
			to[name] = inner
		case !has:
			to[name] = value
		case isMapping:
			if inner, ok := there.(map[string]any); ok {
				merge(inner, mapping)
			}
		}
	}
}
