package telemetry

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// Options are the settings of a Recorder.
type Options struct {
	Node    string
	Metrics *observe.Metrics // whose exact counters it reads
	// Hide returns the text for a key in samples and records; nil: keys are shown.
	Hide func(key string) string
	Now  func() time.Time // nil: time.Now
	// Reserved returns the units of each rule that wait to be settled: see gate.Gate.Reserved; nil: none. It may be set
	// until Run.
	Reserved func() map[string]int64
}

// A Recorder observes verdicts. Its memory is bounded: about 110 MB with 256 rules that each have more keys than it
// counts, 2 MB and 0.25 MB for each rule that has a few hundred. It is safe for concurrent use.
//
// Of the first 256 rules with a key that are used, it counts the requests of each key, up to 4096 keys (1024 from the
// 25th rule on); if there are more, of a random sample of them, and of frequent ones: 1/500 of the rule's
// requests. A rule with more requests takes the place of the one with the fewest. It draws up to 20,000 decisions a
// second as samples, half of them not passed.
type Recorder struct {
	Options
	hash     hasher
	watching atomic.Pointer[[]place]
	full     atomic.Bool // no more rules can be watched
	passes   *tap
	others   *tap // of what did not pass, so that a flood of either does not hide the other
	names    *tap
	live     live

	mu            sync.Mutex // guards the statistics, and is never held while a decision waits
	watched       []*watched
	before        map[*tally.Rule]counted
	refusedBefore map[string]map[string]uint64 // by rule and class
	cut           time.Time
	total         tally.Counts
	took          tally.Buckets
}

// A place has the statistics of a rule, at its index in the rule set.
type place struct {
	rule  *rules.Rule
	keyed bool
	table atomic.Pointer[table] // nil: its keys are not watched
}

// New returns a recorder, which begins with Run.
func New(o Options) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Recorder{Options: o, hash: newHasher(rand.Uint64()), passes: newTap(), others: newTap(), names: newTap(),
		before: make(map[*tally.Rule]counted), cut: o.Now()}
	r.watching.Store(new([]place))
	r.read()
	return r
}

// Run empties the taps until ctx is done.
func (r *Recorder) Run(ctx context.Context) {
	for {
		now := r.Now()
		timer := time.NewTimer(now.Truncate(tick).Add(tick).Sub(now)) // windows end at whole seconds
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			r.mu.Lock()
			r.tick(r.Now())
			r.mu.Unlock()
		}
	}
}

// Rules prepares for a rule set. Call it after the gate has the set and before the metrics have it: counts of removed
// rules are read once more. Statistics of keys go on for rules of the same name and key.
func (r *Recorder) Rules(set *rules.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Metrics.Read(func(name string, n *tally.Rule) {
		if _, known := r.before[n]; !known && n.Any() {
			r.before[n] = counted{name: name}
		}
	})
	before := make(map[string]*watched, len(r.watched))
	for _, w := range r.watched {
		before[identity(w.rule)] = w
	}
	places := make([]place, len(set.Rules()))
	r.watched = nil
	for i, rule := range set.Rules() {
		p := &places[i]
		p.rule, p.keyed = rule, len(rule.Components()) > 0
		if w := before[identity(rule)]; w != nil {
			w.follow(rule, p)
			r.watched = append(r.watched, w)
		}
	}
	r.full.Store(len(r.watched) >= maxWatched)
	r.watching.Store(&places)
}

// Observer returns an observer for gate.WithObserver that counts verdicts in the metrics and records them. It does not
// allocate, but for the first request of a rule, and never waits.
func (r *Recorder) Observer() func(*gate.Verdict) { return r.Metrics.VerdictTo(r.verdict) }

func (r *Recorder) verdict(v *gate.Verdict, noise uint64) {
	switch {
	case v.Times == 0: // it asked, and charged nothing
	case v.Outcome == gate.Passed:
		r.passed(v, noise)
	default:
		r.stopped(v, noise)
	}
}

// passed records a granted request for each of its rules.
func (r *Recorder) passed(v *gate.Verdict, noise uint64) {
	if r.passes.draws(noise) {
		r.passedDrawn(v)
		return
	}
	for i := range v.Len() {
		if rule, claim, shadow, granted, ok := v.Counted(i); ok && rule != nil {
			r.key(rule, claim, v.Times, shadow && !granted)
			if rule.Metered() {
				r.charged(v, i, rule, claim.Key)
			}
		}
	}
}

