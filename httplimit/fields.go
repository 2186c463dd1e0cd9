package httplimit

import (
	"net/http"
	"strconv"
)

// Fields selects the response fields that describe the limits.
type Fields uint8

const (
	// Draft is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11,
	// with one item per limit, under the limit's name:
	//
	//	RateLimit-Policy: "service";q=1000;w=60, "ip";q=10;w=1
	//	RateLimit: "service";r=998;t=1, "ip";r=0;t=1
	//
	// q is the maximum cost of a request (with the overdraft) and w the seconds until that many units return, rounded
	// up; w is omitted below one second or if it varies (months, years). r is the remaining quota. t is the seconds,
	// rounded up, until one more request of this cost is granted; if it would be granted now, t is the seconds until
	// the limit is fully restored, over which r may be spent evenly. In a refusal only the limits that refuse have a t,
	// so that Retry-After is never before a t, as the draft requires. A cost above the maximum has no t. The two values
	// have at most 2,048 bytes together: if all limits need more, the limits nearest to their end stand first, and the
	// last ones are left out.
	Draft Fields = iota
	// Seconds is X-RateLimit-Limit, -Remaining and -Reset of the deciding limit, with Reset in
	// seconds from now, which is Draft's t.
	Seconds
	// UnixTime is the same, with Reset in seconds since 1970, by the store's clock.
	UnixTime
	// NoFields sends no such field. Refusals still have Retry-After.
	NoFields
)

// Field names in the canonical form of net/http.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldLimit  = "Ratelimit"
	fieldRetry  = "Retry-After"
)

var fieldsX = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// describe adds the fields of the checks to existing ones, of an upstream or another middleware.
func (m *middleware) describe(h http.Header, c *call) {
	if m.policy != nil && len(c.checks) == m.limits {
		c.policy = m.policy
	}
	worst := c.fields.Describe(c.checks, c.refusal == nil, c.policy == nil)
	if len(c.fields.Limit) > 0 {
		c.describeDraft(h)
	}
	if worst == nil {
		return
	}
	for i, value := range worst.Single() {
		add(h, fieldsX[i], value)
	}
}

// describeDraft adds the two fields of the draft. Unless the policy is known, their values are halves
// of one text, in one slice without spare capacity, so that appending a value copies it.
func (c *call) describeDraft(h http.Header) {
	if c.policy != nil {
		addAll(h, fieldPolicy, c.policy)
		add(h, fieldLimit, string(c.fields.Limit))
		return
	}
	cut := len(c.fields.Policy)
	c.fields.Policy = append(c.fields.Policy, c.fields.Limit...)
	text := string(c.fields.Policy)
	values := []string{text[:cut], text[cut:]}
	addAll(h, fieldPolicy, values[:1:1])
	addAll(h, fieldLimit, values[1:])
}

func addAll(header http.Header, name string, values []string) {
	if header[name] == nil {
		header[name] = values
		return
	}
	header[name] = append(header[name], values...)
}

func add(h http.Header, name, value string) { h[name] = append(h[name], value) }

func integer(n int64) string { return strconv.FormatInt(n, 10) }
