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
// A rule in mode shadow is asked where all enforced rules grant, each by itself and on keys of its
// own: it changes nobody's budget and nobody's answer. What it says stands in the verdict. A rule
// with an enforce_percent is a shadow rule for the keys that it is not enforced for.
//
// # Candidates
//
// A rule's candidate is asked about what all others would grant: also where the rule itself refuses.
// It is counted under a name of its own, as if it were in the rule's place, and changes nobody's
// answer. It is not asked about keys with an override, about clients that are banned, and while the
// store does not answer.
//
// # Calls of the store
//
// Where the store is a weir.Batcher, shadow rules and candidates join the call of the enforced
// rules. That call is made before it is known whether the request passes: where it does not, what
// they were charged is given back by a call more, and until then concurrent requests meet it. A
// layer that refuses without asking the store leaves them out. DecideBatch decides many requests in
// one call, and asks about shadow rules and candidates in a second, when it is known which pass.
// After an error of the store nothing more is asked.
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
	batcher      weir.Batcher // store, if it is one
	batches      sync.Pool    // of *batch
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
	g.batcher, _ = store.(weir.Batcher)
	g.batches.New = func() any { return new(batch) }
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
	v.start(g, ask.Times)
	err := g.decide(ctx, r, &ask, v)
	g.conclude(v, err, began)
	return err
}

// start makes a verdict ready for a request.
func (v *Verdict) start(g *Gate, times int64) {
	v.reset(g)
	v.Times = times
}

// conclude notes an error, and calls the observers.
func (g *Gate) conclude(v *Verdict, err error, began time.Time) {
	if err != nil {
		v.fail(err)
	}
	if len(g.observers) == 0 {
		return
	}
	v.Took = time.Since(began)
	for _, observe := range g.observers {
		observe(v)
	}
}

func (g *Gate) decide(ctx context.Context, r *rules.Request, ask *Ask, v *Verdict) error {
	if done, err := v.prepare(g.set.Load(), r, ask); done || err != nil {
		return err
	}
	v.follow(r, ask)
	if len(v.followers) > 0 {
		return g.decideWithFollowers(ctx, ask, v)
	}
	if v.enforced == 0 {
		v.Granted = ask.Times
		return nil
	}
	granted, err := g.store.Decide(ctx, v.claims, ask.Times, v.room(len(v.claims)))
	if err := g.enforced(ctx, ask.Times, v, granted, err); err != nil {
		return err
	}
	if v.counts(ask.Times) {
		g.count(ctx, ask.Times, v)
	}
	return nil
}

// prepare makes the claims that count. done says that the store need not be asked.
func (v *Verdict) prepare(set *rules.Set, r *rules.Request, ask *Ask) (done bool, err error) {
	if r != nil {
		if done, err := v.match(set, r, ask); done || err != nil {
			return true, err
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
	v.hold(0, ask)
	return false, nil
}

// enforced is what the store said of the claims that count.
func (g *Gate) enforced(ctx context.Context, times int64, v *Verdict, granted int64, err error) error {
	if err != nil {
		return g.fallBack(ctx, times, v, err)
	}
	v.decided(0, v.enforced, g.store, granted)
	v.judge(times)
	return nil
}

// counts reports whether refusals are to be counted towards bans.
func (v *Verdict) counts(times int64) bool {
	return v.bannable && v.Outcome != Failed && v.Granted < times
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
	for i, about := range v.about[:v.enforced] {
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
