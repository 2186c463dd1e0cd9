package gate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// An Explanation is a verdict as plain data: what decided the request, the state of the rules that match it, and why
// others do not. It refers to no memory of the verdict.
type Explanation struct {
	Outcome string `json:"outcome,omitzero" enum:"passed|refused|denied|failed"`
	Reason  string `json:"reason,omitzero" doc:"Such as limit_exceeded."`
	Rule    string `json:"rule,omitzero" doc:"That decides the request."`
	Error   string `json:"error,omitzero" doc:"The mistake of the request, or of the store."`

	Rules []ExplainedRule `json:"rules" doc:"That match, in the order of the file."`

	NotMatched     []Unmatched `json:"not_matched,omitzero" max:"20" doc:"Rules that may be expected to match."`
	NotMatchedMore int64       `json:"not_matched_more,omitzero" doc:"Such rules that are left out."`
}

// An ExplainedRule is a rule with the state of a key.
type ExplainedRule struct {
	Rule       string           `json:"rule"`
	Label      string           `json:"label,omitzero"`
	Class      string           `json:"class,omitzero" doc:"Of the request, by the rule's reserve."`
	Unit       string           `json:"unit,omitzero" doc:"Of the numbers, such as tokens or USD/1000000."`
	Mode       rules.Mode       `json:"mode" enum:"enforce|shadow"`
	Shadow     bool             `json:"shadow,omitzero" doc:"It refuses nothing here, by its mode or enforce_percent."`
	Key        string           `json:"key" doc:"As lists of bans print it."`
	Components []string         `json:"components" doc:"Of the rule's key."`
	Values     []string         `json:"values" doc:"Empty if the query has the key instead."`
	Limits     []ExplainedLimit `json:"limits"`
	Candidate  []ExplainedLimit `json:"candidate,omitzero" doc:"Limits of the rule's candidate."`
	Binding    *int64           `json:"binding,omitzero" doc:"Index of the limit with the longest wait."`
	BannedFor  float64          `json:"banned_for,omitzero" doc:"Seconds; absent if the key is not banned."`
	Skipped    string           `json:"skipped,omitzero" doc:"Why the rule matches and is not decided."`
	Learned    int64            `json:"learned,omitzero" doc:"Settled costs that its cost here is learned from."`
	Decides    bool             `json:"decides,omitzero" doc:"Its limit decides the request."`
	// Degraded is the rule's on_store_error.
	Degraded rules.StoreError `json:"degraded,omitzero" enum:"local|allow|deny" doc:"The store did not answer."`
}

// An ExplainedLimit is the state of a key under one limit.
type ExplainedLimit struct {
	Name       string   `json:"name"`
	Limit      string   `json:"limit"`
	Cost       int64    `json:"cost" doc:"Of the request."`
	Floor      int64    `json:"floor,omitzero" doc:"Units that the request's class leaves to others."`
	Member     string   `json:"member,omitzero" doc:"The member of the shared limit that makes the request."`
	Weight     int64    `json:"weight,omitzero" doc:"Weight of the member."`
	Standing   *Share   `json:"standing,omitzero" doc:"Usage and share of the member, before the request."`
	Remaining  int64    `json:"remaining"`
	RetryAfter *float64 `json:"retry_after" doc:"Seconds; null: never."`
	ResetAfter float64  `json:"reset_after" doc:"Seconds."`
}

// A Share is a member's usage and share of a limit, and the reason for the decision on its request.
type Share struct {
	Own     int64 `json:"own" doc:"Units of the member, in this window or held."`
	Share   int64 `json:"share" doc:"Share of the member, by its weight."`
	Weights int64 `json:"weights" doc:"Sum of the weights of the members that use the limit, this member included."`
	Used    int64 `json:"used" doc:"Units of all members."`
	Open    int64 `json:"open" doc:"Usage of all members up to which any member is granted now."`
	Others  bool  `json:"others,omitzero" doc:"The member is beyond max_keys: such members count as one."`
	// Why is "" if the cost fits no limit of this size.
	Why ShareReason `json:"why,omitzero" enum:"room|share|beyond|full"`
}