// charged records the units of a check, unless they are an estimate.
func (r *Recorder) charged(v *gate.Verdict, i int, rule *rules.Rule, key string) {
	if units, estimated := v.Units(i); units > 0 && !estimated {
		r.spend(rule, key, units)
	}
}

// Counting counts the end of a charge in the metrics, and records its units for the key, as an observer for
// gate.WithCountObserver.
func (r *Recorder) Counting(c *gate.Counting) {
	r.Metrics.Counting(c)
	units := c.Units
	if !c.Estimated {
		units -= c.Estimate
	}
	if units != 0 && c.Rule != nil && c.Rule.Metered() {
		r.spend(c.Rule, c.Key, units)
	}
}

// spend records units that a key has spent. Of keys that are not counted, one is held from a request on with a
// probability that grows with its units, so that the biggest spenders are found however few their requests are: sample
// and hold (Estan, Varghese 2002).
func (r *Recorder) spend(rule *rules.Rule, key string, units int64) {
	places, i := *r.watching.Load(), rule.Index()
	if i >= len(places) || places[i].rule != rule || !places[i].keyed {
		return
	}
	t := places[i].table.Load()
	if t == nil || t.spent == nil {
		return
	}
	hash := r.hash.sum(key)
	if t.spend(hash, units) || units <= rand.Int64N(max(1, t.dear.Load())) {
		return
	}
	if e := r.names.begin(); e != nil {
		*e = event{keyed: keyed{watched: t.watch, hash: hash}, cost: units}
		e.key.set(key)
		r.names.end()
	}
}

// passedDrawn is passed for a request that is drawn. The rule that is nearest to refusing its key makes a sample. The
// other rules need one only for keys that are not counted.
func (r *Recorder) passedDrawn(v *gate.Verdict) {
	shown := r.nearest(v)
	for i := range v.Len() {
		rule, claim, shadow, granted, ok := v.Counted(i)
		if !ok || rule == nil {
			continue
		}
		k := r.key(rule, claim, v.Times, shadow && !granted)
		if rule.Metered() {
			r.charged(v, i, rule, claim.Key)
		}
		if i == shown || k.watched != nil && !k.counted {
			r.draw(r.passes, v, claim, &event{rule: rule, keyed: k, more: i != shown})
		}
	}
	if shown < 0 {
		r.draw(r.passes, v, nil, &event{})
	}
}

// nearest is the check of the limit that is nearest to its end; −1: no rule decided. Rules with a key come first:
// a sample of the others has no key.
func (r *Recorder) nearest(v *gate.Verdict) (at int) {
	at = -1
	least, keyed, places := math.Inf(1), false, *r.watching.Load()
	first := -1 // check of the rule, by which it is counted
	for i := range v.Len() {
		if rule, _, _, _, ok := v.Counted(i); ok && rule != nil {
			first = i
			if at < 0 {
				at = i
			}
		}
		check := v.At(i)
		if first < 0 || check.Rule == nil || check.Rule != v.At(first).Rule || check.Ban || !check.Decided {
			continue
		}
		left := float64(check.Decision.Remaining) / float64(max(1, check.Claim.Limit.Capacity()))
		index := check.Rule.Index()
		of := index < len(places) && places[index].rule == check.Rule && places[index].keyed
		if of && !keyed || of == keyed && left < least {
			at, least, keyed = first, left, of
		}
	}
	return at
}

// stopped records a request that did not pass for the rule that decided: the others were not charged.
func (r *Recorder) stopped(v *gate.Verdict, noise uint64) {
	drawn := r.others.draws(noise)
	if v.Reason == gate.LimitExceeded && !drawn {
		r.refused(v)
		return
	}
	c, limited := v.Worst()
	if !limited || c.Rule == nil {
		if drawn {
			r.draw(r.others, v, nil, &event{rule: v.Rule})
		}
		return
	}
	k := r.key(c.Rule, c.Claim, v.Times, true)
	if drawn {
		r.draw(r.others, v, c.Claim, &event{rule: c.Rule, keyed: k, wait: c.Decision.RetryAfter})
	}
}

