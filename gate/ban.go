package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Ban is a ban that a request caused by its last refusal.
type Ban struct {
	Rule        *rules.Rule
	Key         string        // as Rule.AppendKey makes it
	Length      time.Duration // of the ban
	From, Until weir.Instant  // by the clock of the store
	Local       bool          // in this process alone, because the store did not answer
}

// maxBans is the number of bans that a gate remembers for Bans.
const maxBans = 1000

// countTimeout bounds how long counting a refusal delays its answer, unless the store's timeout is longer.
const countTimeout = time.Second

// count counts the refusals of rules with bans, with one call of the store for a batch, and bans the keys with too
// many of them. No answer depends on it: an error of the store is dropped here, and the next refusal tries again.
func (g *Gate) count(ctx context.Context, questions []Question) {
	var all []banCounter
	for i := range questions {
		q := &questions[i]
		if v := q.Verdict; q.Err == nil && v.counts(q.Ask.Times) {
			all = v.refusals(all, q.Ask.Times)
		}
	}
	g.countAndBan(ctx, all)
}

// refusals appends the refusals of rules with bans, and the bans that last longer than their rule says.
func (v *Verdict) refusals(list []banCounter, times int64) []banCounter {
	for i := range v.enforced {
		a := &v.about[i]
		if v.bans(i) && v.decisions[i].RetryAfter > slices.Max(a.rule.Bans().Lengths)+time.Second {
			list = append(list, banCounter{bans: a.rule.Bans(), by: a.by, key: v.claims[i].Key,
				told: &v.decisions[i], excess: v.decisions[i].RetryAfter - slices.Max(a.rule.Bans().Lengths)})
		}
		if !a.ban || a.by == nil || v.bans(i) || a.rule.Bans().Counted || !v.refuses(a.rule) {
			continue
		}
		bans := a.rule.Bans()
		list = append(list, banCounter{banned: &v.banned, rule: a.rule, bans: bans, by: a.by, key: v.claims[i].Key,
			times: min(times-v.Granted, bans.Refusals.Most())})
	}
	return list
}

// countAndBan counts refusals, and bans the keys that had too many.
func (g *Gate) countAndBan(ctx context.Context, list []banCounter) {
	if len(list) == 0 {
		return
	}
	// Counting outlasts the request: otherwise a client could avoid it by hanging up.
	ctx, cancel := g.detached(ctx)
	defer cancel()
	list = g.shortenBans(ctx, list)
	g.countRefusals(ctx, list)
	for i := range list {
		p := &list[i]
		if !p.tooMany {
			continue
		}
		length, at := p.ban(ctx)
		if length == 0 {
			continue
		}
		ban := Ban{Rule: p.rule, Key: strings.Clone(p.key), Length: length, From: at,
			Until: at + weir.Instant(length.Microseconds()), Local: p.by != g.store}
		*p.banned = append(*p.banned, ban)
		g.list.add(ban)
		if g.register != nil && !ban.Local { // where this fails, this node alone lists the ban
			_ = g.register.Register(ctx, banRegister, ban.name(), ban.note(), length)
		}
	}
}

// shortenBans takes the bans that last too long from the list. A ban keeps its length when its rule is changed, but if
// the store's clock was ahead of its present time, the ban may last for as long as the clock was ahead.
func (g *Gate) shortenBans(ctx context.Context, list []banCounter) []banCounter {
	clock, ok := g.register.(interface{ Behind() bool })
	return slices.DeleteFunc(list, func(p banCounter) bool {
		if ok && p.excess > 0 && p.by == g.store && clock.Behind() {
			p.shorten(ctx)
		}
		return p.excess > 0
	})
}

// shorten makes a ban end sooner, also in the answer. If two requests do so at the same time, both may charge the ban,
// which then lasts twice as long until the next request shortens it. After an error the next request tries again.
func (p *banCounter) shorten(ctx context.Context) {
	p.told.RetryAfter -= p.excess
	p.told.ResetAfter = p.told.RetryAfter
	if p.by.Reset(ctx, []weir.Claim{p.claim(p.bans.Hold, 0)}) == nil {
		whole := p.told.RetryAfter.Microseconds() + p.bans.Hold.Capacity() // the bucket's units are used up first
		_ = p.by.Charge(ctx, []weir.Claim{p.claim(p.bans.Hold, whole)}, nil)
	}
}

// countRefusals charges refusals, and notes the keys that had too many.
func (g *Gate) countRefusals(ctx context.Context, list []banCounter) {
	batcher, together := g.store.(weir.Batcher)
	var requests []weir.Request
	var places []int
	for i := range list {
		p := &list[i]
		if !together || len(list) == 1 || p.by != g.store || p.times != 1 {
			p.count(ctx)
			continue
		}
		claims := p.claims()
		requests = append(requests, weir.Request{Claims: claims, Times: 1,
			Decisions: make([]weir.Decision, len(claims))})
		places = append(places, i)
	}
	if len(requests) == 0 {
		return
	}
	batcher.DecideBatch(ctx, requests)
	for j, i := range places {
		r := &requests[j]
		list[i].counted(r.Granted, r.Decisions, r.Err)
	}
}

