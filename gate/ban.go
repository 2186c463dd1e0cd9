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

// A Ban is one that a request brought about, by being refused once more.
type Ban struct {
	Rule        *rules.Rule
	Key         string        // whose, as Rule.AppendKey makes it
	Length      time.Duration // of the ban
	From, Until weir.Instant  // by the clock of the store
	Local       bool          // it is this process's alone, because the store did not answer
}

const (
	// maxBans is how many bans a gate remembers, so that Bans can list them.
	maxBans = 1000
	// counting is the most that counting a refusal keeps the refused waiting.
	counting = time.Second
)

// count counts what rules with bans have refused, and bans whoever was refused too often.
// Nobody's answer depends on it: what goes wrong with the store here is not told, and the
// next refusal tries again.
func (g *Gate) count(ctx context.Context, times int64, v *Verdict) {
	g.punish(ctx, v.refusals(nil, times))
}

// countAll is count for a batch, with one call of the store for all that were refused.
func (g *Gate) countAll(ctx context.Context, questions []Question) {
	var all []punishing
	for i := range questions {
		q := &questions[i]
		if v := q.Verdict; q.Err == nil && v.counts(q.Ask.Times) {
			all = v.refusals(all, q.Ask.Times)
		}
	}
	g.punish(ctx, all)
}

// refusals appends what the rules with bans have refused.
func (v *Verdict) refusals(list []punishing, times int64) []punishing {
	for i := range v.enforced {
		a := &v.about[i]
		if !a.ban || a.by == nil || v.bans(i) || !v.refuses(a.rule) {
			continue
		}
		bans := a.rule.Bans()
		list = append(list, punishing{v: v, rule: a.rule, bans: bans, by: a.by, key: v.claims[i].Key,
			times: min(times-v.Granted, bans.Refusals.Most())})
	}
	return list
}

// punish counts refusals, and bans where there were too many.
func (g *Gate) punish(ctx context.Context, list []punishing) {
	if len(list) == 0 {
		return
	}
	// A client may leave before its refusal is counted, or hang up so that it is not.
	ctx, cancel := outlasting(ctx, counting)
	defer cancel()
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
		p.v.banned = append(p.v.banned, ban)
		g.list.add(ban)
		if g.register != nil && !ban.Local { // where this fails, this node alone lists the ban
			_ = g.register.Register(ctx, banRegister, ban.name(), ban.note(), length)
		}
	}
}

// countRefusals charges refusals, and notes which were too many.
func (g *Gate) countRefusals(ctx context.Context, list []punishing) {
	batcher, together := g.store.(weir.Batcher)
	var requests []weir.Request
	var places []int
	for i := range list {
		p := &list[i]
		if !together || len(list) == 1 || p.by != g.store || p.times != 1 {
			p.count(ctx)
			continue
		}
		claims := []weir.Claim{p.claim(p.bans.Refusals, 1)}
		requests = append(requests, weir.Request{Claims: claims, Times: 1, Decisions: make([]weir.Decision, 1)})
		places = append(places, i)
	}
	if len(requests) == 0 {
		return
	}
	batcher.DecideBatch(ctx, requests)
	for j, i := range places {
		r := &requests[j]
		list[i].counted(r.Granted, r.Decisions[0].Remaining, r.Err)
	}
}

// A Register keeps notes in a store that several nodes share, each for a while, such as
// redisstore.Store. It is bounded: it may forget those that end first.
type Register interface {
	Register(ctx context.Context, register, name, note string, last time.Duration) error
	Registered(ctx context.Context, register string) (notes map[string]string, err error)
}

// WithRegister has bans noted where other nodes find them, and where this one does after a restart:
// Bans lists them too.
func WithRegister(register Register) Option { return func(g *Gate) { g.register = register } }

// banRegister is the register of all bans.
const banRegister = "bans"

// name is what the ban is noted under. Names of rules have no spaces.
func (b *Ban) name() string { return b.Rule.Name() + " " + b.Key }

// note is when the ban began and how long it is.
func (b *Ban) note() string { return fmt.Sprintf("%d %d", b.From, b.Length.Microseconds()) }

// noted are the bans of the register that rules in force put, but for those of a list.
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
	banning := banning(g.Rules())
	for name, note := range notes {
		rule, key, _ := strings.Cut(name, " ")
		var from, micros int64
		if _, err := fmt.Sscanf(note, "%d %d", &from, &micros); err != nil || banning[rule] == nil {
			continue
		}
		list = append(list, Ban{Rule: banning[rule], Key: key, From: weir.Instant(from), Length: time.Duration(micros) * time.Microsecond})
	}
	slices.SortFunc(list, func(a, b Ban) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Key, b.Key)) })
	return list, nil
}

// bans reports whether the ith claim is the ban of somebody who is banned.
func (v *Verdict) bans(i int) bool {
	a := &v.about[i]
	return a.ban && a.by != nil && v.decisions[i].RetryAfter != 0
}

