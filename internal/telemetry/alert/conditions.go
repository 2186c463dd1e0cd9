package alert

import (
	"fmt"
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
	Sources  []Source      // that are not as they should be
	Keys     []TopKey      // the most refused key of each rule in the last minutes
	Limits   []Use         // of limits that all requests of a rule share
}

// A Source is a rule source, and what is wrong with it.
type Source struct{ Name, Problem string }

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
	list = append(w.rejects(r), w.keys(r, now)...)
	list = append(list, w.store(r)...)
	for _, u := range r.Limits {
		if s := w.NearLimit; s > 0 && u.Share >= s*easing {
			c := condition{raises: u.Share >= s, holds: true, confirm: 2}
			c.Alert = telemetry.Alert{Name: "near_limit", Rule: u.Rule, Value: u.Share, Limit: s}
			c.Text = fmt.Sprintf("rule %s has used %.0f %% of its limit %s, which all its requests share", u.Rule,
				100*u.Share, u.Limit)
			list = append(list, c)
		}
	}
	for _, s := range r.Sources {
		if w.SourceBad {
			c := condition{raises: true, holds: true, confirm: 2}
			c.Alert = telemetry.Alert{Name: "source_bad", Key: s.Name, Value: 1, Limit: 1}
			c.Text = fmt.Sprintf("rule source %s is not in force as it is: %.300s", s.Name, s.Problem)
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

// rejects compares the refused share of each rule with the threshold.
func (w *watch) rejects(r *Reading) (list []condition) {
	if w.RejectShare == 0 {
		return nil
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
			list = append(list, w.rejected(rule, t))
		}
	})
	for rule, t := range w.rules {
		if t.turn != w.turn { // it is no longer in force
			delete(w.rules, rule)
		}
	}
	return list
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
	if _, total := t.share(window); total == 0 {
		t.steps = nil
	}
}

// share is the refused share of the requests in the last n steps, and their number.
func (t *traffic) share(n int) (share float64, total int64) {
	var sum [2]uint64
	for i := range n {
		step := t.steps[(t.turn-i+len(t.steps))%len(t.steps)]
		sum[0] += step[0]
		sum[1] += step[1]
	}
	total = int64(sum[0] + sum[1])
	return float64(sum[1]) / float64(max(total, 1)), total
}

func (w *watch) rejected(rule string, t *traffic) (c condition) {
	window := len(t.steps)
	share, total := t.share(window)
	now, few := t.share(min(recently, window))
	c.holds = now >= w.RejectShare*easing && few >= max(1, w.Minimum*recently/int64(window))
	c.raises = c.holds && share > w.RejectShare && total >= w.Minimum
	c.Alert = telemetry.Alert{Name: "reject_share", Rule: rule, Value: share, Limit: w.RejectShare}
	c.Text = fmt.Sprintf("rule %s refused %.1f %% of %d requests in the last %v, more than %.4g %%", rule, 100*share,
		total, w.Window, 100*w.RejectShare)
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
		c.Alert = telemetry.Alert{Name: "new_top_key", Rule: k.Rule, Key: k.Key, Value: k.Share, Limit: w.NewTopKey}
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
		c.Alert = telemetry.Alert{Name: "degraded", Value: float64(n)}
		c.Text = fmt.Sprintf("store is not responding: %d requests in the last %v were decided by on_store_error", n,
			every)
		list = append(list, c)
	}
	w.degraded = r.Degraded
	w.calls = append(w.calls, r.Store)
	if len(w.calls) <= recently {
		return list
	}
	calls := r.Store.Minus(w.calls[0])
	w.calls = w.calls[1:]
	p99 := calls.Quantile(0.99)
	if limit := w.StoreSlow; limit > 0 && calls.Total() >= uint64(w.Minimum) && p99 >= limit*4/5 {
		c := condition{raises: p99 > limit, holds: true, confirm: 2}
		c.Alert = telemetry.Alert{Name: "store_slow", Value: p99.Seconds(), Limit: limit.Seconds()}
		c.Text = fmt.Sprintf("store is slow: 1 %% of the calls in the last %v took longer than %v", recently*every,
			p99.Round(100*time.Microsecond))
		list = append(list, c)
	}
	return list
}
