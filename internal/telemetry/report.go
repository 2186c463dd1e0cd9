// Package telemetry answers who is limited, by what rule, why, and what changed. It observes the verdicts
// of a gate: exact counts for each rule, samples for keys. No verdict waits for it.
package telemetry

import (
	"context"
	"time"
)

// Counts are the requests decided in an interval, by outcome. They are exact. A passed request counts for
// each rule that matched, a refused one for the rule that decided.
type Counts struct {
	Passed        uint64 `json:"passed"`
	Refused       uint64 `json:"refused"`
	Denied        uint64 `json:"denied"`
	Failed        uint64 `json:"failed"`
	ShadowPassed  uint64 `json:"shadow_passed,omitempty"`
	ShadowRefused uint64 `json:"shadow_refused,omitempty"`
	Degraded      uint64 `json:"degraded,omitempty"` // decided by on_store_error; also in an outcome above
	Bans          uint64 `json:"bans,omitempty"`     // placed

	// Units of metered rules. Those of requests that a gateway or a middleware follows are spent when their cost is
	// settled, and reserved until then.
	Spent     uint64 `json:"spent,omitempty"`
	Returned  uint64 `json:"returned,omitempty"`         // of Spent: what came back
	Estimated uint64 `json:"estimated,omitempty"`        // what was charged before it was settled, and
	Settled   uint64 `json:"settled,omitempty"`          // what the same requests cost
	Reserved  uint64 `json:"reserved_seconds,omitempty"` // units times seconds
}

// A Point is one interval of a series, which begins at At and lasts the Step of its report.
type Point struct {
	At time.Time `json:"at"`
	Counts
	P50 time.Duration `json:"p50_ns,omitempty"` // latency of decisions
	P99 time.Duration `json:"p99_ns,omitempty"`
}

// A Query selects an interval, on the nodes that share a store. The zero Query is the last hour of all nodes.
type Query struct {
	From, To time.Time // To zero: now; From zero: an hour before To
	Node     string    // "": all nodes
	Most     int       // rules, keys or samples; 0: the default of the report
}

// An Overview is the state of all rules.
type Overview struct {
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Step   time.Duration `json:"step_ns"`
	Total  Counts        `json:"total"` // of requests, each counted once
	Series []Point       `json:"series"`
	Rules  []RuleSummary `json:"rules"` // sorted by harm: refused requests, then shadow refusals, then name
	More   int           `json:"more,omitempty"`
	Nodes  []Node        `json:"nodes"`
	Alerts []Alert       `json:"alerts,omitempty"` // firing
}

// A RuleSummary is one row of the Overview.
type RuleSummary struct {
	Name         string   `json:"name"`
	Label        string   `json:"label,omitempty"`
	Mode         string   `json:"mode"`
	Limits       []string `json:"limits"`          // in the notation of the rule file
	Units        *Units   `json:"units,omitempty"` // nil: each request is one unit
	Candidate    []string `json:"candidate,omitempty"`
	Counts       Counts   `json:"counts"`
	RefusedShare float64  `json:"refused_share"` // of passed and refused requests, 0 to 1
	Series       []Point  `json:"series,omitempty"`
	WorstKey     *KeyRate `json:"worst_key,omitempty"` // most refused
	Removed      bool     `json:"removed,omitempty"`   // no longer in force
	// Folded is set if Counts are not this rule's: they are in the row "(other)", with the other rules beyond
	// the first MostRules.
	Folded bool `json:"folded,omitempty"`
	// Unwatched is set if the rule has keys and requests, and is not one of the busiest rules, which have counted keys.
	Unwatched bool `json:"unwatched,omitempty"`
}

// Units are the units of a metered rule.
type Units struct {
	Name      string `json:"name,omitempty"`      // such as tokens
	Scale     int64  `json:"scale,omitempty"`     // units of the limit that are one of the name; 0: 1
	Estimates bool   `json:"estimates,omitempty"` // costs are estimates until the response states them
	Reserved  int64  `json:"reserved"`            // now
}

// A KeyRate is the estimated traffic of a key under a rule. Hidden is set if keys are redacted: then Key is a
// digest that stands for the same key on all nodes.
type KeyRate struct {
	Key     string  `json:"key"`
	Hidden  bool    `json:"hidden,omitempty"`
	Passed  uint64  `json:"passed"`
	Refused uint64  `json:"refused"`
	Share   float64 `json:"share"` // of the rule's refused requests, or of a shadow rule's would-be ones, 0 to 1
	// Units are those that it has spent, of a metered rule; below 0 if it got back what an earlier interval has.
	Units int64 `json:"units,omitempty"`
}

// A ClassReport is a class of a rule with reserve.
type ClassReport struct {
	Name    string `json:"name"`
	Leaves  int64  `json:"leaves"` // percent of the limits that it leaves to others
	Refused uint64 `json:"refused"`
}

// A RuleReport is all that is known of one rule.
type RuleReport struct {
	RuleSummary
	Classes  []ClassReport `json:"classes,omitempty"` // of reserve, the most important first
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"`
	Step     time.Duration `json:"step_ns"`
	Top      []KeyRate     `json:"top"`      // by refused requests, then by passed; spenders are among them
	Distinct uint64        `json:"distinct"` // keys, estimated
	Compared *Comparison   `json:"compared,omitempty"`
}

