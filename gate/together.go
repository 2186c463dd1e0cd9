package gate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Act is what DecideTogether does with a request.
type Act uint8

// The acts.
const (
	// Decided requests pass together, or not at all.
	Decided Act = iota
	// Charge charges the units whatever is left, and whatever becomes of the other requests.
	Charge
	// Refund gives units back, the last charged ones first, if the decided requests pass. Of a sliding log or
	// counter that is exceeded, and beyond its latest 32 charges, they stay charged.
	Refund
	// Quota requests are decided apart, each alone: of all of them one has to pass. The others of a call that passes
	// have the reason OtherGranted. Of several requests a decided one with a rule that has quota becomes one.
	Quota
	// alone is a decided request with Ask.Spent.
	alone
)

// DecideTogether decides several requests as one: all pass, or no request is charged. One call of the store decides
// them, with one claim for each key and limit that costs the sum; a second call decides the shadow rules and
// candidates. Each verdict has the outcome of one request; OtherRefused says that it would have passed alone. Ask.Times
// is 1, or 0 for a request that is looked at: then the call passes only if that request would. A call that also charges
// takes one more call of the store for its looks, before. The error is from the first request that has one; then no
// request was charged. More than weir.MaxClaims keys and limits are a *weir.InputError. Of several members of one fair
// limit, the first pays for all.
//
// Where the context has a deadline, the store is waited for until a quarter before it, at most 25 ms: then
// on_store_error decides, so that the answer is in time.
func (g *Gate) DecideTogether(ctx context.Context, questions []Question) error {
	began := g.began()
	bounded, done := g.budget.beforeDeadline(ctx)
	defer done()
	var err error
	if len(questions) == 1 && questions[0].Act == Decided && !questions[0].Ask.Spent {
		q := &questions[0]
		err = g.decideOne(bounded, q.Request, &q.Ask, q.Verdict)
	} else {
		j := g.jointDecisions.Get().(*jointDecision)
		defer g.jointDecisions.Put(j)
		err = j.decide(bounded, g, questions)
	}
	for i := range questions {
		q := &questions[i]
		q.Err = err
		g.conclude(ctx, q.Verdict, err, began)
	}
	return err
}

// A jointDecision is the claims of several requests as the claims of one. JointDecisions are pooled.
type jointDecision struct {
	all    Verdict
	places []int      // of the requests' claims in all, in order; −1: not in it
	apart  []Question // see Quota and Ask.Spent
}

// decide decides requests. After an error the requests that were decided apart have no charge either.
func (j *jointDecision) decide(ctx context.Context, g *Gate, questions []Question) error {
	looks, charges, denied, err := j.begin(g, questions)
	if err != nil {
		return err
	}
	passes, err := j.decideApart(ctx, g, questions)
	if err == nil {
		passes, err = j.decideJointly(ctx, g, questions, looks, charges, denied, passes)
	}
	if err != nil {
		j.concludeApart(ctx, g, questions, false)
		return err
	}
	j.conclude(questions, passes)
	j.concludeApart(ctx, g, questions, passes)
	j.follow(ctx, g, questions)
	g.countAndBan(ctx, refusalsOf(questions))
	j.settle(ctx, g, questions, passes)
	return nil
}

// decideJointly asks the store. The first phase looks where a request is only looked at, and where a list or a request
// that was decided apart refuses the call: the verdicts of the others tell how much is left.
func (j *jointDecision) decideJointly(ctx context.Context, g *Gate, questions []Question,
	looks, charges, denied, passes bool) (bool, error) {
	if looks && charges || denied || !passes {
		if err := j.ask(ctx, g, questions, 0); err != nil {
			return false, err
		}
		passes = passes && !denied && j.all.Outcome == Passed
	}
	if passes {
		if err := j.ask(ctx, g, questions, j.times(looks && !charges)); err != nil {
			return false, err
		}
		passes = j.all.Outcome == Passed
	}
	return passes, nil
}

func (j *jointDecision) times(look bool) int64 {
	if look {
		return 0
	}
	return 1
}

