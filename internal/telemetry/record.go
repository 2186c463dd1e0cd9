package telemetry

import (
	"time"

	"github.com/weirproject/weir/internal/tally"
)

// A Record is what one node counted from At on, for Step. Records of one interval add up over nodes, and those
// of one node over time, except for Distinct.
type Record struct {
	At    time.Time     `json:"at"`
	Step  time.Duration `json:"step_ns"`
	Total Counts        `json:"total"`          // of requests, each counted once
	Took  tally.Buckets `json:"took,omitempty"` // latency of decisions
	Rules []RuleRecord  `json:"rules"`          // with traffic in the interval, sorted by name
}

// A RuleRecord is the part of one rule in a Record. Name may be (claims), (unknown) or (other), as in the metrics.
type RuleRecord struct {
	Name string `json:"name"`
	// Parts are the members of Counts and Compared in JSON, which is read thousands of times for a report.
	Parts    []uint64   `json:"n"`
	Counts   Counts     `json:"-"`
	Compared Comparison `json:"-"`
	// Distinct is the estimated number of keys with requests in the last 5 to 10 minutes. Over intervals and nodes the
	// largest is a lower bound.
	Distinct uint64 `json:"distinct,omitempty"`
	// Top are the keys with most refused and with most passed requests, at most maxTopBound of each, without
	// Share. Keys below 1/1000 of the rule's requests are left out.
	Top []KeyRate `json:"top,omitempty"`
	// Classes are the refused requests of each class of a rule with reserve, by its name.
	Classes map[string]uint64 `json:"classes,omitempty"`
}