// A ShareReason is the reason for the decision on a member's request.
type ShareReason string

// The reasons. The first two grant.
const (
	HasRoom     ShareReason = "room"   // the usage of all members stays within Open
	WithinShare ShareReason = "share"  // beyond Open, the member stays within its share
	BeyondShare ShareReason = "beyond" // neither
	IsFull      ShareReason = "full"   // the whole limit is used up, except the request's floor
)

// shareOf explains the standing of the claim's member.
func shareOf(c *weir.Claim, s *weir.Standing) *Share {
	e := &Share{Own: s.Own, Share: s.Share, Weights: s.Weights, Used: s.Used, Open: s.Open, Others: s.Others}
	switch most := c.Limit.Capacity() - c.Floor; {
	case c.Cost > most:
	case s.Used+c.Cost > most:
		e.Why = IsFull
	case s.Used+c.Cost <= s.Open:
		e.Why = HasRoom
	case s.Own+c.Cost <= s.Share:
		e.Why = WithinShare
	default:
		e.Why = BeyondShare
	}
	return e
}

// Unmatched is a rule that does not match a request.
type Unmatched struct {
	Rule string   `json:"rule"`
	Why  []string `json:"why" doc:"Each condition that the request does not meet, with its value."`
}

// maxUnmatched bounds the rules of an explanation that do not match.
const maxUnmatched = 20

// Explain describes the verdict on a request. It says which rules do not match, and why, if it is given the file of
// the rules: see Ask.Rules. It is slow, and meant for people.
func (v *Verdict) Explain(file *rules.File, r *rules.Request) *Explanation {
	e := &Explanation{Outcome: v.Outcome.String(), Reason: v.Reason.String(), Rules: []ExplainedRule{}}
	if v.Rule != nil {
		e.Rule = v.Rule.Name()
	}
	if v.Err != nil {
		e.Error = v.Err.Error()
	}
	for _, rule := range v.matched {
		e.Rules = append(e.Rules, v.explain(rule))
	}
	if file != nil && v.set != nil && (r.Path != "" || len(r.DescriptorKeys) > 0) {
		e.addUnmatched(file, v.completed(r), v.matched)
	}
	return e
}

// addUnmatched adds the rules of the file that may be expected to match.
func (e *Explanation) addUnmatched(file *rules.File, r *rules.Request, matched []*rules.Rule) {
	for i := range file.Rules {
		why := file.Unmatched(i, matched, r)
		switch {
		case len(why) == 0:
		case len(e.NotMatched) == maxUnmatched:
			e.NotMatchedMore++
		default:
			e.NotMatched = append(e.NotMatched, Unmatched{file.Rules[i].Name, why})
		}
	}
}

// explain is the rule's part of the verdict.
func (v *Verdict) explain(rule *rules.Rule) ExplainedRule {
	e := explainedRule(rule, "")
	e.Decides = rule == v.Rule
	if of := v.expectedOf(rule); of != nil {
		e.Learned = int64(of.from)
	}
	e.Skipped = "the request is " + v.Outcome.String() + " before its limits are read"
	for i := range v.Len() {
		check := v.At(i)
		if check.Rule == rule && !check.Aside {
			e.take(v, &check)
		}
	}
	for _, skip := range v.skips {
		if skip.Rule == rule {
			e.Skipped = skip.Why
		}
	}
	e.bind()
	return e
}

