// Package gate is the judge: it turns a request into a verdict. It finds the rules that are
// for the request, builds their keys and claims, asks the store once about all of them, and
// says what came of it, which rule decided and why. It is the only package with policy in
// it: what becomes of a request while the store does not answer, or of a rule that is only
// tried out, is decided here.
//
// # Order
//
// The file's deny list, then its allow list; the matching rules in the order of the file,
// each with its own lists; then the store. Whoever is denied is charged nothing. All
// enforced rules are one decision: what one refuses, none is charged for.
//
// # Shadow rules
//
// A rule in mode shadow is asked when all enforced rules have granted, each by itself and
// on keys of its own: it changes nobody's budget and nobody's answer, and costs a call of
// the store. What it says stands in the verdict. A rule with an enforce_percent is a shadow
// rule for the keys that it is not enforced for.
//
// # Candidates
//
// A rule's candidate is asked when the decision has fallen, about what all others would grant:
// also where the rule itself refuses. It is counted under a name of its own, as if it were in
// the rule's place, and changes nobody's answer. It costs a call of the store. It is not asked
// about keys with an override, about who is banned, and while the store does not answer.
//
// # Bans
//
// A rule with a ban has one more claim in the decision, of cost 0: it refuses whoever is
// banned, at no extra call. What a rule refuses is counted, by a call after the decision; when
// the refusals are too many, three more calls ban: one that only one of all nodes is granted,
// one that charges the ban and how often it happened, one that forgets the refusals. Who is
// banned is not counted as refused by that rule. All of it lies in the store that decided:
// while that is the local one, this process bans by itself. Shadow rules ban nobody.
//
// # When the store does not answer
//
// Each rule says what then (on_store_error). If one that matched says deny, the request
// fails. Otherwise the rules that say local are decided together by the local store, which
// is this process's alone; those that say allow are left out. Input that is wrong and a
// context that is over are errors instead: or clients could provoke them in order to pass.
package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Gate decides requests by the rules that are in force. It is safe for concurrent use.
type Gate struct {
	store, local weir.Store
	set          atomic.Pointer[rules.Set]
	now          func() time.Time
	list         banList
	register     Register // nil: bans are listed by this process alone
	trials       atomic.Pointer[map[*rules.Rule]*trial]
	swapping     sync.Mutex
	budget       budget
	observers    []func(*Verdict)
}

// An Option changes what New makes.
type Option func(*Gate)

// WithLocal gives the store that decides for rules with on_store_error: local while the
// store does not answer: an embedded one, of this process alone.
func WithLocal(local weir.Store) Option { return func(g *Gate) { g.local = local } }

// WithObserver has observe told of each verdict, before Decide returns it. It runs in the
// request's way, from many goroutines: it must be quick, and keep nothing of the verdict.
func WithObserver(observe func(*Verdict)) Option {
	return func(g *Gate) { g.observers = append(g.observers, observe) }
}

// WithClock gives the time that schedules are read by, instead of time.Now. Limits know
// only their store's clock.
func WithClock(now func() time.Time) Option { return func(g *Gate) { g.now = now } }

// New makes a gate with rules in force. It fails where a rule falls back to a local store
// and none is given.
func New(store weir.Store, set *rules.Set, opts ...Option) (*Gate, error) {
	if store == nil {
		return nil, errors.New("gate: the store is nil; give one, such as memstore.New()")
	}
	g := &Gate{store: store, now: time.Now}
	for _, opt := range opts {
		opt(g)
	}
	return g, g.Swap(set)
}

// Swap puts other rules in force, at once and as a whole: a request sees the old or the
// new ones. On an error nothing changes.
func (g *Gate) Swap(set *rules.Set) error {
	if set == nil {
		return errors.New("gate: the rules are nil; for none, compile an empty rules.File")
	}
	if g.local == nil {
		for _, rule := range set.Rules() {
			if rule.OnStoreError() == rules.Local {
				return fmt.Errorf("gate: rule %q falls back to a local store, and there is none: use WithLocal, or set its on_store_error to allow or deny", rule.Name())
			}
		}
	}
	g.swapping.Lock()
	defer g.swapping.Unlock()
	var before map[*rules.Rule]*trial
	if p := g.trials.Load(); p != nil {
		before = *p
	}
	after := trials(set, before, g.now())
	g.trials.Store(&after) // before the rules, so that what they decide is counted
	g.set.Store(set)
	return nil
}

// Rules are those in force.
func (g *Gate) Rules() *rules.Set { return g.set.Load() }

// An Ask is how to decide a request, besides what it is. The zero Ask only looks; Once is
// the usual one.
type Ask struct {
	// Times is how many identical requests ask at once. 0 changes nothing, and tells of
	// shadow rules whatever the others say.
	Times int64
	// Cost is the units that each request takes, for the rules that do not state a number;
	// nil leaves it to them.
	Cost *int64
	// Lease is the id under which concurrency limits are held; "" makes one. The same id
	// again is the same lease: a repeat is safe.
	Lease string
	// Claims are the caller's own, decided together with those of the rules. While the
	// store does not answer they are refused.
	Claims []weir.Claim
	// Aside are claims of a door's own that limit nobody, such as the lease by which a
	// reservation is settled only once. They are decided with the others and never give
	// the reason; while the store does not answer they are left out.
	Aside []weir.Claim
}

