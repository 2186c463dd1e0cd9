package grpclimit

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// byLimiter decides by a limiter, which reports the deciding limit alone.
type byLimiter struct {
	*Options
	limiter *weir.Limiter
	key     Key
	holds   bool // the limiter has concurrency limits
}

func (l *byLimiter) decide(ctx context.Context, call *Call, a *admission) {
	key, err := l.Missing.Choose(l.key(ctx, call))
	if err == nil && key == "" {
		a.event.Outcome = httplimit.Skipped
		return
	}
	cost := l.costOf(ctx, call)
	switch {
	case err != nil:
	case l.holds || l.CostAfter != nil:
		err = l.reserve(ctx, key, cost, a)
	default:
		a.event.Answer, err = l.limiter.AllowN(ctx, key, cost)
	}
	if err != nil {
		l.fail(ctx, a, err)
		return
	}
	for _, limit := range l.limiter.Limits() {
		one := check{Limit: limit, Style: ratefields.Style(l.Fields)}
		if limit == a.event.Answer.Limit {
			one.Decision = &a.event.Answer.Decision
		}
		a.checks = append(a.checks, one)
	}
	if !a.event.Answer.Allowed {
		a.event.Outcome = httplimit.Refused
		a.exceed(a.event.Answer.Limit.Advice(a.event.Answer.RetryAfter), "")
	}
}

// costOf is the cost of a call, an estimate where CostAfter corrects it.
func (o *Options) costOf(ctx context.Context, call *Call) int64 {
	if o.Cost == nil {
		return 1
	}
	return o.Cost(ctx, call)
}

// fail handles a call that limits could not decide: it is refused, or passes.
func (o *Options) fail(ctx context.Context, a *admission, err error) {
	if errors.Is(err, httplimit.ErrMissing) {
		a.event = httplimit.Event{Outcome: httplimit.Denied, Err: err}
		a.refuse(codes.PermissionDenied, "this call lacks the key that its limit requires")
		return
	}
	a.event = httplimit.Event{Outcome: httplimit.Failed, Err: err}
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		a.refuse(codes.Internal, "the rate limit could not be checked")
	case o.StoreErrors == httplimit.FailClosed || ctx.Err() != nil: // canceling must not evade the limit
		a.undecided(ctx)
	}
}

func (l *byLimiter) reserve(ctx context.Context, key string, cost int64, a *admission) error {
	reservation, err := l.limiter.Reserve(ctx, key, cost)
	var refused *weir.RefusedError
	if errors.As(err, &refused) {
		a.event.Answer = refused.Answer
		return nil
	}
	if err != nil {
		return err
	}
	a.event.Answer = reservation.Answer()
	a.followUp = &followUp{keep: reservation.KeepAlive,
		end: func(ctx context.Context, s *served, notify func(httplimit.Outcome, error)) {
			l.settle(ctx, reservation, s, cost, notify)
		}}
	return nil
}

// settle ends a reservation. An invalid actual cost leaves the estimate; the leases are released in any case.
func (l *byLimiter) settle(
	ctx context.Context, reservation *weir.Reservation, s *served, cost int64, notify func(httplimit.Outcome, error),
) {
	outcome := httplimit.Unreleased
	if l.CostAfter != nil && s.ran {
		outcome = httplimit.Unsettled
		actual, err := checked("cost after the call", l.CostAfter(s.call, s.last, s.err))
		if err != nil {
			notify(outcome, err)
		} else {
			cost = actual
		}
	}
	err := reservation.Settle(ctx, cost)
	if errors.Is(err, weir.ErrLeaseGone) {
		outcome = httplimit.Unreleased
	}
	if err != nil {
		notify(outcome, err)
	}
}

// byCall decides by the claims of each call, by a gate without rules that receives them.
type byCall struct {
	*Options
	gate   *gate.Gate
	claims func(context.Context, *Call) ([]weir.Claim, error)
}

func (d *byCall) decide(ctx context.Context, call *Call, a *admission) {
	v := new(gate.Verdict)
	claims, err := d.claims(ctx, call)
	if err == nil {
		claims, err = d.Missing.Claims(claims, d.costOf(ctx, call))
	}
	switch {
	case err == nil && len(claims) == 0:
		a.event.Outcome = httplimit.Skipped
		return
	case err == nil:
		err = d.gate.Decide(ctx, nil, gate.Ask{Times: 1, Claims: claims}, v)
	}
	if err == nil && v.Outcome == gate.Failed {
		err = v.Err
	}
	if err != nil {
		d.fail(ctx, a, err)
		return
	}
	a.event = httplimit.EventOf(v)
	a.take(v, func(*rules.Rule) ratefields.Style { return ratefields.Style(d.Fields) })
	if v.Outcome == gate.Refused {
		a.exceed(v.RetryAfter(), "")
		return
	}
	actual := func(_ *gate.Charged, s *served) (units int64, ok bool, err error) {
		units, err = checked("cost after the call", d.CostAfter(s.call, s.last, s.err))
		return units, true, err
	}
	if d.CostAfter != nil || v.Holds() {
		a.followUp = newFollowUp(d.gate, v.Receipt(), d.CostAfter != nil, actual)
	}
}

