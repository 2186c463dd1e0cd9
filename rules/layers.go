package rules

import (
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// LeasePercent is the largest share of the remaining units that a node may prefetch, in percent; 0 if the rule
// does not allow it.
func (r *Rule) LeasePercent() int { return r.lease }

// LocalCeiling bounds what one node may pass, as a multiple of the limit, whatever the store grants; 0 for no
// bound.
func (r *Rule) LocalCeiling() float64 { return r.ceiling }

// HoldUntilDone reports whether the rule's concurrency limits keep a request counted after its client left, until the
// work has ended or a time-to-live has passed. Otherwise they release it at once: the work is cancelled.
func (r *Rule) HoldUntilDone() bool { return r.holdUntilDone }

// releases are the words of hold_until.
var releases = []string{"disconnect", "done"}

// holdUntil checks hold_until. It needs the rule's limits.
func (b *builder) holdUntil(i int, s *Spec, rule *Rule) (done bool) {
	p := at(i, "hold_until")
	if s.HoldUntil != "" && len(rule.limits) > 0 && !slices.ContainsFunc(rule.limits, (*weir.Limit).Leases) {
		b.add(p, "hold_until has no effect on %s, which holds nothing; it is for limits such as concurrency 5 ttl 1m",
			rule.limits[0])
	}
	return word(b, p, s.HoldUntil, releases) == "done"
}

// lease checks lease_percent. It needs the rule's limits and bans.
func (b *builder) lease(i int, s *Spec, rule *Rule) int {
	p := at(i, "lease_percent")
	if s.LeasePercent == 0 {
		return 0
	}
	if s.LeasePercent < 0 || s.LeasePercent > bounds.Lease {
		b.add(p, "lease_percent is %d; allowed: 1 to %d, the percentage of the remaining units that a node may "+
			"prefetch", s.LeasePercent, bounds.Lease)
	}
	for _, limit := range rule.limits {
		if limit.Leases() {
			b.add(p, "lease_percent has no effect on %s: each unit held has an id of its own; leave it out", limit)
		}
	}
	if s.Ban.After != "" {
		b.add(p, "lease_percent and ban exclude each other: bans are checked in the store with every request; leave "+
			"one out")
	}
	return s.LeasePercent
}

// ceiling checks local_ceiling. NaN is not allowed.
func (b *builder) ceiling(i int, s *Spec) float64 {
	if s.LocalCeiling != 0 && !(s.LocalCeiling >= 1 && s.LocalCeiling <= bounds.Ceiling) {
		b.add(at(i, "local_ceiling"), "local_ceiling is %v; allowed: 1 to %d, such as 1.2: how many times the limit "+
			"one node may pass", s.LocalCeiling, bounds.Ceiling)
	}
	return s.LocalCeiling
}