// refused is stopped for nearly all requests: all limits of a rule have one key and one cost, and the first is found
// faster than the one that decided.
func (r *Recorder) refused(v *gate.Verdict) {
	for i := range v.Len() {
		if rule, claim, _, _, ok := v.Counted(i); ok && rule != nil && rule == v.Rule {
			r.key(rule, claim, v.Times, true)
			return
		}
	}
}

// key counts a request for its key.
func (r *Recorder) key(rule *rules.Rule, claim *weir.Claim, times int64, refused bool) (k keyed) {
	places, i := *r.watching.Load(), rule.Index()
	if i >= len(places) || places[i].rule != rule || !places[i].keyed {
		return k
	}
	t := places[i].table.Load()
	if t == nil {
		if t = r.watch(&places[i]); t == nil {
			return k
		}
	}
	hash, one := r.hash.sum(claim.Key), uint64(1)
	if refused {
		one = oneRefused
	}
	s := t.count(hash, one, claim.Cost*times)
	if s != nil && s.hash.Load()&isNamed == 0 {
		r.name(t.watch, s, hash, claim.Key)
	}
	return keyed{t.watch, hash, s != nil, refused}
}

// name passes the text of a key on; if it cannot, the next request of the key will.
func (r *Recorder) name(w *watched, s *slot, hash uint64, key string) {
	e := r.names.begin()
	if e == nil {
		return
	}
	*e = event{keyed: keyed{watched: w, hash: hash}}
	e.key.set(key)
	s.hash.Store(hash | isNamed)
	r.names.end()
}

// watch begins to watch the keys of a rule. It gives up where it would wait.
func (r *Recorder) watch(p *place) *table {
	if r.full.Load() || !r.mu.TryLock() {
		return nil
	}
	defer r.mu.Unlock()
	if t := p.table.Load(); t != nil || len(r.watched) >= maxWatched {
		return t
	}
	size, larges := small, 0
	for _, w := range r.watched {
		if w.scale == large {
			larges++
		}
	}
	if larges < maxLarge {
		size = large
	}
	w := newWatched(p, r.Metrics.Of(p.rule), size, r.Now().Unix())
	r.watched = append(r.watched, w)
	r.full.Store(len(r.watched) >= maxWatched)
	return w.table
}

// draw completes the event of a decision that was drawn, and puts a copy into a tap.
func (r *Recorder) draw(t *tap, v *gate.Verdict, claim *weir.Claim, base *event) {
	e := t.begin()
	if e == nil {
		return
	}
	base.at, base.outcome, base.reason, base.wait = r.Now(), v.Outcome, v.Reason, max(v.Delay, base.wait)
	*e = *base
	if claim != nil {
		e.cost = claim.Cost
		e.key.set(claim.Key)
	}
	e.id.set(v.RequestID())
	method, path := v.Target()
	e.client = v.Client
	e.target.set(method)
	e.target.add(" ")
	e.target.add(path)
	t.end()
}

// tick empties the taps, closes windows, and adapts the samples.
func (r *Recorder) tick(now time.Time) {
	names, _ := r.names.drain()
	for i := range names {
		e := &names[i]
		if e.cost > 0 {
			e.watched.hold(e.hash, plainKey(e.key.String()), e.cost)
			continue
		}
		if place, found := e.watched.table.find(e.hash); found {
			e.watched.at(place).key = plainKey(e.key.String())
		}
	}
	for _, t := range []*tap{r.passes, r.others} {
		events, weight := t.drain()
		for i := range events {
			r.take(&events[i], weight)
		}
	}
	for _, w := range r.watched {
		w.fold()
		w.promote()
		w.close(now.Unix())
		w.shrink()
	}
}

// take records a sample.
func (r *Recorder) take(e *event, weight float64) {
	if w := e.watched; w != nil && !e.counted {
		w.sketch(e, weight)
	}
	if !e.more {
		r.live.add(r.sample(e, weight))
	}
}

// identity is what statistics of keys depend on.
func identity(rule *rules.Rule) string {
	return rule.Name() + "\n" + strings.Join(rule.Components(), "\n")
}