// A Register keeps notes in a store that several nodes share, each for a limited time, such as
// redisstore.Store. It is bounded: notes that end first may be dropped first.
type Register interface {
	Register(ctx context.Context, register, name, note string, last time.Duration) error
	Registered(ctx context.Context, register string) (notes map[string]string, err error)
}

// WithRegister notes bans in a register, so that Bans lists the bans of all nodes, and bans from before a restart.
func WithRegister(register Register) Option { return func(g *Gate) { g.register = register } }

// banRegister is the register of all bans.
const banRegister = "bans"

// name is the name of the ban's note. Names of rules have no spaces.
func (b *Ban) name() string { return b.Rule.Name() + " " + b.Key }

// note holds the start and the length of the ban.
func (b *Ban) note() string { return fmt.Sprintf("%d %d", b.From, b.Length.Microseconds()) }

// noted are the bans in the register of rules in force, without the bans of listed.
func (g *Gate) noted(ctx context.Context, listed []Ban) (list []Ban, err error) {
	if g.register == nil {
		return nil, nil
	}
	notes, err := g.register.Registered(ctx, banRegister)
	if err != nil {
		return nil, err
	}
	for _, ban := range listed {
		if !ban.Local {
			delete(notes, ban.name())
		}
	}
	byName := banningRules(g.Rules())
	for name, note := range notes {
		rule, key, _ := strings.Cut(name, " ")
		var from, micros int64
		if _, err := fmt.Sscanf(note, "%d %d", &from, &micros); err != nil || byName[rule] == nil {
			continue
		}
		list = append(list, Ban{Rule: byName[rule], Key: key, From: weir.Instant(from),
			Length: time.Duration(micros) * time.Microsecond})
	}
	slices.SortFunc(list, func(a, b Ban) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Key, b.Key)) })
	return list, nil
}

// bans reports whether the ith claim is a ban in force.
func (v *Verdict) bans(i int) bool {
	a := &v.about[i]
	return a.ban && a.by != nil && v.decisions[i].RetryAfter != 0
}

// refuses reports whether a limit of the rule refuses the request.
func (v *Verdict) refuses(rule *rules.Rule) bool {
	for i := range v.enforced {
		a := &v.about[i]
		if a.rule == rule && !a.ban && !a.aside && !a.repeated && a.by != nil && v.decisions[i].RetryAfter != 0 {
			return true
		}
	}
	return false
}

// A banCounter counts the refusals of one rule and key, or the requests that its count_if counts.
type banCounter struct {
	banned  *[]Ban // gets the ban
	rule    *rules.Rule
	bans    *rules.Bans
	by      weir.Store
	key     string
	times   int64
	told    *weir.Decision
	excess  time.Duration // if it is not 0, this is no refusal to be counted, but a ban that lasts so much too long
	tooMany bool
	err     error // the store's; nothing was counted, or it is unknown
}

func (p *banCounter) claim(limit *weir.Limit, cost int64) weir.Claim {
	return weir.Claim{Key: p.key, Limit: limit, Cost: cost}
}

// claims count one refusal. The response of a request that was under way when a ban began does not count towards the
// next ban, as no refusal does during a ban.
func (p *banCounter) claims() []weir.Claim {
	claims := []weir.Claim{p.claim(p.bans.Refusals, 1)}
	if p.bans.Counted {
		claims = append(claims, p.claim(p.bans.Hold, 0))
	}
	return claims
}

// count charges the refusals.
func (p *banCounter) count(ctx context.Context) {
	claims := p.claims()
	d := make([]weir.Decision, len(claims))
	granted, err := p.by.Decide(ctx, claims, p.times, d)
	p.counted(granted, d, err)
}

// counted takes the store's answer.
func (p *banCounter) counted(granted int64, d []weir.Decision, err error) {
	held := len(d) > 1 && d[1].RetryAfter != 0
	p.tooMany = err == nil && !held && (granted < p.times || d[0].Remaining == 0)
	p.err = err
}

// ban bans the key, unless another node or request does, or has. Many may get here at once, by refusals at the
// same time or by decisions before the ban: the Turn limit grants one of them.
func (p *banCounter) ban(ctx context.Context) (length time.Duration, at weir.Instant) {
	var d [3]weir.Decision
	turn := []weir.Claim{p.claim(p.bans.Turn, 1), p.claim(p.bans.Hold, 0), p.claim(p.bans.Past, 0)}
	if granted, err := p.by.Decide(ctx, turn, 1, d[:]); err != nil || granted == 0 {
		return 0, 0
	}
	// The ban and its level are charged together: no level is skipped.
	lengths, left := p.bans.Lengths, d[2].Remaining
	length = lengths[min(int64(len(lengths))-left, int64(len(lengths))-1)]
	cost := length.Microseconds() + d[1].Remaining // the units left in the bucket are used up first
	charges := []weir.Claim{p.claim(p.bans.Hold, cost), p.claim(p.bans.Past, min(left, 1))}
	if err := p.by.Charge(ctx, charges, d[:2]); err != nil {
		return 0, 0
	}
	// A new ban takes as many refusals as this one did.
	p.by.Reset(ctx, []weir.Claim{p.claim(p.bans.Refusals, 0)})
	return length, d[0].At
}

