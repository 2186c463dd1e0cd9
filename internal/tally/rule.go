package tally

import "sync/atomic"

// Indexes of the counts of a rule. The first four are numbers of gate.Outcome. Shadow rules have counts of their
// own: adding them to the real refusals would mislead.
const (
	Passed = iota
	Refused
	Denied
	Failed
	ShadowPassed
	ShadowRefused
	Outcomes

	Bans     = Outcomes     // bans placed; not an outcome
	Degraded = Bans + 1     // decided by on_store_error; also in an outcome
	Compared = Degraded + 1 // the four comparisons with a candidate, in the order of gate.Difference.Parts
	Counted  = Compared + 4 // the ends of reservations by count_if and of leases, in the order of gate.CountResult
	Unstated = Counted + 7  // requests whose cost is the default, because they do not state it
	Hits     = Unstated + 1 // of descriptors of Envoy's rate limit service: the next five
	Units    = Hits + 5     // of metered rules: the next four
	size     = Units + 4
)

// Indexes of the units, from Units on.
const (
	Spent     = iota // what requests cost, once it is known
	Back             // of Spent, what came back
	Estimated        // the charges that were settled, as they were before
	Settled          // what they cost
)

// Indexes of the hits, from Hits on. A request may have several, or none.
const (
	AllHits = iota
	OverHits
	NearHits
	WithinHits
	ShadowHits
)

// Settle counts the end of a charge. Units that were an estimate are not among the spent ones until then.
func (r *Rule) Settle(estimate, units uint64, estimated bool) {
	switch {
	case estimated:
		r.N[Units+Spent].Add(units)
	case units > estimate:
		r.N[Units+Spent].Add(units - estimate)
	case units < estimate:
		r.N[Units+Back].Add(estimate - units)
	}
}

// Counts are the counts of a rule at one time.
type Counts [size]uint64

// A Rule counts the decisions of one rule. It is safe for concurrent use.
type Rule struct{ N [size]atomic.Uint64 }

// Any reports whether any count is above 0.
func (r *Rule) Any() bool { return r.Read() != Counts{} }

// Add adds the counts of another rule.
func (r *Rule) Add(from *Rule) {
	for i := range r.N {
		r.N[i].Add(from.N[i].Load())
	}
}

// Read returns the counts so far.
func (r *Rule) Read() (n Counts) {
	for i := range r.N {
		n[i] = r.N[i].Load()
	}
	return n
}

// Minus is the difference to earlier counts.
func (c Counts) Minus(earlier Counts) Counts {
	for i := range c {
		c[i] -= earlier[i]
	}
	return c
}

// Plus is the sum with other counts.
func (c Counts) Plus(other Counts) Counts {
	for i := range c {
		c[i] += other[i]
	}
	return c
}
