package ratefields

import (
	"slices"
	"strconv"

	"github.com/weirproject/weir"
)

// A Style selects the fields that describe a limit. The values are those of httplimit.Fields.
type Style uint8

// The styles.
const (
	Draft Style = iota
	RelativeTime
	UnixTime
	None
)

// words are the styles as rules name them.
var words = []string{"draft", "seconds", "unix_time", "none"}

// StyleOf is the style of a word of response.fields. Other words are Draft.
func StyleOf(word string) Style { return Style(max(0, slices.Index(words, word))) }

// A Check is the result of one limit.
type Check struct {
	Limit    *weir.Limit
	Decision *weir.Decision // nil for limits of a Limiter other than the deciding one
	Style    Style
	Ban      bool
}

// Describe returns the fields that describe the limits of a response, by their names in lower case. All limits share
// the fields of the draft; the X-RateLimit fields are those of the most restrictive limit.
func Describe(checks []Check, granted bool) map[string]string {
	fields := make(map[string]string)
	policy, limits, whole := draft(checks, granted)
	if !whole {
		binding := slices.Clone(checks)
		slices.SortStableFunc(binding, func(a, b Check) int { return Binding(a.Decision, b.Decision) })
		policy, limits, _ = draft(binding, granted)
	}
	if len(limits) > 0 {
		fields["ratelimit-policy"], fields["ratelimit"] = string(policy), string(limits)
	}
	var worst *Check
	for i := range checks {
		c := &checks[i]
		relevant := c.Decision != nil && (c.Style == RelativeTime || c.Style == UnixTime)
		if relevant && (worst == nil || weir.Worse(c.Decision, worst.Decision)) {
			worst = c
		}
	}
	if worst != nil {
		integer := func(n int64) string { return strconv.FormatInt(n, 10) }
		fields["x-ratelimit-limit"] = integer(worst.Limit.Most())
		fields["x-ratelimit-remaining"] = integer(worst.Decision.Remaining)
		fields["x-ratelimit-reset"] = integer(Reset(worst.Limit, worst.Decision, worst.Style == UnixTime))
	}
	return fields
}

// draft is the values of the two fields, up to the first check that does not fit.
func draft(checks []Check, granted bool) (policy, limits []byte, whole bool) {
	for i := range checks {
		c := &checks[i]
		if c.Style != Draft {
			continue
		}
		before, left := len(policy), len(limits)
		if !c.Ban { // a ban has no quota
			policy = AppendPolicy(policy, c.Limit)
		}
		if c.Decision != nil {
			limits = AppendLimit(limits, c.Limit, c.Decision, granted)
		}
		if len(policy)+len(limits) > MaxBytes {
			return policy[:before], limits[:left], false
		}
	}
	return policy, limits, true
}