// A Comparison counts requests by the decisions of the rule and its candidate.
type Comparison struct {
	Both         uint64 `json:"both"` // granted by both
	NewlyRefused uint64 `json:"newly_refused"`
	NewlyGranted uint64 `json:"newly_granted"`
	Neither      uint64 `json:"neither"`
}

// A Sample is one decision, drawn with the probability 1/Weight.
type Sample struct {
	At        time.Time     `json:"at"`
	Node      string        `json:"node"`
	Rule      string        `json:"rule,omitempty"`   // that decided, or is nearest to refusing its key
	Key       string        `json:"key,omitempty"`    // of a denied request: the client
	Hidden    bool          `json:"hidden,omitempty"` // Key, Client and Path are digests
	Method    string        `json:"method,omitempty"`
	Path      string        `json:"path,omitempty"` // with Method, its first 63 bytes
	Client    string        `json:"client,omitempty"`
	Outcome   string        `json:"outcome"` // passed, refused, denied, failed
	Reason    string        `json:"reason"`
	Cost      int64         `json:"cost"`           // at the decision
	Unit      string        `json:"unit,omitempty"` // of Cost, as rules write it
	Wait      time.Duration `json:"wait_ns,omitempty"`
	RequestID string        `json:"request_id,omitempty"`
	Weight    float64       `json:"weight"`
}

// A KeyHistory has the counts of a key over time: of the minutes when it was among the keys with most refused or
// most passed requests of a rule.
type KeyHistory struct {
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"`
	Step  time.Duration `json:"step_ns"`
	Rules []KeyUnder    `json:"rules"` // by refused requests
}

// A KeyUnder is a key under one rule.
type KeyUnder struct {
	Rule   string  `json:"rule"`
	Units  *Units  `json:"units,omitempty"` // nil: each request is one unit, or the rule is not in force
	Counts Counts  `json:"counts"`
	Series []Point `json:"series"`
}

// A Filter selects samples; empty fields match all. Key is a whole key, or one of its values.
type Filter struct{ Rule, Key, Outcome string }

// A Node is one of the servers that share a store, as it described itself last.
type Node struct {
	Name        string        `json:"name"`
	Version     string        `json:"version"`
	Seen        time.Time     `json:"seen"`
	Started     time.Time     `json:"started"`
	Revision    string        `json:"revision"`         // of the rules in force: equal on nodes with the same rules
	Ledger      int64         `json:"ledger,omitempty"` // revision of the ledger that is in force
	StoreUp     bool          `json:"store_up"`
	StoreP50    time.Duration `json:"store_p50_ns"`
	StoreP99    time.Duration `json:"store_p99_ns"`
	Breaker     string        `json:"breaker,omitempty"` // closed, open, half-open; "": none
	RecallHits  float64       `json:"recall_hits"`       // share of decisions answered by the cache of refusals
	LeaseHits   float64       `json:"lease_hits"`        // share answered from prefetched units
	Keys        int64         `json:"keys"`              // in memory
	Overflow    uint64        `json:"overflow"`          // decisions on the overflow key, because memory was full
	ClockOffset time.Duration `json:"clock_offset_ns"`   // of the node from the store
	Bound       string        `json:"bound"`             // accuracy in force: strict, prefetch, degraded
	Share       string        `json:"share,omitempty"`   // what the bound allows, in words
	Problems    []string      `json:"problems,omitempty"`
	// Reserved are the units of rules that wait to be settled, of the rules with most of them.
	Reserved map[string]int64 `json:"reserved,omitempty"`
	Alone    bool             `json:"alone,omitempty"`  // the other nodes could not be read
	Alerts   []Alert          `json:"alerts,omitempty"` // that it raised
}

// A Mark is a change or an incident on the time axis.
type Mark struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // a change: rules, override, block, allow, ban, lift, reset; or an incident:
	// alert, resolved, degraded, recovered, start
	Node   string `json:"node,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Key    string `json:"key,omitempty"` // or the values of an exception
	Text   string `json:"text"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Change string `json:"change,omitempty"` // revision of the ledger's history, to show and roll back
}

// An Alert is a condition that holds, or held until Resolved.
type Alert struct {
	Name     string    `json:"name"` // reject_share, degraded
	Rule     string    `json:"rule,omitempty"`
	Text     string    `json:"text"` // in English; programs word the other fields
	Value    float64   `json:"value"`
	Limit    float64   `json:"limit"`
	Since    time.Time `json:"since"`
	Resolved time.Time `json:"resolved,omitzero"`

	Total  uint64        `json:"total,omitempty"`     // requests of which Value is a share
	Window time.Duration `json:"window_ns,omitempty"` // in which they came
	Alone  bool          `json:"alone,omitempty"`     // the requests are those of one node, since Redis does not answer
	Count  int           `json:"count,omitempty"`     // alerts of one cause that this one stands for
	Rules  []string      `json:"rules,omitempty"`     // of some of these, the worst first
}

// A Reader answers for all nodes that share a store; on a server without one, for the server alone. It is
// safe for concurrent use.
type Reader interface {
	Overview(context.Context, Query) (*Overview, error)
	Rule(ctx context.Context, name string, q Query) (*RuleReport, error) // nil, nil: no such rule
	// Key returns the history of a whole key, or of one of its values.
	Key(ctx context.Context, key string, q Query) (*KeyHistory, error)
	Nodes(context.Context) ([]Node, error)
	Marks(context.Context, Query) ([]Mark, error) // the latest first
	// Recent returns samples of this node, the latest first.
	Recent(f Filter, most int) []Sample
}