// begin makes the claims of all requests, and checks that each act needs no more of them than a decision holds.
func (j *jointDecision) begin(g *Gate, questions []Question) (looks, charges, denied bool, err error) {
	set := g.set.Load()
	for i := range questions {
		questions[i].Verdict.reset(g) // so that each has a state if another one fails
	}
	for i := range questions {
		q := &questions[i]
		if q.Ask.Times < 0 || q.Ask.Times > 1 || q.Act != Decided && q.Act != Quota && q.Ask.Times == 0 {
			return false, false, false, &weir.InputError{Field: "times", Given: q.Ask.Times, Allowed: "1, or 0 to look"}
		}
		if err := q.Verdict.begin(g, cmp.Or(q.Ask.Rules, set), q.Request, &q.Ask); err != nil {
			return false, false, false, err
		}
	}
	if set.Replaces() {
		if err := g.beginReplaced(set, questions); err != nil {
			return false, false, false, err
		}
	}
	for i := range questions {
		q := &questions[i]
		switch {
		case q.Act != Decided:
		case q.Verdict.meetsQuota():
			q.Act = Quota
		case q.Ask.Spent:
			q.Act = alone
		}
		if q.Act == Decided {
			looks = looks || q.Ask.Times == 0
			charges = charges || q.Ask.Times > 0
			denied = denied || q.Verdict.Outcome == Denied
		}
	}
	for act := Charge; act <= Refund; act++ {
		if err := j.gather(g, questions, act, 1); err != nil {
			return false, false, false, err
		}
		if j.all.enforced == 0 {
			continue
		}
		if err := weir.Check(j.all.claims, 1, nil); err != nil {
			return false, false, false, err
		}
	}
	return looks, charges, denied, j.gather(g, questions, Decided, 0)
}

// gather makes all's claims: the claims of the requests with an act, with times 1 without the requests that are looked
// at.
func (j *jointDecision) gather(g *Gate, questions []Question, act Act, times int64) error {
	j.all.reset(g)
	j.all.Times, j.places = times, j.places[:0]
	var looks [weir.MaxClaims]int64 // units that looks need
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		j.all.full = j.all.full || v.full && times > 0
		for k := range v.enforced {
			if q.Act != act || q.Ask.Times < times || v.claims[k].Once { // of several requests, each is charged
				j.places = append(j.places, -1)
				continue
			}
			place := j.all.include(v, k)
			if place == weir.MaxClaims {
				return &weir.InputError{Field: "claims", Given: "more than " + strconv.Itoa(weir.MaxClaims),
					Allowed: "at most " + strconv.Itoa(weir.MaxClaims) + " keys and limits of all requests of a call"}
			}
			j.places = append(j.places, place)
			if q.Ask.Times == 0 {
				looks[place] = max(looks[place], v.claims[k].Cost)
			} else {
				j.all.claims[place].Cost = min(j.all.claims[place].Cost+v.claims[k].Cost, weir.MaxUnits+1)
			}
		}
	}
	for i := range j.all.claims { // a look takes nothing from the others
		c := &j.all.claims[i]
		if times == 0 && j.all.chargesFull(i) {
			c.Cost = min(c.Cost, 1) // what they need
		}
		c.Cost = max(c.Cost, looks[i])
	}
	j.all.enforced = len(j.all.claims)
	j.all.room(j.all.enforced)
	return nil
}

// include returns the place of the kth claim of a request, and adds it without its cost if it is new.
func (v *Verdict) include(of *Verdict, k int) int {
	claim := of.claims[k]
	for i := range v.claims {
		c := &v.claims[i]
		if !c.Same(&claim) {
			continue
		}
		if claim.Limit.Most() < c.Limit.Most() { // of two overrides of one key
			c.Limit = claim.Limit
		}
		c.Floor = max(c.Floor, claim.Floor)    // all pass together, so all leave what one of them leaves
		c.Lease = cmp.Or(c.Lease, claim.Lease) // a request of a cost of 0 takes none
		if own := &of.claims[k]; v.Times > 0 && own.Member != c.Member {
			own.Member, own.Weight = strings.Clone(c.Member), c.Weight // it is settled as it was charged
		}
		return i
	}
	claim.Cost = 0
	v.claims, v.about = append(v.claims, claim), append(v.about, of.about[k])
	return len(v.claims) - 1
}

