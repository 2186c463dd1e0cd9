package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Difference compares a rule with its candidate over the identical requests of one Decide.
type Difference struct {
	Rule            *rules.Rule
	Key             string // the rule's; valid until the next Decide
	Times           int64  // requests that both decided
	Live, Candidate int64  // requests that each granted
}

// Parts splits the requests into requests that both grant, that only the candidate refuses, that only the candidate
// grants, and that both refuse.
func (d *Difference) Parts() (both, refused, granted, neither int64) {
	both = min(d.Live, d.Candidate)
	return both, d.Live - both, d.Candidate - both, d.Times - max(d.Live, d.Candidate)
}

// Differences are the results of the candidates of the request's rules. A verdict of the zero Ask has no differences.
func (v *Verdict) Differences() []Difference { return v.differences }

// comparable is the number of requests that a candidate can decide in place of its rule, which has the ith claim as its
// first: all requests that the other limits grant, since other requests are refused in either case and charged nowhere.
// A key with an override keeps its limits, and a ban follows from other refusals than the candidate's.
func (v *Verdict) comparable(i int, asked int64) int64 {
	rule := v.about[i].rule
	if v.claims[i].Limit != rule.Limits()[0] || v.about[i].repeated {
		return 0
	}
	if v.Granted == asked || v.others {
		return v.Granted
	}
	for j := range v.enforced {
		a := &v.about[j]
		if own := a.rule == rule && !a.ban; !own && !a.repeated && v.decisions[j].RetryAfter != 0 {
			return v.Granted
		}
	}
	return asked
}

// followCandidate makes the claims of the candidate of the rule that has the ith claim as its first.
func (v *Verdict) followCandidate(r *rules.Request, i int, ask *Ask) {
	rule, class, key, cost := v.about[i].rule, v.about[i].class, v.claims[i].Key, v.costFrom(i)
	c := rule.Candidate()
	f := follower{rule: rule, live: i, from: len(v.claims), to: len(v.claims)}
	if c.Keyed() {
		start := len(v.keys)
		own, keyed := c.AppendKey(v.keys, r)
		if v.keys = own; !keyed {
			v.keys = own[:start]
			f.why = withoutKey
			v.followers = append(v.followers, f)
			return
		}
		key = unsafe.String(&v.keys[start], len(v.keys)-start)
	}
	claim := weir.Claim{Key: key, Cost: cost}
	for _, limit := range c.Limits() {
		v.addLimit(rule, r, class, &claim, limit)
		v.about[len(v.about)-1].candidate = true
	}
	f.to = len(v.claims)
	v.hold(f.from, ask)
	v.followers = append(v.followers, f)
}

// costFrom is the cost of a rule by its claims from the ith on. Claims on concurrency limits may cost less than others.
func (v *Verdict) costFrom(i int) (cost int64) {
	for j := i; j < v.enforced && v.about[j].rule == v.about[i].rule; j++ {
		cost = max(cost, v.claims[j].Cost)
	}
	return cost
}

// recordCandidate records the result of a candidate beside the result of its rule.
func (g *Gate) recordCandidate(ask *Ask, v *Verdict, f *follower) {
	times := v.asks(f, ask)
	if f.err != nil || times == 0 {
		return
	}
	granted := f.granted
	if f.why == withoutKey {
		granted = times * int64(unkeyed(f.rule))
	}
	d := Difference{Rule: f.rule, Key: v.claims[f.live].Key, Times: times, Live: min(v.Granted, times),
		Candidate: granted}
	v.differences = append(v.differences, d)
	if t := (*g.tallies.Load())[f.rule]; t != nil {
		t.note(&d)
	}
}

// unkeyed is how many of one request a rule without a key grants: 0 if on_missing is deny; otherwise the rule would not
// apply.
func unkeyed(rule *rules.Rule) int {
	if rule.OnMissing() == rules.Deny {
		return 0
	}
	return 1
}

// A Comparison counts the requests of this gate that a rule's candidate decided otherwise, since the rule and its
// candidate were last changed.
type Comparison struct {
	Rule  *rules.Rule
	Since time.Time

	BothGrant    int64
	NewlyRefused int64 // the rule granted them, the candidate would not
	NewlyGranted int64 // the rule refused them, the candidate would not
	BothRefuse   int64

	// The keys with the largest counts, at most 100 each, in descending order.
	Refused, Granted []Changed
}

// Changed is the number of requests of one key that get another answer from the candidate.
type Changed struct {
	Key   string
	Count int64
	Over  int64 // upper bound of the error in Count: the count of the key that this one displaced
}

// Compare returns the comparison of a rule's candidate; ok is false if no rule in force has this name and a
// candidate.
func (g *Gate) Compare(name string) (c Comparison, ok bool) {
	for rule, t := range *g.tallies.Load() {
		if rule.Name() == name {
			return t.comparison(rule), true
		}
	}
	return c, false
}

// A tally counts the comparison of one candidate.
type tally struct {
	text                            string // identifies the limits and keys that are compared
	since                           time.Time
	both, refused, granted, neither atomic.Int64
	newlyRefused, newlyGranted      ranking
}

// tallies are the tallies of the rules in force. A tally goes on if neither its rule nor the candidate has changed.
func tallies(set *rules.Set, before map[*rules.Rule]*tally, now time.Time) map[*rules.Rule]*tally {
	known, list := make(map[string]*tally, len(before)), make(map[*rules.Rule]*tally)
	for rule, t := range before {
		known[rule.Name()] = t
	}
	for _, rule := range set.Rules() {
		if rule.Candidate() == nil {
			continue
		}
		c := rule.Candidate()
		text := fmt.Sprintf("%v %q %v %q", rule.Limits(), rule.Components(), c.Limits(), c.Components())
		t := known[rule.Name()]
		if t == nil || t.text != text {
			t = &tally{text: text, since: now}
		}
		list[rule] = t
	}
	return list
}

func (t *tally) note(d *Difference) {
	both, refused, granted, neither := d.Parts()
	t.both.Add(both)
	t.neither.Add(neither)
	if refused > 0 {
		t.refused.Add(refused)
		t.newlyRefused.add(d.Key, refused)
	}
	if granted > 0 {
		t.granted.Add(granted)
		t.newlyGranted.add(d.Key, granted)
	}
}

func (t *tally) comparison(rule *rules.Rule) Comparison {
	return Comparison{Rule: rule, Since: t.since, BothGrant: t.both.Load(), NewlyRefused: t.refused.Load(),
		NewlyGranted: t.granted.Load(), BothRefuse: t.neither.Load(),
		Refused: t.newlyRefused.list(), Granted: t.newlyGranted.list()}
}

// maxRanked is the number of keys in a ranking.
const maxRanked = 100

// A ranking holds roughly the most frequent keys in bounded memory, by the algorithm Space-Saving (Metwally,
// Agrawal, El Abbadi 2005): a new key takes over the place and the count of the least frequent one.
type ranking struct {
	mu   sync.Mutex
	keys []Changed
}

func (r *ranking) add(key string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := 0
	for i := range r.keys {
		if r.keys[i].Key == key {
			r.keys[i].Count += n
			return
		}
		if r.keys[i].Count < r.keys[last].Count {
			last = i
		}
	}
	key = strings.Clone(key)
	if len(r.keys) < maxRanked {
		r.keys = append(r.keys, Changed{Key: key, Count: n})
		return
	}
	before := r.keys[last].Count
	r.keys[last] = Changed{Key: key, Count: before + n, Over: before}
}

func (r *ranking) list() []Changed {
	r.mu.Lock()
	list := slices.Clone(r.keys)
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b Changed) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return list
}
