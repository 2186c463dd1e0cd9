package rls_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A leaf is the limit of a node of a configuration.
type leaf struct {
	requests      int64
	unit          string
	unlimited     bool
	name          string
	replaces      []string
	shadow, quota bool
}

// unitSeconds are the units of limits.
var unitSeconds = map[string]int64{"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400,
	"MONTH": 30 * 86400, "YEAR": 365 * 86400}

// A want is a descriptor of a request and the limit that it meets.
type want struct {
	*leaf         // nil: no limit
	key    string // of the counter there, without the window
	own    string // of the counter here
	hits   int64
	stated bool // the descriptor has hits of its own
	brings bool // it brings its limit along
}

// counted reports whether a counter belongs to it.
func (w *want) counted() bool { return w.leaf != nil && !w.unlimited }

// A model is the counters of a service, by their keys and windows.
type model map[string]int64

func (m model) at(key string, w *want, now int64) string {
	seconds := unitSeconds[w.unit]
	return fmt.Sprint(key, "_", now/seconds*seconds)
}

// A status of an answer. Without a limit it has a code, and what remains, alone.
type modelStatus struct {
	code      string
	limit     *leaf
	remaining int64
	noReset   bool
}

// An answer of a model.
type modelAnswer struct {
	overall  string
	statuses []modelStatus
	least    *modelStatus // that header fields show
	over     bool         // a limit decided so, whatever QUOTA_MODE or SHADOW_MODE make of it
}

func (a *modelAnswer) text(now int64) string {
	var b strings.Builder
	b.WriteString(a.overall)
	reset := func(l *leaf) int64 { return unitSeconds[l.unit] - now%unitSeconds[l.unit] }
	for _, s := range a.statuses {
		fmt.Fprintf(&b, ", %s %d", s.code, s.remaining)
		if s.limit != nil {
			fmt.Fprintf(&b, " of %q %d/%s", s.limit.name, s.limit.requests, s.limit.unit)
			if !s.noReset {
				fmt.Fprintf(&b, " t=%d", reset(s.limit))
			}
		}
	}
	if s := a.least; s != nil {
		fmt.Fprintf(&b, "; %d %d %d", s.limit.requests, s.remaining, reset(s.limit))
	}
	return b.String()
}

// textOf is the text of a real answer.
func textOf(r *ratelimit.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(r.GetOverallCode().String())
	for _, s := range r.GetStatuses() {
		fmt.Fprintf(&b, ", %v %d", s.GetCode(), s.GetLimitRemaining())
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, " of %q %d/%v", l.GetName(), l.GetRequestsPerUnit(), l.GetUnit())
			if l.GetUnitMultiplier() != nil {
				fmt.Fprintf(&b, "×%d", l.GetUnitMultiplier().GetValue())
			}
		}
		if d := s.GetDurationUntilReset(); d != nil {
			fmt.Fprintf(&b, " t=%d", d.GetSeconds())
		}
	}
	for i, h := range r.GetResponseHeadersToAdd() {
		b.WriteString([]string{"; ", " ", " "}[i] + h.GetValue())
	}
	return b.String()
}

const ok, overLimit = "OK", "OVER_LIMIT"

// replace drops the limits that others replace.
func replace(list []want) {
	var names []string
	for _, w := range list {
		if w.leaf != nil {
			names = append(names, w.replaces...)
		}
	}
	for i := range list {
		if w := &list[i]; w.counted() && w.name != "" && slices.Contains(names, w.name) {
			w.leaf = nil
		}
	}
}

// theirs is the answer of envoyproxy/ratelimit of January 2026, which charges every limit.
func (m model) theirs(list []want, now int64, shadow, quota bool) *modelAnswer {
	a := &modelAnswer{overall: ok}
	least := int64(math.MaxUint32)
	for i := range list {
		w := &list[i]
		s := modelStatus{code: ok}
		switch {
		case w.leaf == nil:
		case w.unlimited:
			s.remaining = math.MaxUint32
		default:
			at := m.at(w.key, w, now)
			m[at] += w.hits
			s.limit, s.remaining = w.leaf, max(0, w.requests-m[at])
			if m[at] > w.requests && !w.shadow {
				s.code = overLimit
			}
			if s.remaining < least {
				least, a.least = s.remaining, &modelStatus{limit: s.limit, remaining: s.remaining}
			}
			switch {
			case s.code == ok:
			case quota || w.quota:
				s.code, s.noReset = ok, true
			default:
				a.overall, a.over, least, a.least = overLimit, true, 0, &modelStatus{limit: s.limit}
			}
		}
		a.statuses = append(a.statuses, s)
	}
	if shadow {
		a.overall = ok
	}
	return a
}