// Banned are the bans that this request caused.
func (v *Verdict) Banned() []Ban { return v.banned }

// Lift deletes a key's ban, its earlier bans and its counted refusals. key is a key as the rule's AppendKey
// makes it, or a Ban's Key.
func (g *Gate) Lift(ctx context.Context, rule *rules.Rule, key string) error {
	if rule == nil || rule.Bans() == nil {
		return &weir.InputError{Field: "rule", Given: nameOf(rule), Allowed: "a rule that has a ban"}
	}
	if err := g.store.Reset(ctx, banClaims(nil, rule.Bans(), key)); err != nil {
		return err
	}
	if g.register != nil { // a ban that does not hold is not listed, noted or not
		ban := Ban{Rule: rule, Key: key}
		_ = g.register.Register(ctx, banRegister, ban.name(), "", 0)
	}
	if g.local != nil {
		return g.local.Reset(ctx, banClaims(nil, rule.Bans(), key))
	}
	return nil
}

func nameOf(rule *rules.Rule) string {
	if rule == nil {
		return "none"
	}
	return rule.Name()
}

// banClaims appends claims on all state of a key's bans.
func banClaims(claims []weir.Claim, b *rules.Bans, key string) []weir.Claim {
	for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
		claims = append(claims, weir.Claim{Key: key, Limit: limit})
	}
	return claims
}

// Bans are the bans in force, by the store and the current rules, in the order of their start; bans of the local store
// come last. With WithRegister they are the bans of all nodes, as many as the register keeps; without it the last 1,000
// of this gate, because a store cannot be searched for keys.
func (g *Gate) Bans(ctx context.Context) ([]Ban, error) {
	var holding []Ban
	all := g.list.by(g.Rules())
	noted, err := g.noted(ctx, all)
	if err != nil && !slices.ContainsFunc(all, func(b Ban) bool { return b.Local }) {
		return nil, err
	}
	all = append(all, noted...)
	slices.SortStableFunc(all, func(a, b Ban) int { return cmp.Compare(a.From, b.From) })
	for _, local := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(all), func(b Ban) bool { return b.Local != local })
		for some := range slices.Chunk(some, weir.MaxClaims) {
			if err := g.holding(ctx, some); err != nil {
				return nil, err
			}
			holding = append(holding, slices.DeleteFunc(some, func(b Ban) bool { return b.Until == 0 })...)
		}
	}
	return holding, nil
}

// holding updates Until; it is 0 where a ban is over or was lifted.
func (g *Gate) holding(ctx context.Context, bans []Ban) error {
	by := g.store
	if bans[0].Local {
		by = g.local
	}
	claims, d := make([]weir.Claim, len(bans)), make([]weir.Decision, len(bans))
	for i := range bans {
		claims[i] = weir.Claim{Key: bans[i].Key, Limit: bans[i].Rule.Bans().Hold}
	}
	if _, err := by.Decide(ctx, claims, 0, d); err != nil {
		return err
	}
	for i := range bans {
		bans[i].Until = 0
		if wait := d[i].RetryAfter; wait != 0 {
			bans[i].Until = d[i].At + weir.Instant(wait.Microseconds())
		}
	}
	return nil
}

// A banList holds the last bans of a gate, one for each rule and key.
type banList struct {
	mu   sync.Mutex
	bans []listedBan
}

// A listedBan holds the name of its rule instead of a pointer: a rule keeps its whole set in memory, and bans
// outlive sets.
type listedBan struct {
	Ban
	rule string
}

func (l *banList) add(ban Ban) {
	one := listedBan{ban, ban.Rule.Name()}
	one.Rule = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bans = slices.DeleteFunc(l.bans, func(b listedBan) bool {
		return b.rule == one.rule && b.Key == ban.Key || b.Local == ban.Local && b.Until <= ban.From
	})
	if len(l.bans) == maxBans {
		l.bans = slices.Delete(l.bans, 0, 1)
	}
	l.bans = append(l.bans, one)
}

// by lists the bans of rules that still have a ban in the set.
func (l *banList) by(set *rules.Set) (list []Ban) {
	byName := banningRules(set)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.bans {
		if one.Rule = byName[one.rule]; one.Rule != nil {
			list = append(list, one.Ban)
		}
	}
	return list
}

// banningRules are the enforced rules with a ban, by name.
func banningRules(set *rules.Set) map[string]*rules.Rule {
	named := make(map[string]*rules.Rule)
	for _, rule := range set.Rules() {
		if rule.Bans() != nil && rule.Mode() != rules.Shadow {
			named[rule.Name()] = rule
		}
	}
	return named
}
