package telemetry

import (
	"time"

	"github.com/weirproject/weir/internal/tally"
)

// A Record is what one node counted from At on, for Step. Records of one interval add up over nodes, and those
// of one node over time, except for Distinct.
type Record struct {
	At    time.Time
	Step  time.Duration
	Total Counts        // of requests, each counted once
	Took  tally.Buckets // latency of decisions
	Rules []RuleRecord  // with traffic in the interval, sorted by name
}

// A RuleRecord is the part of one rule in a Record. Name may be (claims), (unknown) or (other), as in the metrics.
type RuleRecord struct {
	Name     string
	Counts   Counts
	Compared Comparison
	// Distinct is the estimated number of keys with requests in the last 5 to 10 minutes. Over intervals and nodes the
	// largest is a lower bound.
	Distinct uint64
	// Top are the keys with most refused and with most passed requests, at most mostTop of each, without
	// Share. Keys below 1/1000 of the rule's requests are left out.
	Top []KeyRate
}