// Once is a request that asks for itself, by the costs of the rules.
var Once = Ask{Times: 1}

// Decide fills v with what becomes of the request. No request (nil) matches no rule: then
// only ask.Claims are decided. The error is a *weir.InputError for what is wrong with the
// request or the ask, or the context's: nothing was granted then, and v says so.
func (g *Gate) Decide(ctx context.Context, r *rules.Request, ask Ask, v *Verdict) error {
	var began time.Time
	if len(g.observers) > 0 {
		began = time.Now()
	}
	ctx, done := g.budget.begin(ctx)
	defer done()
	v.reset(g)
	v.Times = ask.Times
	err := g.decide(ctx, r, &ask, v)
	if err != nil {
		v.fail(err)
	}
	if len(g.observers) > 0 {
		v.Took = time.Since(began)
		for _, observe := range g.observers {
			observe(v)
		}
	}
	return err
}

func (g *Gate) decide(ctx context.Context, r *rules.Request, ask *Ask, v *Verdict) error {
	if r != nil {
		if done, err := v.match(g.set.Load(), r, ask); done || err != nil {
			return err
		}
	}
	for _, claim := range ask.Claims {
		v.add(nil, claim)
	}
	for _, claim := range ask.Aside {
		v.add(nil, claim)
		v.about[len(v.about)-1].aside = true
	}
	v.enforced = len(v.claims)
	if v.enforced > 0 {
		if err := g.enforce(ctx, ask, v); err != nil || v.Outcome == Failed {
			return err
		}
	} else {
		v.Granted = ask.Times
	}
	if v.bannable && v.Granted < ask.Times {
		g.count(ctx, ask.Times, v)
	}
	g.compare(ctx, r, ask, v)
	if r != nil && (v.Granted > 0 || ask.Times == 0) {
		g.shadow(ctx, r, ask, v)
	}
	return nil
}

// enforce asks about the claims that count.
func (g *Gate) enforce(ctx context.Context, ask *Ask, v *Verdict) error {
	v.hold(0, ask)
	granted, err := g.store.Decide(ctx, v.claims, ask.Times, v.room(len(v.claims)))
	if err != nil {
		return g.fallBack(ctx, ask.Times, v, err)
	}
	v.decided(0, g.store, granted)
	v.judge(ask.Times)
	return nil
}

// fallBack answers for a store that did not.
func (g *Gate) fallBack(ctx context.Context, times int64, v *Verdict, failure error) error {
	var input *weir.InputError
	switch {
	case v.crowded():
		if g.decideApart(ctx, times, v) {
			return nil
		}
		failure = ErrTooManyClaims
	case errors.As(failure, &input):
		return failure
	}
	if err := callerLeft(ctx); err != nil {
		return err
	}
	v.Err = failure
	var claims []weir.Claim
	var places []int
	for i, about := range v.about {
		switch {
		case about.aside:
		case about.rule == nil || about.rule.OnStoreError() == rules.RefuseAll:
			v.Outcome, v.Reason, v.Rule = Failed, StoreFailed, about.rule
			return nil
		case about.rule.OnStoreError() == rules.Local:
			claims, places = append(claims, v.claims[i]), append(places, i)
		}
	}
	if len(claims) == 0 {
		v.Reason, v.Granted = StoreFailed, times
		return nil
	}
	decisions := make([]weir.Decision, len(claims))
	granted, err := decideInParts(ctx, g.local, claims, times, decisions)
	if err != nil {
		v.Outcome, v.Reason, v.Err = Failed, StoreFailed, errors.Join(failure, err)
		return nil
	}
	for j, i := range places {
		v.decisions[i] = decisions[j]
		v.about[i].by, v.about[i].granted = g.local, granted
	}
	v.judge(times)
	return nil
}

// shadow asks the rules that are tried out, each by itself. What goes wrong with them is
// not the request's business.
func (g *Gate) shadow(ctx context.Context, r *rules.Request, ask *Ask, v *Verdict) {
	times := ask.Times
	if times > 0 {
		times = v.Granted
	}
	for _, rule := range v.matched {
		if !v.tries(rule, r) {
			continue
		}
		from := len(v.claims)
		if why, _ := v.apply(rule, r, ask, true); why != applies {
			v.skips = append(v.skips, Skip{rule, why})
			continue
		}
		v.hold(from, ask)
		granted, err := g.store.Decide(ctx, v.claims[from:], times, v.room(len(v.claims))[from:])
		if err != nil {
			v.truncate(from)
			v.skips = append(v.skips, Skip{rule, Unasked})
			continue
		}
		v.decided(from, g.store, granted)
	}
}