// ask decides all's claims: with times 0 it looks at all requests.
func (j *jointDecision) ask(ctx context.Context, g *Gate, questions []Question, times int64) error {
	if err := j.gather(g, questions, Decided, times); err != nil {
		return err
	}
	all := &j.all
	if all.enforced == 0 {
		all.Granted = times
		return nil
	}
	granted, err := g.store.Decide(ctx, all.claims, times, all.decisions)
	if err := g.enforced(ctx, times, all, granted, err); err != nil {
		return err
	}
	j.scatter(questions)
	return nil
}

// scatter copies the results of all's claims to the requests that have them.
func (j *jointDecision) scatter(questions []Question) {
	places := j.places
	for i := range questions {
		v := questions[i].Verdict
		v.room(len(v.claims))
		for k, place := range places[:v.enforced] {
			if place < 0 {
				continue
			}
			v.decisions[k] = j.all.decisions[place]
			if c := &v.claims[k]; c.Lease != "" { // of several requests, all have the first one's
				c.Lease = j.all.claims[place].Lease
			}
			v.about[k].by, v.about[k].granted = j.all.about[place].by, j.all.about[place].granted
			v.Err = j.all.Err
		}
		places = places[v.enforced:]
	}
}

// conclude derives the outcome of each decided request.
func (j *jointDecision) conclude(questions []Question, passes bool) {
	refusing := 0
	for i := range questions {
		q := &questions[i]
		if q.Act != Decided {
			continue
		}
		v := q.Verdict
		if v.own(q.Ask.Times, j.all.Outcome == Failed); v.Outcome != Passed {
			refusing++
		}
	}
	if passes {
		return
	}
	for i := range questions {
		q := &questions[i]
		if v := q.Verdict; q.Act == Decided {
			v.others = v.Outcome == Passed || refusing > 1
			if v.Granted = 0; v.Outcome == Passed && q.Ask.Times > 0 {
				v.Outcome, v.Reason, v.Rule, v.Delay = Refused, OtherRefused, nil, 0
			}
		}
	}
}

// own derives the outcome of a request as far as it depends on its own claims.
func (v *Verdict) own(times int64, failed bool) {
	if v.Outcome == Denied {
		return
	}
	asked := func(a about) bool { return a.by != nil }
	switch {
	case failed && v.refusesAll():
		return
	case slices.ContainsFunc(v.about[:v.enforced], asked):
		v.resolve(times)
		if v.Outcome == Refused && v.worst >= 0 && v.decisions[v.worst].RetryAfter == 0 {
			v.Outcome, v.Reason = Passed, WithinLimits
		}
	case v.Err != nil && v.enforced > 0:
		v.Reason, v.Granted = StoreFailed, times
	}
}

// ReceiptOf lists the charges of the decided requests of a DecideTogether, to be settled and released as those of one
// request: equal claims are added up, and a lease that several requests hold is listed once. Costs are settled only if
// that is meant for the sum.
func ReceiptOf(questions []Question) (list Receipt) {
	for i := range questions {
		if questions[i].Act != Decided {
			continue
		}
		for _, c := range questions[i].Verdict.Receipt() {
			same := func(other Charged) bool {
				return other.Rule == c.Rule && other.Taken == c.Taken && other.Local == c.Local &&
					other.Claim.Same(&c.Claim) && other.Claim.Lease == c.Claim.Lease
			}
			place := slices.IndexFunc(list, same)
			switch {
			case place < 0:
				list = append(list, c)
			case c.Claim.Lease == "":
				list[place].Claim.Cost += c.Claim.Cost
			}
		}
	}
	return list
}

// refusalsOf are the refusals that count towards bans, once where several share a key: of the decided requests, and of
// the quota requests of a call that they refuse.
func refusalsOf(questions []Question) (all []banCounter) {
	for i := range questions {
		q := &questions[i]
		refused := q.Act == Decided || q.Act == alone || q.Act == Quota && q.Verdict.Outcome == Refused
		if !refused || !q.Verdict.counts(q.Ask.Times) {
			continue
		}
		for _, one := range q.Verdict.refusals(nil, q.Ask.Times) {
			if !slices.ContainsFunc(all, func(p banCounter) bool { return p.bans == one.bans && p.key == one.key }) {
				all = append(all, one)
			}
		}
	}
	return all
}

