package gate

import (
	"context"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A request that has an id, by a rule with once or by Ask.ID, is charged once: see weir.Once. If the store finds the
// id, the request is decided again without the charges that the id stands for: other rules decide and charge it as
// ever.

// A guard is the claim of an id, and the claims that it stands with.
type guard struct {
	rule     *rules.Rule // nil: the id is Ask.ID, and stands with all claims before it
	from, to int         // the claims, by their places in the verdict
	once     int         // the claim of the id
	state    idState
	used     bool // the last call found that it was repeated as often as the rule allows
}

// An idState says whether the store has seen an id.
type idState uint8

const (
	unknown idState = iota // the request is decided with the id
	found                  // the id was granted before: its claims are left out
	settled                // no more is done: it was repeated too often, or the id of the Ask was found, too
)

// identify adds the claim of an id that stands with the claims from a place on.
func (v *Verdict) identify(rule *rules.Rule, from int, id string, keep time.Duration) error {
	once, err := weir.Once(v.claims[from:], id, keep)
	if err != nil {
		return err
	}
	place := len(v.claims)
	v.guards = append(v.guards, guard{rule: rule, from: from, to: place, once: place})
	v.add(rule, once)
	v.about[place].aside = true
	return nil
}

// addLimits adds a rule's claims, each with the floor of the request's class, and the claim of the request's id if it
// has one.
func (v *Verdict) addLimits(
	rule *rules.Rule, r *rules.Request, ask *Ask, claim weir.Claim, limits []*weir.Limit,
) error {
	from, class := len(v.claims), rule.ClassOf(r)
	for _, limit := range limits {
		v.addLimit(rule, r, class, &claim, limit)
	}
	if err := v.slots(from, rule, r, ask); err != nil {
		return err
	}
	ids := rule.IDs()
	if ids == nil || ask.Times != 1 {
		return nil
	}
	id := ids.Of(r)
	if id == "" {
		return nil
	}
	return v.identify(rule, from, id, ids.Keep)
}

// identifyAsk adds the claim of Ask.ID.
func (v *Verdict) identifyAsk(ask *Ask) error {
	switch {
	case ask.ID == "" || ask.Times == 0 || len(v.claims) == 0:
		return nil
	case ask.Times > 1:
		return &weir.InputError{Field: "times", Given: ask.Times, Allowed: "0 or 1 with an id"}
	}
	return v.identify(nil, 0, ask.ID, ask.Keep)
}

// A part is the claims of a verdict that one call decides.
type part struct {
	claims    []weir.Claim
	decisions []weir.Decision
	from      int   // the place of the first in the verdict
	places    []int // nil: they are adjacent. A place below 0 is a count of repetitions: −1 − the index of its guard
}

// part returns the claims of the verdict between two places.
func (v *Verdict) part(from, to int) part {
	return part{claims: v.claims[from:to], decisions: v.decisions[from:to], from: from}
}

func (p *part) place(j int) int {
	if p.places == nil {
		return p.from + j
	}
	return p.places[j]
}

// has reports whether the claim at a place of the verdict is in the part.
func (p *part) has(place int) bool {
	if p.places == nil {
		return p.from <= place && place < p.from+len(p.claims)
	}
	return slices.Contains(p.places, place)
}

// scatter copies the decisions to the verdict.
func (p *part) scatter(v *Verdict) {
	for j, place := range p.places {
		if place >= 0 {
			v.decisions[place] = p.decisions[j]
		} else {
			v.guards[-1-place].used = p.decisions[j].RetryAfter != 0
		}
	}
}

// complete decides the requests that one call cannot decide: requests with an id that the store has found, and rules
// with charge: full.
func (g *Gate) complete(
	ctx context.Context, by weir.Store, v *Verdict, call part, times, granted int64,
) (int64, error) {
	if granted >= times || !v.full && len(v.guards) == 0 {
		return granted, nil
	}
	whole, lowered := call, !v.full
	for granted < times {
		var err error
		switch {
		case v.recognise(&whole):
			if v.twice >= 0 && whole.has(v.guards[v.twice].once) {
				return 0, nil
			}
			if call = v.rest(&whole); len(call.claims) == 0 {
				return times, nil
			}
			lowered = !v.full
			granted, err = by.Decide(ctx, call.claims, times, call.decisions)
		case !lowered: // then an id may be found that an equal request has left meanwhile
			lowered = true
			full := func(j int) bool { return call.place(j) >= 0 && v.chargesFull(call.place(j)) }
			granted, err = g.chargeFull(ctx, by, v, call.claims, full, times, granted, call.decisions)
		default:
			return granted, nil
		}
		if err != nil {
			return granted, err
		}
		call.scatter(v)
	}
	return granted, nil
}

// recognise reports whether the last call has found ids, or that one was repeated too often.
func (v *Verdict) recognise(whole *part) (news bool) {
	for i := range v.guards {
		u := &v.guards[i]
		switch {
		case !whole.has(u.once):
		case u.state == unknown && v.decisions[u.once].RetryAfter != 0:
			u.state, news = found, true
			v.leaveOut(u)
			if u.rule != nil && u.rule.IDs().Repeats == nil {
				v.twice = i
			}
		case u.state == found && u.used:
			u.state, news = settled, true
			for j := u.from; j < u.to; j++ {
				v.about[j].repeated = false
			}
		}
	}
	return news
}

// refuseTwice is the outcome of a request that a rule refuses as a repetition. RetryAfter is when its id ends.
func (v *Verdict) refuseTwice() {
	u := &v.guards[v.twice]
	v.Outcome, v.Reason, v.Rule, v.worst = Refused, Repeated, u.rule, u.from
	d, id := &v.decisions[u.from], &v.decisions[u.once]
	d.RetryAfter, d.ResetAfter = max(d.RetryAfter, id.RetryAfter), max(d.ResetAfter, id.ResetAfter)
}

// leaveOut notes that claims are not charged: they need not be given back. Beside an id of Ask, no claim is charged,
// and the ids that rules read neither refuse nor count the repetition.
func (v *Verdict) leaveOut(u *guard) {
	last := u.once
	if u.rule == nil {
		last, v.twice = v.enforced-1, -1
		for i := range v.guards {
			if of := &v.guards[i]; of.once < u.once {
				of.state = settled
			}
		}
	}
	for j := u.from; j <= last; j++ {
		v.about[j].repeated = !v.about[j].ban
	}
}

// forgetIDs lets another store decide from the start.
func (v *Verdict) forgetIDs() {
	for i := range v.guards {
		v.guards[i].state, v.guards[i].used, v.twice = unknown, false, -1
		for j := range v.about {
			v.about[j].repeated = false
		}
	}
}

// rest returns the claims that are decided again: the claims that no found id stands for, and for each found id of a
// rule one that counts its repetitions. The id of an Ask stands for all claims but bans, so without a ban in force the
// rest is empty.
func (v *Verdict) rest(whole *part) (call part) {
	call.places = []int{}
	charged := false
	for j := range whole.claims {
		if place := whole.place(j); !v.about[place].repeated {
			call.claims, call.places = append(call.claims, whole.claims[j]), append(call.places, place)
			charged = charged || !v.about[place].ban || v.decisions[place].RetryAfter != 0
		}
	}
	for i := range v.guards {
		u := &v.guards[i]
		if u.rule == nil || u.state != found || !whole.has(u.once) {
			continue
		}
		count := weir.Claim{Key: v.claims[u.once].Key, Limit: u.rule.IDs().Repeats, Cost: 1}
		call.claims, call.places, charged = append(call.claims, count), append(call.places, -1-i), true
	}
	if !charged {
		return part{}
	}
	call.decisions = make([]weir.Decision, len(call.claims))
	return call
}
