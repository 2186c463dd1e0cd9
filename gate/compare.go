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

// A Difference is what a rule's candidate said of the identical requests of one Decide, and
// what became of them by the rule.
type Difference struct {
	Rule            *rules.Rule
	Key             string // the rule's; gone with the next Decide
	Times           int64  // how many requests both were asked about
	Live, Candidate int64  // how many of them they grant
}

// Parts are how many of the requests both grant, only the rule, only the candidate, and
// neither.
func (d *Difference) Parts() (both, refused, granted, neither int64) {
	both = min(d.Live, d.Candidate)
	return both, d.Live - both, d.Candidate - both, d.Times - max(d.Live, d.Candidate)
}

// Differences are what the candidates of the request's rules said. A look has none.
func (v *Verdict) Differences() []Difference { return v.differences }

// comparable reports whether a candidate can be asked in the place of the rule whose first
// claim is the ith, and about how many of the requests: those that all other limits grant.
// What they refuse is refused in either case, and charged nowhere. A key with an override
// keeps its limits, and a ban is of other refusals than the candidate's.
func (v *Verdict) comparable(i int, asked int64) (times int64, ok bool) {
	rule := v.about[i].rule
	if v.claims[i].Limit != rule.Limits()[0] {
		return 0, false
	}
	if asked == 0 || v.Granted == asked {
		return asked, true
	}
	for j := range v.enforced {
		a := &v.about[j]
		if own := a.rule == rule && !a.ban; !own && v.decisions[j].RetryAfter != 0 {
			return v.Granted, v.Granted > 0
		}
	}
	return asked, true
}

// followCandidate makes the claims of the candidate of the rule whose first claim is the ith.
func (v *Verdict) followCandidate(r *rules.Request, i int, ask *Ask) {
	rule, key, cost := v.about[i].rule, v.claims[i].Key, v.claims[i].Cost
	c := rule.Candidate()
	f := follower{rule: rule, live: i, from: len(v.claims), to: len(v.claims)}
	if c.Keyed() {
		start := len(v.keys)
		own, keyed := c.AppendKey(v.keys, r)
		if v.keys = own; !keyed {
			v.keys = own[:start]
			f.why = Unkeyed
			v.followers = append(v.followers, f)
			return
		}
		key = unsafe.String(&v.keys[start], len(v.keys)-start)
	}
	for _, limit := range c.Limits() {
		v.add(rule, weir.Claim{Key: key, Limit: limit, Cost: cost})
		v.about[len(v.about)-1].candidate = true
	}
	f.to = len(v.claims)
	v.hold(f.from, ask)
	v.followers = append(v.followers, f)
}

// tellCandidate notes what a candidate says beside its rule.
func (g *Gate) tellCandidate(ask *Ask, v *Verdict, f *follower) {
	times := v.asks(f, ask)
	if f.err != nil || times == 0 {
		return
	}
	granted := f.granted
	if f.why == Unkeyed {
		granted = times * int64(unkeyed(f.rule))
	}
	d := Difference{Rule: f.rule, Key: v.claims[f.live].Key, Times: times, Live: min(v.Granted, times), Candidate: granted}
	v.differences = append(v.differences, d)
	if t := (*g.trials.Load())[f.rule]; t != nil {
		t.note(&d)
	}
}

// unkeyed is how many of one request a rule grants that has no key: where on_missing is deny
// none, else it would not apply.
func unkeyed(rule *rules.Rule) int {
	if rule.OnMissing() == rules.Deny {
		return 0
	}
	return 1
}

// A Comparison is what a rule's candidate would change, since the rule and its candidate are
// as they are: of the requests that this gate decided.
type Comparison struct {
	Rule  *rules.Rule
	Since time.Time

	BothGrant    int64
	NewlyRefused int64 // the rule granted them, the candidate would not
	NewlyGranted int64 // the rule refused them, the candidate would not
	BothRefuse   int64

	// The keys with the most of them, at most 100 each, the most first.
	Refused, Granted []Changed
}

// Changed is for how many requests of one key the candidate would change the answer.
type Changed struct {
	Key   string
	Count int64
	Over  int64 // by so many Count may be too large: it was the list's last key's before
}

// Compare is what the candidate of a rule in force would change; ok is false where there is
// no such rule, or it has none.
func (g *Gate) Compare(name string) (c Comparison, ok bool) {
	for rule, t := range *g.trials.Load() {
		if rule.Name() == name {
			return t.comparison(rule), true
		}
	}
	return c, false
}

// A trial counts what one candidate would change.
type trial struct {
	text                            string // of the limits and keys that are compared
	since                           time.Time
	both, refused, granted, neither atomic.Int64
	newlyRefused, newlyGranted      ranking
}

// trials are those of the rules in force. One goes on where neither the rule nor the
// candidate is changed.
func trials(set *rules.Set, before map[*rules.Rule]*trial, now time.Time) map[*rules.Rule]*trial {
	known, list := make(map[string]*trial, len(before)), make(map[*rules.Rule]*trial)
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
			t = &trial{text: text, since: now}
		}
		list[rule] = t
	}
	return list
}

func (t *trial) note(d *Difference) {
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

func (t *trial) comparison(rule *rules.Rule) Comparison {
	return Comparison{Rule: rule, Since: t.since, BothGrant: t.both.Load(), NewlyRefused: t.refused.Load(),
		NewlyGranted: t.granted.Load(), BothRefuse: t.neither.Load(), Refused: t.newlyRefused.list(), Granted: t.newlyGranted.list()}
}

// maxRanked is how many keys a ranking has.
const maxRanked = 100

// A ranking is about the keys that came most often, in bounded memory whatever they are: the
// algorithm Space-Saving (Metwally, Agrawal, El Abbadi 2005). A new key takes the place and
// the count of the last.
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
	slices.SortFunc(list, func(a, b Changed) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return list
}