// refuses reports whether a limit of the rule does.
func (v *Verdict) refuses(rule *rules.Rule) bool {
	for i := range v.enforced {
		if a := &v.about[i]; a.rule == rule && !a.ban && a.by != nil && v.decisions[i].RetryAfter != 0 {
			return true
		}
	}
	return false
}

// punishing counts the refusals of one rule and key.
type punishing struct {
	v       *Verdict
	rule    *rules.Rule
	bans    *rules.Bans
	by      weir.Store
	key     string
	times   int64
	tooMany bool
}

func (p *punishing) claim(limit *weir.Limit, cost int64) weir.Claim {
	return weir.Claim{Key: p.key, Limit: limit, Cost: cost}
}

// count charges the refusals.
func (p *punishing) count(ctx context.Context) {
	var d [1]weir.Decision
	granted, err := p.by.Decide(ctx, []weir.Claim{p.claim(p.bans.Refusals, 1)}, p.times, d[:])
	p.counted(granted, d[0].Remaining, err)
}

// counted is told what the store said.
func (p *punishing) counted(granted, remaining int64, err error) {
	p.tooMany = err == nil && (granted < p.times || remaining == 0)
}

// ban bans, unless somebody else does or has. Many may come here at once, because they were
// refused at once, or by a decision before the ban: one of them has its turn.
func (p *punishing) ban(ctx context.Context) (length time.Duration, at weir.Instant) {
	var d [3]weir.Decision
	turn := []weir.Claim{p.claim(p.bans.Turn, 1), p.claim(p.bans.Hold, 0), p.claim(p.bans.Past, 0)}
	if granted, err := p.by.Decide(ctx, turn, 1, d[:]); err != nil || granted == 0 {
		return 0, 0
	}
	// The ban and what is remembered of it are charged together: a level is never skipped.
	lengths, left := p.bans.Lengths, d[2].Remaining
	length = lengths[min(int64(len(lengths))-left, int64(len(lengths))-1)]
	debt := length.Microseconds() + d[1].Remaining // what is left of the bucket is no debt
	charges := []weir.Claim{p.claim(p.bans.Hold, debt), p.claim(p.bans.Past, min(left, 1))}
	if err := p.by.Charge(ctx, charges, d[:2]); err != nil {
		return 0, 0
	}
	// After the ban it takes as many refusals as before it.
	p.by.Reset(ctx, []weir.Claim{p.claim(p.bans.Refusals, 0)})
	return length, d[0].At
}

// Banned are the bans that this request brought about.
func (v *Verdict) Banned() []Ban { return v.banned }

// Lift forgets that a key was banned, how often, and what it was refused: as if never. key
// is what the rule's AppendKey makes of a request, or a Ban's Key.
func (g *Gate) Lift(ctx context.Context, rule *rules.Rule, key string) error {
	if rule == nil || rule.Bans() == nil {
		return &weir.InputError{Field: "rule", Given: nameOf(rule), Allowed: "a rule that has a ban"}
	}
	if err := g.store.Reset(ctx, lifted(nil, rule.Bans(), key)); err != nil {
		return err
	}
	if g.register != nil { // a ban that does not hold is not listed, noted or not
		ban := Ban{Rule: rule, Key: key}
		_ = g.register.Register(ctx, banRegister, ban.name(), "", 0)
	}
	if g.local != nil {
		return g.local.Reset(ctx, lifted(nil, rule.Bans(), key))
	}
	return nil
}

func nameOf(rule *rules.Rule) string {
	if rule == nil {
		return "none"
	}
	return rule.Name()
}

// lifted appends claims on all that is known of a key's bans.
func lifted(claims []weir.Claim, b *rules.Bans, key string) []weir.Claim {
	for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
		claims = append(claims, weir.Claim{Key: key, Limit: limit})
	}
	return claims
}

// Bans are those that hold by now, as the store and the rules in force say, in the order in which
// they were put, those of the local store last. They are those of all nodes with WithRegister, as
// many as it keeps, and without it the last 1,000 that this gate put: the store is asked about keys,
// and does not search them.
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

// holding brings Until up to date: 0 where a ban is over, or was lifted.
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

// A banList is the last bans that a gate put, of each rule and key the last.
type banList struct {
	mu   sync.Mutex
	bans []listedBan
}

// A listedBan has the name of its rule instead: a rule holds on to all others of its set, and
// bans last longer than sets do.
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

// by are those of rules that ban.
func (l *banList) by(set *rules.Set) (list []Ban) {
	banning := banning(set)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.bans {
		if one.Rule = banning[one.rule]; one.Rule != nil {
			list = append(list, one.Ban)
		}
	}
	return list
}

// banning are the rules that ban, by their names.
func banning(set *rules.Set) map[string]*rules.Rule {
	named := make(map[string]*rules.Rule)
	for _, rule := range set.Rules() {
		if rule.Bans() != nil && rule.Mode() != rules.Shadow {
			named[rule.Name()] = rule
		}
	}
	return named
}
