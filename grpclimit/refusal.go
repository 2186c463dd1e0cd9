package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/pace"
	"github.com/weirproject/weir/internal/ratefields"
)

// Names of metadata.
const (
	fieldPolicy   = "ratelimit-policy"
	fieldLimit    = "ratelimit"
	fieldXLimit   = "x-ratelimit-limit"
	fieldXLeft    = "x-ratelimit-remaining"
	fieldXReset   = "x-ratelimit-reset"
	fieldRetry    = "retry-after"
	fieldPushback = "grpc-retry-pushback-ms"
)

// maxPushback is the longest wait for which a client is told to retry. gRPC sleeps it within the call.
const maxPushback = time.Minute

// A check is the result of one limit.
type check struct {
	limit    *weir.Limit
	decision *weir.Decision // nil for limits of a Limiter other than the deciding one
	fields   httplimit.Fields
	ban      bool
}

// describe is the metadata that describes the limits; nil if there is none.
func describe(checks []check, granted bool) metadata.MD {
	var policy, limits []byte
	var worst *check
	for i := range checks {
		c := &checks[i]
		switch c.fields {
		case httplimit.Draft:
			if !c.ban { // a ban has no quota
				policy = ratefields.AppendPolicy(policy, c.limit)
			}
			if c.decision != nil {
				limits = ratefields.AppendLimit(limits, c.limit, c.decision, granted)
			}
		case httplimit.Seconds, httplimit.UnixTime:
			if c.decision != nil && (worst == nil || weir.Worse(c.decision, worst.decision)) {
				worst = c
			}
		}
	}
	var fields metadata.MD
	if len(limits) > 0 {
		fields = metadata.MD{fieldPolicy: {string(policy)}, fieldLimit: {string(limits)}}
	}
	if worst != nil {
		d := worst.decision
		x := metadata.Pairs(fieldXLimit, integer(worst.limit.Most()), fieldXLeft, integer(d.Remaining),
			fieldXReset, integer(ratefields.Reset(d, worst.fields == httplimit.UnixTime)))
		fields = metadata.Join(fields, x)
	}
	return fields
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

// retryAfter is whole seconds, rounded up; 0 would mean "retry at once".
func retryAfter(wait time.Duration) string { return integer(max(1, ratefields.Seconds(wait))) }

// pushback is the wait in milliseconds, rounded up, or -1 if a retry within the call cannot succeed.
func pushback(ctx context.Context, wait time.Duration) string {
	if wait > maxPushback || !pace.Fits(ctx, wait) {
		return "-1"
	}
	return integer(int64((wait + time.Millisecond - 1) / time.Millisecond))
}

// exceed refuses a call whose limits are exceeded.
func (a *admission) exceed() {
	wait, label := a.event.Answer.RetryAfter, ""
	text := "the cost of the call is more than the limit can ever grant: ask for less"
	var details []protoadapt.MessageV1
	if wait != weir.Never {
		text = "too many requests: retry after " + retryAfter(wait) + "s"
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if a.event.Rule != nil {
		label = a.event.Rule.Label()
	}
	if violations := a.violations(); len(violations) > 0 {
		details = append(details, &errdetails.QuotaFailure{Violations: violations})
	}
	if label != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "weir",
			Metadata: map[string]string{"label": label}})
	}
	a.status = status.New(codes.ResourceExhausted, text)
	if detailed, err := a.status.WithDetails(details...); err == nil { // else the details have invalid UTF-8
		a.status = detailed
	}
}

// violations are the limits that refuse. Rules without fields are not named.
func (a *admission) violations() (list []*errdetails.QuotaFailure_Violation) {
	for i := range a.checks {
		c := &a.checks[i]
		hidden := a.event.Rule != nil && c.fields == httplimit.NoFields
		if hidden || c.decision == nil || c.decision.RetryAfter == 0 {
			continue
		}
		v := &errdetails.QuotaFailure_Violation{Subject: c.limit.Name(), Description: "banned", QuotaId: c.limit.Name()}
		if !c.ban {
			v.Description = fmt.Sprintf("%s, of which %d are left", c.limit, c.decision.Remaining)
			v.QuotaValue = c.limit.Most()
		}
		list = append(list, v)
	}
	return list
}

// refuse refuses a call that no limit refused.
func (a *admission) refuse(code codes.Code, text string) { a.status = status.New(code, text) }

// undecided refuses a call whose limits could not be checked.
func (a *admission) undecided(ctx context.Context) {
	if err := ctx.Err(); err != nil {
		a.status = status.FromContextError(err)
		return
	}
	a.refuse(codes.Unavailable, "the rate limit could not be checked: try again later")
}

// malformed names the allowed form of the client's input. The given text is not repeated.
func (a *admission) malformed(err error) {
	field, allowed := "request", "a call that can be read"
	var input *weir.InputError
	if errors.As(err, &input) {
		field, allowed = input.Field, input.Allowed
	}
	a.refuse(codes.InvalidArgument, "the "+field+" of this call is not allowed; allowed: "+allowed)
}
