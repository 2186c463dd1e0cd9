package ratefields

import (
	"encoding/base64"
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
	PK       []byte // the draft's partition key; empty: none
	Unit     string // of the limit; "": requests
}

// Describe returns the fields that describe the limits of a response, by their names in lower case.
func Describe(checks []Check, granted bool) map[string]string {
	var f Fields
	fields, worst := make(map[string]string), f.Describe(checks, granted, true)
	if len(f.Limit) > 0 {
		fields["ratelimit-policy"], fields["ratelimit"] = string(f.Policy), string(f.Limit)
	}
	if worst != nil {
		for i, value := range worst.Single() {
			fields[Singles[i]] = value
		}
	}
	return fields
}

// Fields are the values of RateLimit-Policy and RateLimit, which all limits share. Their memory is reused.
type Fields struct{ Policy, Limit []byte }

// Describe describes the limits of a response, without Policy if the caller knows it. The X-RateLimit fields are those
// of worst, the most restrictive limit that has them; nil: none has.
func (f *Fields) Describe(checks []Check, granted, policy bool) (worst *Check) {
	if !f.draft(checks, granted, policy) {
		binding := slices.Clone(checks)
		slices.SortStableFunc(binding, func(a, b Check) int { return Binding(a.Decision, b.Decision) })
		f.draft(binding, granted, policy)
	}
	for i := range checks {
		c := &checks[i]
		relevant := c.Decision != nil && (c.Style == RelativeTime || c.Style == UnixTime)
		if relevant && (worst == nil || weir.Worse(c.Decision, worst.Decision)) {
			worst = c
		}
	}
	return worst
}

// draft writes the two values, up to the first check that does not fit. It reports whether all fit.
func (f *Fields) draft(checks []Check, granted, policy bool) (whole bool) {
	f.Policy, f.Limit = f.Policy[:0], f.Limit[:0]
	for i := range checks {
		c := &checks[i]
		if c.Style != Draft {
			continue
		}
		before, left := len(f.Policy), len(f.Limit)
		if policy && !c.Ban { // a ban has no quota
			f.Policy = c.appendPK(AppendPolicy(f.Policy, c.Limit, c.Unit))
		}
		if c.Decision != nil {
			f.Limit = c.appendPK(AppendLimit(f.Limit, c.Limit, c.Decision, granted))
		}
		if len(f.Policy)+len(f.Limit) > MaxBytes {
			f.Policy, f.Limit = f.Policy[:before], f.Limit[:left]
			return false
		}
	}
	return true
}

func (c *Check) appendPK(buffer []byte) []byte {
	if len(c.PK) == 0 {
		return buffer
	}
	return append(base64.StdEncoding.AppendEncode(append(buffer, ";pk=:"...), c.PK), ':')
}

// Singles are the names of the fields that describe one limit, in lower case.
var Singles = [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}

// Single are the values of Singles.
func (c *Check) Single() [3]string {
	integer := func(n int64) string { return strconv.FormatInt(n, 10) }
	return [3]string{integer(c.Limit.Most()), integer(c.Decision.Remaining),
		integer(Reset(c.Limit, c.Decision, c.Style == UnixTime))}
}
