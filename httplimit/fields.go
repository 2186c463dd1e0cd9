package httplimit

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ratefields"
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
	// q is the maximum cost of a request (with the overdraft) and w the seconds in which that
	// many units return, rounded up; w is omitted below one second or if it varies (months,
	// years). r is the remaining quota. t is the seconds, rounded up, until one more request of
	// this cost is granted; if it would be granted now, t is the seconds until the limit is
	// fully restored, over which r may be spent evenly. In a refusal only the limits that refuse
	// have a t, so that Retry-After is never before a t, as the draft requires. A cost above the
	// maximum has none. The two values have at most 2,048 bytes together: if those of all limits
	// have more, the limits nearest to their end stand first, and the last ones are left out.
	Draft Fields = iota
	// Seconds is X-RateLimit-Limit, -Remaining and -Reset of the deciding limit, with Reset in
	// seconds from now, which is Draft's t.
	Seconds
	// UnixTime is the same, with Reset in seconds since 1970, by the store's clock.
	UnixTime
	// NoFields sends none of them. Refusals still have Retry-After.
	NoFields
)

// Field names in the canonical form of net/http.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldLimit  = "Ratelimit"
	fieldXLimit = "X-Ratelimit-Limit"
	fieldXLeft  = "X-Ratelimit-Remaining"
	fieldXReset = "X-Ratelimit-Reset"
	fieldRetry  = "Retry-After"
)

// describe adds the fields of the checks to existing ones, of an upstream or another middleware.
func (m *middleware) describe(h http.Header, c *call) {
	if m.policy != nil && len(c.checks) == m.limits {
		c.policy = m.policy
	}
	if !m.appendDraft(c, c.checks) {
		binding := slices.Clone(c.checks)
		slices.SortStableFunc(binding, func(a, b check) int { return ratefields.Binding(a.decision, b.decision) })
		m.appendDraft(c, binding)
	}
	if len(c.remaining) > 0 {
		m.describeDraft(h, c)
	}
	var worst *check
	for i := range c.checks {
		k := &c.checks[i]
		relevant := k.decision != nil && (k.fields == Seconds || k.fields == UnixTime)
		if relevant && (worst == nil || weir.Worse(k.decision, worst.decision)) {
			worst = k
		}
	}
	if worst != nil {
		describeWorst(h, worst)
	}
}

// appendDraft writes the values of the two fields of the draft, up to the first check that does not fit. It reports
// whether all fit.
func (m *middleware) appendDraft(c *call, checks []check) (whole bool) {
	c.policies, c.remaining = c.policies[:0], c.remaining[:0]
	for i := range checks {
		k := &checks[i]
		if k.fields != Draft {
			continue
		}
		policies, remaining := len(c.policies), len(c.remaining)
		if c.policy == nil && !k.ban { // a ban has no quota
			c.policies = m.appendPartition(ratefields.AppendPolicy(c.policies, k.limit), k)
		}
		if k.decision != nil {
			c.remaining = ratefields.AppendLimit(c.remaining, k.limit, k.decision, c.refusal == nil)
			c.remaining = m.appendPartition(c.remaining, k)
		}
		if len(c.policies)+len(c.remaining) > ratefields.MaxBytes {
			c.policies, c.remaining = c.policies[:policies], c.remaining[:remaining]
			return false
		}
	}
	return true
}

// describeDraft adds the two fields of the draft. Unless the policy is known, their values are halves
// of one text, in one slice without spare capacity, so that appending a value copies it.
func (m *middleware) describeDraft(h http.Header, c *call) {
	if c.policy != nil {
		addAll(h, fieldPolicy, c.policy)
		add(h, fieldLimit, string(c.remaining))
		return
	}
	cut := len(c.policies)
	c.policies = append(c.policies, c.remaining...)
	text := string(c.policies)
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

// describeWorst adds the X-RateLimit fields of one limit.
func describeWorst(h http.Header, c *check) {
	d := c.decision
	add(h, fieldXLimit, integer(c.limit.Most()))
	add(h, fieldXLeft, integer(d.Remaining))
	add(h, fieldXReset, integer(ratefields.Reset(c.limit, d, c.fields == UnixTime)))
}

func add(h http.Header, name, value string) { h[name] = append(h[name], value) }

func (c *config) appendPartition(buffer []byte, k *check) []byte {
	if c.partition == nil {
		return buffer
	}
	pk := c.partition(k.limit, k.key)
	if len(pk) == 0 {
		return buffer
	}
	buffer = base64.StdEncoding.AppendEncode(append(buffer, ";pk=:"...), pk)
	return append(buffer, ':')
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }
