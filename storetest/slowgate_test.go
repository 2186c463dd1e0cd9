package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A slowGate is what rules mean, one call after the other, on a store of models: no batches, no claim that is taken
// ahead and given back. In a full store all keys of a limit are one.
type slowGate struct {
	*modelStore
	set       *rules.Set
	full      bool
	clockBack bool // the clock steps back, and shadow rules are not compared: see alone
}

// A charge is a claim that was granted.
type charge struct {
	rule  *rules.Rule
	claim weir.Claim // its cost is that of all granted times
	taken weir.Instant
}

// A slowCheck is a claim and its result.
type slowCheck struct {
	rule      *rules.Rule
	claim     weir.Claim
	ban       bool
	candidate bool
	granted   int64
	decision  weir.Decision
	shown     bool
	hidden    bool // not compared
	repeated  bool // it was left out: its id was found
}

// A slowRequest is a request and its verdict.
type slowRequest struct {
	request *rules.Request
	ask     *gate.Ask
	alone   bool        // it is no request of several
	checks  []slowCheck // of enforced rules, then of candidates and shadow rules
	outcome gate.Outcome
	granted int64
	others  bool // of several requests, another one is refused
	banned  []time.Duration
}

func (r *slowRequest) text() string {
	text := fmt.Sprintf("%v %d", r.outcome, r.granted)
	for _, length := range r.banned {
		text += fmt.Sprintf(", ban of %v", length)
	}
	for i := range r.checks {
		if c := &r.checks[i]; c.shown && !c.hidden {
			owes := r.outcome == gate.Passed && c.rule.ChargesFull() && r.ask.Times > 0
			text += checkText(&c.claim, &c.decision, c.granted, owes)
		}
	}
	return text
}

// charges are what is to be settled.
func (r *slowRequest) charges() (list []charge) {
	for _, c := range r.checks {
		if !c.shown || c.granted == 0 || c.ban || c.repeated || c.claim.Lease == "" && isConcurrency(c.claim.Limit) {
			continue
		}
		c.claim.Cost *= c.granted
		c.claim.Delay = c.decision.Delay
		list = append(list, charge{c.rule, c.claim, c.decision.At})
	}
	return list
}

func isConcurrency(l *weir.Limit) bool { return l.Leases() }

// claimsOf are a rule's for a request; those of a shadow rule are on keys of its own.
func (g *slowGate) claimsOf(rule *rules.Rule, r *slowRequest, prefix string) (list []slowCheck) {
	key, _ := rule.AppendKey(nil, r.request)
	cost := r.cost(rule)
	for _, limit := range rule.LimitsFor(r.request, key) {
		list = append(list, g.check(rule, prefix+string(key), limit, cost, r).reserved(r))
	}
	if ids := rule.IDs(); ids != nil && r.alone && r.ask.Times == 1 && ids.Of(r.request) != "" {
		claims := make([]weir.Claim, len(list))
		for i := range list {
			claims[i] = list[i].claim
		}
		once, _ := weir.Once(claims, ids.Of(r.request), ids.Keep)
		list = append(list, slowCheck{rule: rule, claim: once})
	}
	if bans := rule.Bans(); bans != nil && prefix == "" {
		list = append(list, g.check(rule, string(key), bans.Hold, 0, r))
		list[len(list)-1].ban = true
	}
	return list
}

// cost is the cost of a request; on a concurrency limit it is 1, or 0.
func (r *slowRequest) cost(rule *rules.Rule) int64 {
	cost := int64(1)
	if r.ask.Cost != nil {
		cost = *r.ask.Cost
	}
	if rule.ChargesFull() && r.ask.Times == 0 {
		cost = min(cost, 1)
	}
	return cost
}

func (g *slowGate) check(rule *rules.Rule, key string, limit *weir.Limit, cost int64, r *slowRequest) slowCheck {
	if isConcurrency(limit) {
		cost = min(cost, 1)
	}
	c := slowCheck{rule: rule, claim: weir.Claim{Key: key, Limit: limit, Cost: cost}}
	if isConcurrency(limit) && cost > 0 && r.ask.Times > 0 {
		c.claim.Lease = r.ask.Lease
	}
	if limit.Whole() != nil {
		member, weight := rule.AppendMember(nil, r.request)
		c.claim.Member, c.claim.Weight = string(member), weight
	}
	return c
}

// reserved is the check with the floor of the request's class.
func (c slowCheck) reserved(r *slowRequest) slowCheck {
	if class := c.rule.ClassOf(r.request); class != nil {
		c.claim.Floor = (c.claim.Limit.Most()*class.Share + 99) / 100
	}
	return c
}

func enforced(rule *rules.Rule, r *slowRequest) bool {
	key, _ := rule.AppendKey(nil, r.request)
	return rule.Mode() != rules.Shadow && rule.Enforces(key)
}

// decide decides requests as one: all pass, or none.
func (g *slowGate) decide(requests []*slowRequest) {
	for _, r := range requests {
		for _, rule := range g.set.Rules() {
			if enforced(rule, r) {
				r.checks = append(r.checks, g.claimsOf(rule, r, "")...)
			}
		}
	}
	var all []*slowCheck
	for _, r := range requests {
		for i := range r.checks {
			all = append(all, &r.checks[i])
		}
	}
	granted, ok := g.takeOnce(all, requests[0].ask.Times)
	if !ok {
		for _, r := range requests {
			r.outcome = gate.Failed
		}
		return
	}
	conclude(requests, granted)
	for _, r := range requests {
		g.follow(r)
	}
	seen := make(map[string]bool)
	for _, r := range requests {
		g.countRefusals(r, seen)
	}
}

// conclude derives the outcome of each request from its own claims, and from the others.
func conclude(requests []*slowRequest, granted int64) {
	refusing, together := 0, len(requests) > 1
	for _, r := range requests {
		if r.granted = granted; r.refused(together) {
			refusing++
			r.outcome = gate.Refused
		}
	}
	for _, r := range requests {
		if together && refusing > 0 {
			r.others = r.outcome == gate.Passed || refusing > 1
			r.outcome = gate.Refused
		}
	}
}

// refused reports whether a claim of a request refuses it.
func (r *slowRequest) refused(together bool) bool {
	if r.ask.Times > 0 && !together {
		return r.granted == 0
	}
	return r.granted == 0 && slices.ContainsFunc(r.checks, func(c slowCheck) bool { return c.decision.RetryAfter != 0 })
}

// unit is a claim as it is charged: a key and a limit stand in it once, in a full store a limit.
func (g *slowGate) unit(c *slowCheck) weir.Claim {
	claim := c.claim
	if g.full {
		claim.Key = "overflow"
	}
	return claim
}

// take charges as many of times requests as fit all of their claims, one more where charge: full lets it pass, and
// describes the claims after it. It is false if a full store cannot hold a lease.
func (g *slowGate) take(checks []*slowCheck, times int64) (granted int64, ok bool) {
	var units, least []weir.Claim // as they are, and what charge: full needs
	var places []int
	for _, c := range checks {
		claim := g.unit(c)
		place := slices.IndexFunc(units, func(u weir.Claim) bool { return u.Same(&claim) })
		if place >= 0 {
			units[place].Cost += claim.Cost
			units[place].Floor = max(units[place].Floor, claim.Floor)
		} else {
			place = len(units)
			units, least = append(units, claim), append(least, claim)
		}
		least[place].Cost, least[place].Floor = units[place].Cost, units[place].Floor
		if c.rule.ChargesFull() && !c.ban {
			least[place].Cost = min(units[place].Cost, 1)
		}
		places = append(places, place)
	}
	now := int64(g.clock())
	granted = g.granted(units, times, now)
	if granted > 0 && g.full && slices.ContainsFunc(units, func(c weir.Claim) bool { return c.Lease != "" }) {
		return 0, false
	}
	g.back(units, times, now)
	g.modelStore.take(units, granted, now)
	if granted < times && g.granted(least, 1, now) == 1 && !slices.Equal(units, least) {
		granted++
		for i := range units {
			g.charge(&units[i], 1, now)
		}
	}
	asked := units
	if granted < times {
		asked = least
	}
	for i, c := range checks {
		own := asked[places[i]]
		own.Floor = c.claim.Floor
		c.claim.Member, c.claim.Weight = own.Member, own.Weight
		c.decision, c.granted, c.shown = g.now(&own), granted, true
	}
	return granted, true
}

// takeOnce is take, but if an id is found it leaves out what the id stands with, as often as the rule says.
func (g *slowGate) takeOnce(checks []*slowCheck, times int64) (granted int64, ok bool) {
	granted, ok = g.take(checks, times)
	i := slices.IndexFunc(checks, func(c *slowCheck) bool { return c.claim.Once })
	if granted > 0 || !ok || i < 0 || checks[i].decision.RetryAfter == 0 {
		return granted, ok
	}
	once := checks[i]
	count := &slowCheck{rule: once.rule, claim: weir.Claim{Key: once.claim.Key, Limit: once.rule.IDs().Repeats, Cost: 1}}
	count.ban = true // it is charged in full
	rest := []*slowCheck{count}
	for _, c := range checks {
		if c.repeated = c.rule == once.rule && !c.ban; !c.repeated {
			rest = append(rest, c)
		}
	}
	if granted, ok = g.take(rest, 1); granted == 0 && count.decision.RetryAfter != 0 {
		for _, c := range checks {
			c.repeated = c == once
		}
		granted, ok = g.take(slices.DeleteFunc(slices.Clone(checks), func(c *slowCheck) bool { return c == once }), 1)
	}
	for _, c := range checks {
		c.granted = granted
	}
	return granted, ok
}

// now describes a claim.
func (g *slowGate) now(claim *weir.Claim) weir.Decision {
	var d [1]weir.Decision
	g.describe([]weir.Claim{*claim}, int64(g.clock()), d[:])
	return d[0]
}

// follow decides the candidates and shadow rules of a request, each by itself.
func (g *slowGate) follow(r *slowRequest) {
	for i, c := range r.checks {
		first := !c.ban && !c.repeated && c.rule.Candidate() != nil && c.claim.Limit == c.rule.Limits()[0]
		if !first {
			continue
		}
		times := r.comparable(i)
		if times == 0 && r.ask.Times > 0 {
			continue
		}
		for _, limit := range c.rule.Candidate().Limits() {
			own := g.check(c.rule, c.claim.Key, limit, r.cost(c.rule), r).reserved(r)
			own.candidate = true
			g.alone(r, []slowCheck{own}, times)
		}
	}
	for _, rule := range g.set.Rules() {
		if !enforced(rule, r) && (r.granted > 0 || r.ask.Times == 0) {
			g.alone(r, g.claimsOf(rule, r, "shadow "), min(r.granted, r.ask.Times))
		}
	}
}

// alone decides a shadow rule or a candidate. The gate may charge it in one call with the enforced rules and refund that
// if they refuse: such a charge drops expired entries that a clock which steps back would still have found.
func (g *slowGate) alone(r *slowRequest, checks []slowCheck, times int64) {
	all := make([]*slowCheck, len(checks))
	for i := range checks {
		all[i] = &checks[i]
	}
	if _, ok := g.takeOnce(all, times); !ok {
		return
	}
	for i := range checks {
		checks[i].hidden = g.clockBack
	}
	r.checks = append(r.checks, checks...)
}

// comparable is how many requests a candidate decides: those that all but its own rule grant.
func (r *slowRequest) comparable(i int) int64 {
	if r.granted == r.ask.Times || r.others {
		return r.granted
	}
	for _, c := range r.checks {
		if own := c.rule == r.checks[i].rule && !c.ban; !own && !c.candidate && !c.repeated && c.decision.RetryAfter != 0 {
			return r.granted
		}
	}
	return r.ask.Times
}

// countRefusals counts what the limits of rules with bans refused, once a key.
func (g *slowGate) countRefusals(r *slowRequest, seen map[string]bool) {
	refused := r.ask.Times - r.granted
	for _, c := range r.checks {
		bans := c.rule.Bans()
		if !c.ban || refused <= 0 || bans.Counted || c.decision.RetryAfter != 0 || seen[c.claim.Key] || !r.refuses(c.rule) {
			continue
		}
		seen[c.claim.Key] = true
		g.ban(r, c.rule, c.claim.Key, min(refused, bans.Refusals.Most()))
	}
}

// refuses reports whether a limit of an enforced rule refuses.
func (r *slowRequest) refuses(rule *rules.Rule) bool {
	return slices.ContainsFunc(r.checks, func(c slowCheck) bool {
		return c.rule == rule && !c.ban && !c.candidate && !c.repeated && !c.claim.Once && c.decision.RetryAfter != 0
	})
}

