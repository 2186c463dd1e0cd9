package grpclimit

import (
	"cmp"
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
	"github.com/weirproject/weir/internal/pace"
	"github.com/weirproject/weir/internal/ratefields"
)

// Names of metadata.
const (
	fieldLimit    = "ratelimit"
	fieldRetry    = "retry-after"
	fieldPushback = "grpc-retry-pushback-ms"
)

// maxPushback is the longest wait after which a client is told to retry. gRPC sleeps it within the call.
const maxPushback = time.Minute

// A check is the result of one limit.
type check = ratefields.Check

// describe is the metadata that describes the limits; nil without limits.
func describe(checks []check, granted bool) (fields metadata.MD) {
	for name, value := range ratefields.Describe(checks, granted) {
		if fields == nil {
			fields = make(metadata.MD)
		}
		fields.Set(name, value)
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

// exceed refuses a call that exceeds its limits, and tells the client to wait. own is the message of the rule, if it
// has one.
func (a *admission) exceed(wait time.Duration, own string) {
	a.wait = wait
	label, text := "", "the cost of the call is more than the limit can ever grant: ask for less"
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
	a.status = status.New(codes.ResourceExhausted, cmp.Or(own, text))
	if detailed, err := a.status.WithDetails(details...); err == nil { // else the details have invalid UTF-8
		a.status = detailed
	}
}

// violations are the limits that refuse. Rules without fields are not named.
func (a *admission) violations() (list []*errdetails.QuotaFailure_Violation) {
	for i := range a.checks {
		c := &a.checks[i]
		hidden := a.event.Rule != nil && c.Style == ratefields.None
		if hidden || c.Decision == nil || c.Decision.RetryAfter == 0 {
			continue
		}
		v := &errdetails.QuotaFailure_Violation{Subject: c.Limit.Name(), Description: "banned", QuotaId: c.Limit.Name()}
		if !c.Ban {
			v.Description = fmt.Sprintf("%s, of which %d are left", c.Limit, c.Decision.Remaining)
			v.QuotaValue = c.Limit.Most()
		}
		list = append(list, v)
	}
	return list
}

// refuse refuses a call that no limit refused.
func (a *admission) refuse(code codes.Code, text string) { a.status = status.New(code, text) }

// undecided refuses a call when its limits could not be checked.
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