// byRules decides by the rules of a gate.
type byRules struct {
	*RuleOptions
	gate *gate.Gate
}

func (d *byRules) decide(ctx context.Context, call *Call, a *admission) {
	request, err := d.read(ctx, call)
	if err != nil {
		a.event = httplimit.Event{Outcome: httplimit.Failed, Err: err}
		a.malformed(err)
		return
	}
	ask := gate.Once
	ask.Settles = !call.received
	if d.Cost != nil {
		cost := d.Cost(ctx, call)
		ask.Cost = &cost
	}
	v := new(gate.Verdict)
	err = d.gate.Decide(ctx, request, ask, v)
	a.event = httplimit.EventOf(v)
	if v.Outcome != gate.Passed {
		given := request.Attributes.(*attributes)
		if a.id = requestid.Of(given); a.id == "" {
			a.id = given.MakeRequestID()
		}
	}
	a.take(v, func(r *rules.Rule) ratefields.Style { return ratefields.StyleOf(r.Response().Fields) })
	var input *weir.InputError
	switch {
	case errors.As(err, &input) && v.Rule != nil:
		a.malformed(err)
	case errors.As(err, &input):
		a.refuse(codes.Internal, "the rate limit could not be checked")
	case err != nil, v.Outcome == gate.Failed:
		a.undecided(ctx)
	case v.Outcome == gate.Denied:
		a.refuse(codes.PermissionDenied, "this call is not allowed")
	case v.Reason == gate.Repeated:
		text, _ := wording.Repeated(nil)
		a.refuse(codes.AlreadyExists, text)
	case v.Outcome == gate.Refused:
		own, _, _ := wording.OwnOf(v, request)
		a.exceed(v.RetryAfter(), own)
	default:
		a.followUp = d.followUp(call, v)
	}
}

// take adds the checks of the verdict that limited the call.
func (a *admission) take(v *gate.Verdict, style func(*rules.Rule) ratefields.Style) {
	for i := range v.Len() {
		if c := v.At(i); c.Decided && !c.Shadow && !c.Aside {
			one := check{Limit: c.Claim.Limit, Decision: c.Decision, Style: style(c.Rule), Ban: c.Ban}
			if c.Rule != nil {
				one.Unit = c.Rule.Unit().String()
			}
			a.checks = append(a.checks, one)
		}
	}
}

// read is the rules' view of a call.
func (d *byRules) read(ctx context.Context, call *Call) (*rules.Request, error) {
	path, err := d.gate.Rules().PathForm().Path(call.Method)
	if err != nil {
		return nil, err
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(call.Method, "/"), "/")
	client, _ := addressOf(ctx, d.Clients)
	fields, _ := metadata.FromIncomingContext(ctx)
	request := &rules.Request{
		Method:  "POST",
		Path:    path,
		Route:   call.Method,
		Service: service,
		Client:  client,
		Attributes: &attributes{fields: fields, descriptor: func(name string) string {
			if d.Descriptor == nil {
				return ""
			}
			return d.Descriptor(ctx, call, name)
		}},
	}
	if authority := first(fields[":authority"]); authority != "" {
		if request.Host, err = pathform.Host(authority); err != nil {
			return nil, err
		}
	}
	if d.User != nil {
		request.User = d.User(ctx, call)
	}
	return request, nil
}

// attributes gives rules access to the metadata of a call.
type attributes struct {
	fields     metadata.MD
	made       string // the id of a call that has none, once it is asked for
	descriptor func(name string) string
}

var _ rules.Attributes = (*attributes)(nil)

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Header is the first value of a metadata field. Host is :authority.
func (a *attributes) Header(name string) string { return first(a.values(name)) }

func (a *attributes) values(name string) []string {
	if name == "Host" {
		name = ":authority"
	}
	return a.fields[strings.ToLower(name)]
}

// MakeRequestID is the id of a call without one: see gate.Verdict.
func (a *attributes) MakeRequestID() string {
	if a.made == "" {
		a.made = requestid.New()
	}
	return a.made
}

// Query and Cookie are missing in gRPC.
func (a *attributes) Query(string) string  { return "" }
func (a *attributes) Cookie(string) string { return "" }

// Descriptor is the Descriptor of the options.
func (a *attributes) Descriptor(name string) string { return a.descriptor(name) }

// Doubtful reports whether a metadata field has several values: see rules.Attributes.
func (a *attributes) Doubtful(kind, name string) bool {
	values := a.values(name)
	for _, value := range values {
		if kind == "header" && value != values[0] {
			return true
		}
	}
	return false
}