// ban counts refusals or responses of a key, and bans it if there are too many.
func (g *slowGate) ban(r *slowRequest, rule *rules.Rule, key string, times int64) {
	bans := rule.Bans()
	one := func(limit *weir.Limit, cost, times int64) (int64, weir.Decision) {
		c := slowCheck{rule: rule, claim: weir.Claim{Key: key, Limit: limit, Cost: cost}, ban: true}
		granted, _ := g.take([]*slowCheck{&c}, times)
		return granted, c.decision
	}
	_, held := one(bans.Hold, 0, 0)
	if held.RetryAfter != 0 {
		return
	}
	granted, counted := one(bans.Refusals, 1, times)
	if granted == times && counted.Remaining > 0 {
		return
	}
	if turn, _ := one(bans.Turn, 1, 1); turn == 0 {
		return
	}
	_, past := one(bans.Past, 0, 0)
	level := min(int64(len(bans.Lengths))-past.Remaining, int64(len(bans.Lengths))-1)
	length := bans.Lengths[level]
	g.charged(key, bans.Hold, length.Microseconds()+held.Remaining)
	g.charged(key, bans.Past, min(past.Remaining, 1))
	g.forget(key, bans.Refusals)
	r.banned = append(r.banned, length)
}

func (g *slowGate) charged(key string, limit *weir.Limit, cost int64) {
	c := g.unit(&slowCheck{claim: weir.Claim{Key: key, Limit: limit, Cost: cost}})
	g.charge(&c, 1, int64(g.clock()))
}

// forget resets a key. An overflow key is not forgotten.
func (g *slowGate) forget(key string, limit *weir.Limit) {
	if !g.full {
		_ = g.Reset(context.Background(), []weir.Claim{{Key: key, Limit: limit}})
	}
}

// inForce is a charge under the numbers of now.
func (g *slowGate) inForce(c charge) weir.Claim {
	rule := g.set.Rules()[slices.IndexFunc(g.set.Rules(), func(r *rules.Rule) bool { return r.Name() == c.rule.Name() })]
	_, limits, _ := rule.LookupText(strings.TrimPrefix(c.claim.Key, "shadow "))
	if rule.Candidate() != nil {
		limits = append(slices.Clip(limits), rule.Candidate().Limits()...)
	}
	claim := c.claim
	for _, limit := range limits {
		if limit.SameState(claim.Limit) {
			claim.Limit = limit
		}
	}
	if g.full {
		claim.Key = "overflow"
	}
	return claim
}

// settle corrects what charges cost.
func (g *slowGate) settle(charges []charge, units int64) {
	ctx := context.Background()
	for _, c := range charges {
		claim := g.inForce(c)
		missing := units - claim.Cost
		if claim.Once {
			missing = min(missing, 0)
		}
		claim.Settle = claim.Cost > 0
		claim.Cost = max(missing, -missing)
		switch {
		case claim.Lease != "":
		case missing > 0:
			_ = g.Charge(ctx, []weir.Claim{claim}, nil)
		case missing < 0:
			_ = g.Refund(ctx, []weir.Claim{claim}, c.taken, nil)
		}
	}
}

// respond gives back what a response does not count, and bans by what it counts. It is for a single rule with count_if.
func (g *slowGate) respond(charges []charge, status int) {
	counted := make(map[*rules.Rule]bool)
	for _, c := range charges {
		rule := c.rule
		if !rule.HasCountIf() {
			continue
		}
		if status != 0 && !rule.Counts(status, nil) {
			claim := g.inForce(c)
			_ = g.Refund(context.Background(), []weir.Claim{claim}, c.taken, nil)
			continue
		}
		shadow := strings.HasPrefix(c.claim.Key, "shadow ")
		if rule.Bans() != nil && !shadow && !counted[rule] {
			counted[rule] = true
			g.ban(&slowRequest{}, rule, c.claim.Key, 1)
		}
	}
}

// release ends leases, and reports whether all were held.
func (g *slowGate) release(charges []charge) (held bool) {
	held = true
	for _, c := range charges {
		if c.claim.Lease != "" && g.Refund(context.Background(), []weir.Claim{g.inForce(c)}, c.taken, nil) != nil {
			held = false
		}
	}
	return held
}

// reset forgets all that a request is counted in.
func (g *slowGate) reset(request *rules.Request) {
	r := &slowRequest{request: request, ask: new(gate.Ask)}
	for _, rule := range g.set.Rules() {
		prefix := "shadow "
		if enforced(rule, r) {
			prefix = ""
		}
		for _, c := range g.claimsOf(rule, r, prefix) {
			g.forget(c.claim.Key, c.claim.Limit)
			if bans := rule.Bans(); c.ban {
				g.forget(c.claim.Key, bans.Refusals)
				g.forget(c.claim.Key, bans.Turn)
				g.forget(c.claim.Key, bans.Past)
			}
			if rule.Candidate() != nil && prefix == "" && c.claim.Limit == rule.Limits()[0] {
				for _, limit := range rule.Candidate().Limits() {
					g.forget(c.claim.Key, limit)
				}
			}
		}
	}
}