// refusesAll sets the verdict if a rule of the request refuses it while the store does not answer.
func (v *Verdict) refusesAll() bool {
	for i := range v.enforced {
		if a := &v.about[i]; !a.aside && a.onStoreError() == rules.RefuseAll {
			v.Outcome, v.Reason, v.Rule, v.Granted = Failed, StoreFailed, a.rule, 0
			return true
		}
	}
	return false
}

// follow decides the shadow rules and candidates of the decided requests.
func (j *jointDecision) follow(ctx context.Context, g *Gate, questions []Question) {
	following := false
	for i := range questions {
		q := &questions[i]
		q.Verdict.room(len(q.Verdict.claims))
		following = following || q.Act == Decided && len(q.Verdict.followers) > 0
	}
	if !following {
		return
	}
	if g.batcher == nil {
		for i := range questions {
			if q := &questions[i]; q.Act == Decided {
				g.followInTurn(ctx, &q.Ask, q.Verdict)
			}
		}
		return
	}
	b := g.batches.Get().(*batch)
	defer g.batches.Put(b)
	defer b.empty()
	decided := make([]Question, 0, len(questions))
	for i := range questions {
		if q := &questions[i]; q.Act == Decided && q.Verdict.Outcome != Denied {
			decided = append(decided, *q)
		}
	}
	b.followLater(ctx, g, decided)
	b.record(ctx, g, decided)
}

// settle charges spent units, and gives back units that are to be given back. Both outlast the request, so that a
// client cannot avoid the charge by hanging up.
func (j *jointDecision) settle(ctx context.Context, g *Gate, questions []Question, passes bool) {
	if !slices.ContainsFunc(questions, func(q Question) bool { return q.Act != Decided }) {
		return
	}
	ctx, cancel := g.detached(ctx)
	defer cancel()
	j.spend(ctx, g, questions)
	for i := range questions {
		q := &questions[i]
		if q.Act != Refund {
			continue
		}
		v := q.Verdict
		q.Ask.Times, v.Times, v.Granted = 0, 0, 0 // it is no request to be counted
		switch {
		case v.Outcome == Denied:
		case !passes:
			v.Outcome, v.Reason, v.others = Refused, OtherRefused, true
		default:
			g.refund(ctx, v)
		}
	}
}

// spend charges the spent units of all requests in one call.
func (j *jointDecision) spend(ctx context.Context, g *Gate, questions []Question) {
	if j.gather(g, questions, Charge, 1) != nil { // begin has checked it
		return
	}
	if all := &j.all; all.enforced > 0 {
		if all.Err = g.store.Charge(ctx, all.claims, all.decisions); all.Err == nil {
			all.decided(0, all.enforced, g.store, 1)
		} else {
			g.spendLocally(ctx, all)
		}
		j.scatter(questions)
	}
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		if q.Act != Charge || v.Outcome == Denied {
			continue
		}
		if v.own(1, false); v.Err == nil {
			g.spendFollowers(ctx, q)
		}
	}
}

// spendLocally charges the local store where rules fall back to it.
func (g *Gate) spendLocally(ctx context.Context, all *Verdict) {
	for i := range all.enforced {
		a := &all.about[i]
		if g.local == nil || a.onStoreError() != rules.Local {
			continue
		}
		if err := g.local.Charge(ctx, all.claims[i:i+1], all.decisions[i:i+1]); err != nil {
			all.Err = errors.Join(all.Err, err)
			continue
		}
		a.by, a.granted = g.local, 1
	}
}

// spendFollowers charges shadow rules. Candidates are left out: a spent unit is not decided.
func (g *Gate) spendFollowers(ctx context.Context, q *Question) {
	v := q.Verdict
	for i := range v.followers {
		f := &v.followers[i]
		switch {
		case f.live >= 0:
			f.err = weir.ErrNotAsked
		case f.from < f.to:
			f.err = g.store.Charge(ctx, v.claims[f.from:f.to], v.decisions[f.from:f.to])
			f.granted = 1
		}
	}
	g.recordFollowers(&q.Ask, v)
}
