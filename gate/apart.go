package gate

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// replaced is the reason of a Skip.
const replaced = "another rule replaces it"

// replaces appends the aliases that the request's rules replace, each once: a call may have many requests. A rule that
// is itself replaced replaces others too.
func (v *Verdict) replaces(aliases []string) []string {
	for _, rule := range v.matched {
		if rule.Scheduled() && !rule.Active(v.gate.now()) {
			continue
		}
		for _, alias := range rule.Replaces() {
			if !slices.Contains(aliases, alias) {
				aliases = append(aliases, alias)
			}
		}
	}
	return aliases
}

// withoutReplaced removes rules that other rules of the request replace, or rules of other requests, by the aliases in
// others.
func (v *Verdict) withoutReplaced(others []string) {
	aliases := v.replaces(others[:len(others):len(others)])
	v.matched = slices.DeleteFunc(v.matched, func(rule *rules.Rule) bool {
		if !isReplaced(rule, aliases) {
			return false
		}
		v.skips = append(v.skips, Skip{rule, replaced})
		return true
	})
}

// isReplaced reports whether a rule has one of the aliases.
func isReplaced(rule *rules.Rule, aliases []string) bool {
	return rule.Alias() != "" && slices.Contains(aliases, rule.Alias())
}

// beginReplaced makes the claims of a request once more if a rule of another request replaces one of its rules.
func (g *Gate) beginReplaced(set *rules.Set, questions []Question) error {
	var aliases []string
	for i := range questions {
		aliases = questions[i].Verdict.replaces(aliases)
	}
	for i := range questions {
		q := &questions[i]
		met := func(rule *rules.Rule) bool { return isReplaced(rule, aliases) }
		if !slices.ContainsFunc(q.Verdict.matched, met) {
			continue
		}
		q.Ask.replaced = aliases
		if err := q.Verdict.begin(g, cmp.Or(q.Ask.Rules, set), q.Request, &q.Ask); err != nil {
			return err
		}
	}
	return nil
}

// meetsQuota reports whether a rule with quota decides the request, or would if it were not a shadow rule.
func (v *Verdict) meetsQuota() bool {
	if v.Outcome == Denied {
		return v.Rule != nil && v.Rule.Quota()
	}
	return slices.ContainsFunc(v.about[:v.enforced], func(a about) bool { return a.rule != nil && a.rule.Quota() }) ||
		slices.ContainsFunc(v.followers, func(f follower) bool { return f.live < 0 && f.rule.Quota() })
}

// Unlimited reports whether an enforced rule exempts the request, and no limit is enforced. A shadow rule exempts no
// request.
func (v *Verdict) Unlimited() bool {
	return v.enforced == 0 && slices.ContainsFunc(v.matched, func(rule *rules.Rule) bool {
		return rule.Unlimited() && rule.Mode() == rules.Enforce
	})
}

// decideApart decides the requests that the joint decision leaves out. It reports whether the others may pass.
func (j *jointDecision) decideApart(ctx context.Context, g *Gate, questions []Question) (passes bool, err error) {
	j.apart = j.apart[:0]
	for i := range questions {
		if act := questions[i].Act; act == Quota || act == alone {
			j.apart = append(j.apart, questions[i])
		}
	}
	if len(j.apart) == 0 {
		return true, nil
	}
	defer clear(j.apart)
	g.decideBegun(ctx, j.apart)
	passes = true
	quotas, granted := 0, 0
	for i := range j.apart {
		q := &j.apart[i]
		v := q.Verdict
		switch {
		case q.Err != nil:
			return false, q.Err
		case v.Outcome == Denied && v.Rule == nil, q.Act == alone && v.Outcome != Passed:
			passes = false
		case q.Act == Quota && !v.Unlimited():
			quotas++
			if v.Outcome == Passed {
				granted++
			}
		}
		if q.Ask.Spent {
			g.chargeAnyway(ctx, v)
		}
	}
	return passes && (quotas == 0 || granted > 0), nil
}

// decideBegun decides questions after their claims were made.
func (g *Gate) decideBegun(ctx context.Context, questions []Question) {
	if g.batcher != nil {
		g.decideTogether(ctx, questions)
		return
	}
	for i := range questions {
		q := &questions[i]
		q.Err = g.decideInTurn(ctx, &q.Ask, q.Verdict)
	}
}

// owed is the charge for a refused claim if its units are spent already. The debt of a bucket is limited to twice its
// capacity and overdraft: a window forgets units beyond its limit, but a bucket would block the key of one call with
// huge hits for years.
func owed(claim weir.Claim, d *weir.Decision) weir.Claim {
	l := claim.Limit
	if !l.Refills() {
		return claim
	}
	claim.Cost = min(claim.Cost, l.Most())
	full := float64(l.Most()) / float64(l.Refill()) * float64(l.Period())
	if float64(d.ResetAfter.Microseconds()) >= 2*full {
		claim.Cost = 0
	}
	return claim
}

// chargeAnyway charges units that were refused and are spent already, at the store that refused them. An error is in
// v.Err.
func (g *Gate) chargeAnyway(ctx context.Context, v *Verdict) {
	if v.Outcome != Refused {
		return
	}
	ctx, cancel := g.detached(ctx)
	defer cancel()
	var shared, local []weir.Claim
	for i := range v.enforced {
		switch a, claim := &v.about[i], owed(v.claims[i], &v.decisions[i]); {
		case a.by == nil || claim.Once || claim.Cost == 0:
		case a.by == g.store:
			shared = append(shared, claim)
		default:
			local = append(local, claim)
		}
	}
	if len(shared) > 0 {
		v.Err = errors.Join(v.Err, g.store.Charge(ctx, shared, nil))
	}
	if len(local) > 0 {
		v.Err = errors.Join(v.Err, g.local.Charge(ctx, local, nil))
	}
}

// concludeApart derives the outcomes of the quota requests from the outcome of the call. If that is refused, their
// units are given back.
func (j *jointDecision) concludeApart(ctx context.Context, g *Gate, questions []Question, passes bool) {
	var taken Receipt
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		switch {
		case q.Act != Quota:
		case passes && v.Outcome != Passed:
			v.Outcome, v.Reason = Passed, OtherGranted
		case !passes && v.Outcome == Passed:
			if !q.Ask.Spent {
				taken = append(taken, v.Receipt()...)
				for k := range v.enforced {
					v.about[k].granted = 0
				}
			}
			v.Outcome, v.Reason, v.Rule, v.Delay, v.Granted, v.others = Refused, OtherRefused, nil, 0, 0, true
		}
	}
	g.takeBack(ctx, taken)
}

// takeBack gives back charges, with one call of the store for all charges of one instant. After an error they stay
// charged.
func (g *Gate) takeBack(ctx context.Context, list Receipt) {
	shared := make(map[weir.Instant][]weir.Claim)
	for i := range list {
		c := &list[i]
		if c.Local {
			_ = g.by(c).Refund(ctx, []weir.Claim{c.Claim}, c.Taken, nil)
			continue
		}
		same := func(other weir.Claim) bool { return other.Same(&c.Claim) && other.Lease == c.Claim.Lease }
		if at := slices.IndexFunc(shared[c.Taken], same); at >= 0 {
			shared[c.Taken][at].Cost += c.Claim.Cost
			continue
		}
		shared[c.Taken] = append(shared[c.Taken], c.Claim)
	}
	g.giveBack(ctx, shared)
}
