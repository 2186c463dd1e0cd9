package alert

import (
	"fmt"
	"maps"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// A Reading is the state of a server at one time. Counts are those since its start.
type Reading struct {
	// Rules calls each with the passed and refused requests of each rule.
	Rules    func(each func(rule string, passed, refused uint64))
	Degraded uint64        // decisions without the store
	Store    tally.Buckets // latencies of store calls
	Steps    int64         // of the clock of Redis, by more than a second
	Sources  []Source      // that are not as they should be
	Keys     []TopKey      // the most refused key of each rule in the last minutes
	Limits   []Use         // of limits that all requests of a rule share
}

// A Source is a rule source, and what is wrong with it.
type Source struct {
	Name string
	Down bool // it cannot be read; otherwise it has mistakes
}

// A TopKey is a key, and its part of the refusals of a rule.
type TopKey struct {
	Rule, Key string
	Refused   uint64
	Share     float64
}

// A Use is the used share of a limit.
type Use struct {
	Rule, Limit string
	Share       float64
}

// A condition is what an alert is about, at one evaluation.
type condition struct {
	telemetry.Alert
	// raises: the alert is raised after confirm evaluations in a row. holds: a raised alert is not resolved.
	raises, holds bool
	confirm       int // 0 is 1
}

// easing is the part of a threshold below which a raised alert may be resolved.
const easing = 0.8

// evaluate returns the conditions that hold, or nearly.
func (w *watch) evaluate(r *Reading, now time.Time) (list []condition) {
	list = append(w.rejects(), w.keys(r, now)...)
	list = append(list, w.store(r)...)
	for _, u := range r.Limits {
		if s := w.NearLimit; s > 0 && u.Share >= s*easing {
			c := condition{raises: u.Share >= s, holds: true, confirm: 2}
			c.Alert = telemetry.Alert{Name: "near_limit", Rule: u.Rule, Value: u.Share, Limit: s, What: u.Limit}
			c.Text = fmt.Sprintf("rule %s has used %.0f %% of its limit %s, which all its requests share", u.Rule,
				100*u.Share, u.Limit)
			list = append(list, c)
		}
	}
	for _, s := range r.Sources {
		if w.SourceBad {
			c := condition{raises: true, holds: true, confirm: 2}
			c.Alert = telemetry.Alert{Name: "source_bad", Key: s.Name, Value: 1, Limit: 1, What: "mistakes"}
			problem := "it has mistakes, which weir check or /readyz lists"
			if s.Down {
				c.What, problem = "unread", "it cannot be read"
			}
			c.Text = fmt.Sprintf("rule source %s is not in force as it is: %s", s.Name, problem)
			list = append(list, c)
		}
	}
	return list
}

// A traffic is the recent requests of a rule: passed and refused.
type traffic struct {
	last  [2]uint64   // counts at the last evaluation
	steps [][2]uint64 // between evaluations, a ring; nil: none in the window
	turn  int         // of the last evaluation
}

// recently is the number of evaluations that show the end of a condition. The window remembers a storm for
// long after its end.
const recently = 3

// A Sum is the passed and refused requests of a rule in the window, and in its last evaluations.
type Sum struct{ All, Recent [2]uint64 }

func (s Sum) plus(other Sum) Sum {
	for i := range s.All {
		s.All[i] += other.All[i]
		s.Recent[i] += other.Recent[i]
	}
	return s
}

// share is the refused share of requests, and their number.
func share(of [2]uint64) (float64, uint64) {
	total := of[0] + of[1]
	return float64(of[1]) / float64(max(total, 1)), total
}

// rejects compares the refused share of each rule with the threshold: by the sum of all nodes, on the one of them that
// has those of the others.
func (w *watch) rejects() (list []condition) {
	if w.RejectShare == 0 {
		return nil
	}
	if w.others == nil && !w.alone {
		return nil
	}
	sums := maps.Clone(w.own)
	for _, node := range w.others {
		for rule, s := range node {
			sums[rule] = sums[rule].plus(s)
		}
	}
	for rule, s := range sums {
		list = append(list, w.rejected(rule, s))
	}
	return list
}

// count adds the requests to this node since the last evaluation.
func (w *watch) count(r *Reading) {
	w.turn++
	w.own = make(map[string]Sum)
	if w.RejectShare == 0 {
		return
	}
	r.Rules(func(rule string, passed, refused uint64) {
		t := w.rules[rule]
		if t == nil {
			if passed+refused == 0 {
				return
			}
			t = new(traffic)
			w.rules[rule] = t
		}
		if t.step([2]uint64{passed, refused}, w.turn, int(w.Window/every)); t.steps != nil {
			w.own[rule] = Sum{t.sum(len(t.steps)), t.sum(min(recently, len(t.steps)))}
		}
	})
	for rule, t := range w.rules {
		if t.turn != w.turn { // it is no longer in force
			delete(w.rules, rule)
		}
	}
}

// step adds the requests since the last evaluation.
func (t *traffic) step(counts [2]uint64, turn, window int) {
	step := counts
	if counts[0] >= t.last[0] && counts[1] >= t.last[1] { // otherwise the rule is another one of the same name
		step = [2]uint64{counts[0] - t.last[0], counts[1] - t.last[1]}
	}
	t.last, t.turn = counts, turn
	if t.steps == nil {
		if step == [2]uint64{} {
			return
		}
		t.steps = make([][2]uint64, window)
	}
	t.steps[turn%window] = step
	if t.sum(window) == [2]uint64{} {
		t.steps = nil
	}
}

// sum is the requests in the last n steps.
func (t *traffic) sum(n int) (sum [2]uint64) {
	for i := range n {
		step := t.steps[(t.turn-i+len(t.steps))%len(t.steps)]
		sum[0] += step[0]
		sum[1] += step[1]
	}
	return sum
}

func (w *watch) rejected(rule string, s Sum) (c condition) {
	refused, total := share(s.All)
	now, few := share(s.Recent)
	c.holds = now >= w.RejectShare*easing && few >= uint64(max(1, w.Minimum*recently/int64(w.Window/every)))
	c.raises = c.holds && refused > w.RejectShare && total >= uint64(w.Minimum)
	c.Alert = telemetry.Alert{Name: "reject_share", Rule: rule, Value: refused, Limit: w.RejectShare, Total: total,
		Window: w.Window}
	c.Text = fmt.Sprintf("rule %s refused %.1f %% of %d requests in the last %v, more than %.4g %%", rule, 100*refused,
		total, w.Window, 100*w.RejectShare)
	if !w.alone { // the counts of other nodes are up to five seconds older than one's own
		c.confirm = 2
	}
	if c.Alone = w.apart; c.Alone {
		c.Text += " (on this node alone: Redis does not answer)"
	}
	return c
}

// forget is how long a key that was on top is no new one.
const forget = time.Hour

// maxTops bounds the keys that were on top.
const maxTops = 10_000

// keys finds keys that have a large share of a rule's refusals, and had none in the last hour.
func (w *watch) keys(r *Reading, now time.Time) (list []condition) {
	for _, k := range r.Keys {
		if w.NewTopKey == 0 || k.Refused < uint64(w.Minimum) || k.Share < w.NewTopKey*easing {
			continue
		}
		id := [2]string{k.Rule, k.Key}
		seen, known := w.tops[id]
		c := condition{raises: k.Share >= w.NewTopKey && (!known || now.Sub(seen) > forget), holds: true}
		c.Alert = telemetry.Alert{Name: "new_top_key", Rule: k.Rule, Key: k.Key, Value: k.Share, Limit: w.NewTopKey,
			Total: k.Refused}
		c.Text = fmt.Sprintf("one key has %.0f %% of the refusals of rule %s: %.200q", 100*k.Share, k.Rule, k.Key)
		if k.Share >= w.NewTopKey && (known || len(w.tops) < maxTops) {
			w.tops[id] = now
		}
		list = append(list, c)
	}
	for id, seen := range w.tops {
		if now.Sub(seen) > forget {
			delete(w.tops, id)
		}
	}
	return list
}

// store finds a store that is slow or does not respond.
func (w *watch) store(r *Reading) (list []condition) {
	if n := r.Degraded - w.degraded; w.Degraded && n > 0 {
		c := condition{raises: true, holds: true, confirm: 2}
		c.Alert = telemetry.Alert{Name: "degraded", Value: float64(n), Window: every}
		c.Text = fmt.Sprintf("store is not responding: %d requests in the last %v were decided by on_store_error", n,
			every)
		list = append(list, c)
	}
	w.degraded = r.Degraded
	if n := r.Steps - w.clock; w.ClockStep && n > 0 {
		c := condition{raises: true, holds: true}
		c.Alert = telemetry.Alert{Name: "clock_step", Value: float64(n)}
		c.Text = "the clock of Redis stepped by more than a second: limits count by it; set it right by slewing (NTP)"
		list = append(list, c)
	}
	w.clock = r.Steps
	w.calls = append(w.calls, r.Store)
	if len(w.calls) <= recently {
		return list
	}
	calls := r.Store.Minus(w.calls[0])
	w.calls = w.calls[1:]
	p99 := calls.Quantile(0.99)
	if limit := w.StoreSlow; limit > 0 && calls.Total() >= uint64(w.Minimum) && p99 >= limit*4/5 {
		c := condition{raises: p99 > limit, holds: true, confirm: 2}
		c.Alert = telemetry.Alert{Name: "store_slow", Value: p99.Seconds(), Limit: limit.Seconds(),
			Total: calls.Total(), Window: recently * every}
		c.Text = fmt.Sprintf("store is slow: 1 %% of the calls in the last %v took longer than %v", recently*every,
			p99.Round(100*time.Microsecond))
		list = append(list, c)
	}
	return list
}
