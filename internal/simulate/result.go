package simulate

import (
	"maps"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// A Result is what came of a simulation. Times are after its start.
type Result struct {
	Label    string `json:"label,omitempty"` // what was compared, such as on_store_error=deny
	Requests int64  `json:"requests"`
	// Exact is how many requests one limiter without latency and faults admits.
	Exact              int64 `json:"exact"`
	Admitted           int64 `json:"admitted"`
	OverAdmitted       int64 `json:"over_admitted"` // of Admitted: beyond the limits
	Refused            int64 `json:"refused"`
	WronglyRefused     int64 `json:"wrongly_refused"` // of Refused: the limits had room
	Failed             int64 `json:"failed"`
	FailedWithinLimits int64 `json:"failed_within_limits"` // of Failed: the limits had room
	Denied             int64 `json:"denied"`
	Degraded           int64 `json:"degraded"` // decided by on_store_error

	Latency       Percentiles `json:"latency_us"` // of decisions
	StoreCalls    int64       `json:"store_calls"`
	Recalled      int64       `json:"recalled"`
	Prefetched    int64       `json:"prefetched"`
	BreakerOpened int64       `json:"breaker_opened"`

	Rules   []*RuleResult `json:"rules"`
	Seconds []Second      `json:"seconds"`

	byRule    map[*rules.Rule]*RuleResult
	latencies map[time.Duration]int64
}

// Percentiles are in microseconds.
type Percentiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// A RuleResult is the part of one rule.
type RuleResult struct {
	Name         string `json:"name"`
	OverAdmitted int64  `json:"over_admitted"` // requests
	Worst        Worst  `json:"worst"`
	Matched      bool   `json:"matched"` // some request met the rule
}

// A Worst is the largest excess of one key: the units beyond what its limit grants, in its window or, of a bucket, in
// any time.
type Worst struct {
	Units int64         `json:"units"`
	Limit string        `json:"limit,omitempty"`
	Key   string        `json:"key,omitempty"`
	At    time.Duration `json:"at_ns,omitempty"`
}

// A Second counts requests of one second: Offered and Exact by their arrival, the others by their decision.
type Second struct {
	Offered  int64 `json:"offered"`
	Exact    int64 `json:"exact"`
	Admitted int64 `json:"admitted"`
	Over     int64 `json:"over"`
	Failed   int64 `json:"failed"`
}

func newResult(c *Config, set *rules.Set) *Result {
	r := &Result{
		Seconds: make([]Second, (c.Duration+time.Second-1)/time.Second), byRule: make(map[*rules.Rule]*RuleResult),
		latencies: make(map[time.Duration]int64),
	}
	for _, rule := range set.Rules() {
		r.byRule[rule] = &RuleResult{Name: rule.Name()}
		if rule.Enabled() && rule.Mode() == rules.Enforce {
			r.Rules = append(r.Rules, r.byRule[rule])
		}
	}
	return r
}

// second is that of a time; what is decided after the end belongs to the last one.
func (r *Result) second(at time.Duration) *Second {
	return &r.Seconds[min(int(at/time.Second), len(r.Seconds)-1)]
}

func (r *Result) rule(rule *rules.Rule) *RuleResult {
	one := r.byRule[rule]
	one.Matched = true
	return one
}

// finish computes the sums.
func (r *run) finish() {
	for _, s := range r.result.Seconds {
		r.result.Requests += s.Offered
		r.result.Exact += s.Exact
		r.result.Admitted += s.Admitted
		r.result.OverAdmitted += s.Over
		r.result.Failed += s.Failed
	}
	all := slices.Sorted(maps.Keys(r.result.latencies))
	if len(all) == 0 {
		return
	}
	at := func(share float64) int64 {
		seen := int64(0)
		for _, d := range all {
			if seen += r.result.latencies[d]; float64(seen) >= share*float64(r.result.Requests) {
				return d.Microseconds()
			}
		}
		return all[len(all)-1].Microseconds()
	}
	r.result.Latency = Percentiles{P50: at(0.5), P99: at(0.99), Max: all[len(all)-1].Microseconds()}
}