// A call is a call of weir's model.
type modelCall struct {
	model
	list     []want
	now      int64
	statuses []modelStatus
	refuses  []bool // the descriptor refuses
	quota    []bool // it is decided apart, and one of these suffices
	apart    []bool
	taken    []bool // charged
}

// ours is the answer of weir, which charges all limits of a call or none. Stated hits and quotas are charged each alone.
func (m model) ours(list []want, now int64, shadow, quota bool) *modelAnswer {
	n := len(list)
	c := &modelCall{m, list, now, make([]modelStatus, n), make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	for i := range list {
		w := &list[i]
		c.statuses[i] = modelStatus{code: ok}
		if w.leaf != nil && w.unlimited {
			c.statuses[i].remaining = math.MaxUint32
		} else if w.leaf != nil {
			c.statuses[i].limit = w.leaf
		}
		c.quota[i] = n > 1 && (shadow || quota || w.counted() && w.quota)
		c.apart[i] = c.quota[i] || w.stated && w.hits > 0 && !(w.brings && w.counted() && w.requests == 0)
	}
	passes := c.decideApart()
	passes = c.decideTogether(passes)
	return c.answer(passes, shadow)
}

func (c *modelCall) place(i int) string { return c.at(c.list[i].own, &c.list[i], c.now) }

// blocked reports whether no hit passes: the limit is 0, and of the configuration, or has hits.
func (c *modelCall) blocked(i int) bool {
	w := &c.list[i]
	return w.counted() && w.requests == 0 && (!w.brings || w.hits > 0)
}

// alone decides a descriptor alone, and charges it if it fits.
func (c *modelCall) alone(i int) (fits bool) {
	w := &c.list[i]
	if !w.counted() {
		return true
	}
	at := c.place(i)
	if c.blocked(i) || c.model[at]+w.hits > w.requests {
		c.statuses[i].remaining = 0
		return w.shadow
	}
	c.model[at] += w.hits
	c.taken[i] = true
	c.statuses[i].remaining = w.requests - c.model[at]
	return true
}

func (c *modelCall) decideApart() (passes bool) {
	passes = true
	quotas, granted := 0, 0
	for i := range c.list {
		if !c.apart[i] {
			continue
		}
		c.refuses[i] = !c.alone(i)
		switch {
		case !c.quota[i]:
			passes = passes && !c.refuses[i]
		case c.list[i].leaf != nil && c.list[i].unlimited:
		default:
			if quotas++; !c.refuses[i] {
				granted++
			}
		}
	}
	for i := range c.list {
		w := &c.list[i]
		if c.apart[i] && c.refuses[i] && w.stated && w.requests > 0 {
			c.model[c.place(i)] += w.hits
		}
	}
	return passes && (quotas == 0 || granted > 0)
}

// decideTogether decides the others.
func (c *modelCall) decideTogether(passes bool) bool {
	sums := make(map[string]int64)
	each := func(do func(i int, w *want, at string)) {
		for i := range c.list {
			if w := &c.list[i]; !c.apart[i] && w.counted() && !w.shadow {
				do(i, w, c.place(i))
			}
		}
	}
	each(func(_ int, w *want, at string) { sums[at] += w.hits })
	each(func(i int, w *want, at string) {
		c.refuses[i] = c.blocked(i) || c.model[at]+sums[at] > w.requests
		passes = passes && !c.refuses[i]
	})
	if passes {
		each(func(_ int, w *want, at string) { c.model[at] += w.hits })
	}
	each(func(i int, w *want, at string) {
		if !c.refuses[i] {
			c.statuses[i].remaining = w.requests - c.model[at]
		}
	})
	for i := range c.list {
		w := &c.list[i]
		switch {
		case c.apart[i] || !w.counted() || !w.shadow:
		case passes:
			c.alone(i)
		case !c.blocked(i) && c.model[c.place(i)]+w.hits <= w.requests:
			c.statuses[i].remaining = w.requests - c.model[c.place(i)]
		}
	}
	return passes
}

func (c *modelCall) answer(passes, shadow bool) *modelAnswer {
	a := &modelAnswer{overall: ok, statuses: c.statuses, over: !passes}
	for i := range c.list {
		s := &c.statuses[i]
		if c.refuses[i] {
			s.code, s.remaining = overLimit, 0
		}
		if c.quota[i] && !passes && c.taken[i] && !(c.list[i].stated && c.list[i].hits > 0) {
			c.model[c.place(i)] -= c.list[i].hits
		}
		leads := c.refuses[i] && !c.quota[i]
		if s.limit != nil && (leads || a.least == nil || s.remaining < a.least.remaining) {
			a.least = s
		}
	}
	if !passes && !shadow {
		a.overall = overLimit
	}
	return a
}