// take takes a check of the rule.
func (e *ExplainedRule) take(v *Verdict, check *Check) {
	if check.Candidate {
		e.Candidate = append(e.Candidate, explainedLimit(check.Claim, check.Decision))
		return
	}
	e.Key, e.Skipped, e.Shadow = readable(check.Claim.Key), "", check.Shadow
	if v.Degraded() && (check.Local || !check.Decided) {
		e.Degraded = check.Rule.OnStoreError()
	}
	if check.Class != nil {
		e.Class = check.Class.Name
	}
	switch {
	case !check.Decided:
		e.Skipped = Unasked
	case check.Ban:
		e.BannedFor = check.Decision.RetryAfter.Seconds()
	default:
		e.Limits = append(e.Limits, explainedLimit(check.Claim, check.Decision))
	}
}

// ExplainKey is the state of a key under a rule, with limits as the rule's Lookup returns them. No claim is charged. If
// the store does not answer, the error is the store's, and the state is from the local store, if the rule has
// on_store_error: local.
func (g *Gate) ExplainKey(ctx context.Context, rule *rules.Rule, key string, limits []*weir.Limit) (
	e ExplainedRule, err error) {
	e = explainedRule(rule, key)
	claims := g.ClaimsOf(rule, []byte(key), limits)
	if bans := rule.Bans(); bans != nil {
		claims = append(claims, weir.Claim{Key: key, Limit: bans.Hold})
	}
	v := new(Verdict)
	if err := g.Decide(ctx, nil, Ask{Claims: claims}, v); err != nil {
		return e, err
	}
	decisions := v.decisions
	if v.Err != nil {
		e.Skipped, e.Degraded = Unasked, rule.OnStoreError()
		if e.Degraded != rules.Local {
			return e, v.Err
		}
		decisions = make([]weir.Decision, len(claims))
		if _, err := g.local.Decide(ctx, claims, 0, decisions); err != nil {
			return e, v.Err
		}
	}
	for i := range decisions {
		if i == len(limits) {
			e.BannedFor = decisions[i].RetryAfter.Seconds()
		} else {
			e.Limits = append(e.Limits, explainedLimit(&claims[i], &decisions[i]))
		}
	}
	e.bind()
	return e, v.Err
}

// explainedRule is a rule without the state of the key.
func explainedRule(rule *rules.Rule, key string) ExplainedRule {
	return ExplainedRule{Rule: rule.Name(), Label: rule.Label(), Unit: rule.Unit().String(), Mode: rule.Mode(),
		Key: readable(key), Components: append([]string{}, rule.Components()...), Values: []string{},
		Limits: []ExplainedLimit{}}
}

// explainedLimit is the state under one limit.
func explainedLimit(claim *weir.Claim, d *weir.Decision) ExplainedLimit {
	e := ExplainedLimit{Name: claim.Limit.Name(), Limit: claim.Limit.String(), Cost: claim.Cost, Floor: claim.Floor,
		Remaining: d.Remaining, ResetAfter: d.ResetAfter.Seconds()}
	if claim.Limit.Whole() != nil {
		e.Member, e.Weight = readable(claim.Member), claim.Weight
	}
	if d.Standing != nil {
		e.Standing = shareOf(claim, d.Standing)
	}
	if d.RetryAfter != weir.Never {
		seconds := d.RetryAfter.Seconds()
		e.RetryAfter = &seconds
	}
	return e
}

// bind finds the limit with the longest wait.
func (e *ExplainedRule) bind() {
	if len(e.Limits) == 0 {
		return
	}
	worst := slices.MinFunc(e.Limits, func(a, b ExplainedLimit) int {
		return cmp.Or(cmp.Compare(b.wait(), a.wait()), cmp.Compare(a.Remaining, b.Remaining))
	})
	at := int64(slices.Index(e.Limits, worst))
	e.Binding = &at
}

// wait is the time until a request is granted, in seconds.
func (l *ExplainedLimit) wait() float64 {
	if l.RetryAfter == nil {
		return weir.Never.Seconds()
	}
	return *l.RetryAfter
}

// readable is a copy of a key as valid UTF-8, which a header's value need not be.
func readable(key string) string { return strings.ToValidUTF8(strings.Clone(key), "\uFFFD") }
