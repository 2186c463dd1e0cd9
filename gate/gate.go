// Package gate decides requests: it matches rules, builds their keys and claims, calls the store once for
// all of them, and returns a Verdict with the rule that decided and the reason. All policy is here: what
// happens while the store does not answer, and how shadow rules and candidates are treated.
//
// # Order
//
// The file's deny list, then its allow list; the matching rules in the order of the file, each with its own lists; then
// the store. A denied request is not charged. All enforced rules are one decision: if one refuses, no rule is charged.
//
// # Shadow rules
//
// A rule in mode shadow is decided if all enforced rules grant, separately and on other keys: it affects no budget and
// no answer. Its result is in the verdict. A rule with an enforce_percent is a shadow rule for the keys outside of the
// percentage.
//
// # Candidates
//
// A rule's candidate decides the requests that all other rules grant, also if its own rule refuses. It is counted under
// another name, as if it were in the rule's place, and affects no answer. It is left out for keys with an override, for
// banned clients, and while the store does not answer.
//
// # Calls of the store
//
// Where the store is a weir.Batcher, shadow rules and candidates share the call of the enforced rules,
// before the outcome of the request is known. If the request does not pass, their charges are refunded by a
// second call; until then concurrent requests see them. A layer that refuses without calling the store
// leaves them out. DecideBatch decides many requests in one call, and shadow rules and candidates in a
// second one, when the outcomes are known. After an error of the store there are no further calls.
//
// DecideTogether decides several requests as one: their enforced claims are one call, with equal claims added up. Rules
// with charge: full take a second call if a request does not fit, and a third for the rest of its cost.
//
// # Bans
//
// A rule with a ban has one more claim in the decision, of cost 0, which refuses banned keys at no extra call. A
// refusal of the rule is counted by a call after the decision. Too many refusals take three more calls: one that is
// granted to a single node, one that charges the ban and its level, and one that deletes the refusals. A ban's own
// refusals are not counted. All state is in the store that decided: while that is the local one, this process bans
// alone. Shadow rules do not ban.
//
// # Costs that are settled
//
// A receipt has the charges of a request, for Settle and its like when the cost is known. Until then the charge may be
// an estimate: Open counts such charges in Reserved. Rules with cost.learn estimate by the costs that this process
// settled before.
//
// # When the store does not answer
//
// Each rule's on_store_error decides. If a matching rule has deny, the request fails. Otherwise the local
// store, which belongs to this process alone, decides all rules that have local; rules that have allow are
// left out. Invalid input and an ended context are errors instead: otherwise clients could provoke them in
// order to pass.
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
	store, local   weir.Store
	set            atomic.Pointer[rules.Set]
	now            func() time.Time
	start          time.Time    // of the clock of latencies
	ahead          atomic.Int64 // ns by which the store's clock is ahead of the time since start; 0: not known
	list           banList
	register       Register // nil: Bans lists those of this process alone
	tallies        atomic.Pointer[map[*rules.Rule]*tally]
	batcher        weir.Batcher // store, if it is one
	batches        sync.Pool    // of *batch
	jointDecisions sync.Pool    // of *jointDecision
	swapping       sync.Mutex
	budget         budget
	observers      []func(*Verdict)
	countings      []func(*Counting)
	unfinished     unfinished
	learner        learner
	reserved       reserved
	geo            Geo                             // nil: none
	trace          func(context.Context, *Verdict) // nil: none
}

// An Option changes what New makes.
type Option func(*Gate)

// WithLocal sets an embedded store of this process. While the shared store does not answer, it decides the rules with
// on_store_error: local. A memstore, and the Store of a layers.Stack, need no local store.
func WithLocal(local weir.Store) Option { return func(g *Gate) { g.local = local } }

// WithClock sets the clock of rules' schedules, for tests and replays; the store has its clock.
func WithClock(now func() time.Time) Option { return func(g *Gate) { g.now = now } }

// WithObserver calls observe with each verdict before Decide returns. It runs on the request's goroutine,
// concurrently with others: it must be fast, and must not keep the verdict.
func WithObserver(observe func(*Verdict)) Option {
	return func(g *Gate) { g.observers = append(g.observers, observe) }
}

// WithTrace calls trace like an observer, with the context of the decision.
func WithTrace(trace func(context.Context, *Verdict)) Option {
	return func(g *Gate) { g.trace = trace }
}

// New makes a gate with a rule set in force. It fails if a rule has on_store_error: local and there is no
// WithLocal.
func New(store weir.Store, set *rules.Set, opts ...Option) (*Gate, error) {
	if store == nil {
		return nil, errors.New("gate: the store is nil; give one, such as memstore.New()")
	}
	g := &Gate{store: store, now: time.Now, start: time.Now()}
	g.batcher, _ = store.(weir.Batcher)
	g.batches.New = func() any { return new(batch) }
	g.jointDecisions.New = func() any { return new(jointDecision) }
	for _, opt := range opts {
		opt(g)
	}
	if f, ok := store.(interface {
		Fallback(limits []*weir.Limit) weir.Store
	}); ok && g.local == nil {
		g.local = f.Fallback(nil)
	}
	return g, g.Swap(set)
}

// Swap puts another rule set in force, atomically: a request is decided by the old or the new one. On an error the old
// one stays in force.
func (g *Gate) Swap(set *rules.Set) error {
	if set == nil {
		return errors.New("gate: the rules are nil; for none, compile an empty rules.File")
	}
	if g.local == nil {
		for _, rule := range set.Rules() {
			if rule.OnStoreError() == rules.Local {
				return fmt.Errorf("gate: rule %q falls back to a local store, and there is none: use WithLocal, or "+
					"set its on_store_error to allow or deny", rule.Name())
			}
		}
	}
	g.swapping.Lock()
	defer g.swapping.Unlock()
	var before map[*rules.Rule]*tally
	if p := g.tallies.Load(); p != nil {
		before = *p
	}
	after := tallies(set, before, g.now())
	adoptEndpoints(set, g.set.Load())
	g.tallies.Store(&after) // before the rules, so that their first decisions are counted
	g.set.Store(set)
	return nil
}

// Rules returns the rule set in force.
func (g *Gate) Rules() *rules.Set { return g.set.Load() }

// An Ask holds the parameters of a decision besides the request. The zero Ask decides without charging; Once
// is the usual one.
type Ask struct {
	// Times is the number of identical requests to decide at once. 0 charges no unit, and decides shadow rules whatever
	// the outcome.
	Times int64
	// Cost is the units of each request, for rules without a fixed cost; nil leaves it to the rules. It does not apply
	// to concurrency limits, which take the rule's own cost or 1: a slot is one request, however many tokens the
	// request takes. With a Cost of 0 they take nothing.
	Cost *int64
	// HoldsCost applies Cost to concurrency limits too: the caller asks for that many slots.
	HoldsCost bool
	// Lease is the id of the units that concurrency limits hold; "" generates one. A repeat with the same id is the
	// same lease, so it is safe.
	Lease string
	// ID makes the request count once for as long as Keep says: a repetition passes without a charge. See weir.Once. It
	// is for callers who choose ids themselves; "" is no id. A Reservation or lease is the first request's.
	ID   string
	Keep time.Duration
	// Claims are the caller's own claims, decided together with the claims of the rules. While the store does not
	// answer they are refused.
	Claims []weir.Claim
	// Aside are claims of a front end that limit no request, such as the lease that makes settling a
	// reservation idempotent. They are decided with the others and are never the reason; while the store does
	// not answer they are left out.
	Aside []weir.Claim
	// Override replaces the limits of the rules that are about the request's descriptors; nil if there is no Override.
	Override *Override
	// Rules decide instead of the rules in force. A front end that has routed a request by a rule set gives it here, so
	// that one version does both although another was put in force meanwhile. It must have been in force.
	Rules *rules.Set

	// Spent units of a decided request of DecideTogether may be used already: the request is decided apart from the
	// others, and charged even if it is refused. Its refusal refuses the call.
	Spent bool

	// Settles says that the caller is going to settle the receipt by the response, between Open and its end: what rules
	// with cost.settle charge is an estimate until then. Only observers see the difference.
	Settles bool

	replaced []string // aliases that the rules of other requests of the call replace
}

// Once is one request, at the costs of the rules.
var Once = Ask{Times: 1}

// Decide fills v with the outcome of the request. A nil request matches no rule: then only ask.Claims are decided. The
// error is a *weir.InputError for an invalid request or ask, or the context's; then the request was not granted, and v
// says so.
func (g *Gate) Decide(ctx context.Context, r *rules.Request, ask Ask, v *Verdict) error {
	began := g.began()
	bounded, done := g.budget.begin(ctx)
	defer done()
	err := g.decideOne(bounded, r, &ask, v)
	g.conclude(ctx, v, err, began)
	return err
}

// began is the time since the start, for observers; 0 if there is no observer. time.Since reads one clock and time.Now
// two; reading a clock takes a tenth of a decision in memory.
func (g *Gate) began() (at time.Duration) {
	if g.observed() {
		at = time.Since(g.start)
	}
	return at
}

// observed reports whether verdicts are read before Decide returns.
func (g *Gate) observed() bool { return len(g.observers) > 0 || g.trace != nil }

// conclude records an error, and calls the observers.
func (g *Gate) conclude(ctx context.Context, v *Verdict, err error, began time.Duration) {
	if err != nil {
		v.fail(err)
	}
	g.meet(v)
	if began != 0 {
		v.Took = time.Since(g.start) - began
	}
	for _, observe := range g.observers {
		observe(v)
	}
	if g.trace != nil {
		g.trace(ctx, v)
	}
	if v.settles && len(g.countings) > 0 {
		v.keepOrigin()
	}
	if g.observed() {
		v.attributes, v.method, v.target = nil, "", "" // front ends reuse them
	}
	if v.isLocated {
		v.located.Attributes, v.located.DescriptorKeys, v.located.DescriptorValues = nil, nil, nil
	}
}

// prepare makes the enforced claims. If done, the store need not be called.
func (v *Verdict) prepare(set *rules.Set, r *rules.Request, ask *Ask) (done bool, err error) {
	if r != nil {
		if done, err := v.match(set, r, ask); done || err != nil {
			return true, err
		}
	}
	if ask.Override != nil {
		if err := v.override(ask); err != nil {
			return true, err
		}
	}
	for _, claim := range ask.Claims {
		v.add(nil, claim)
	}
	if err := v.identifyAsk(ask); err != nil {
		return true, err
	}
	for _, claim := range ask.Aside {
		v.add(nil, claim)
		v.about[len(v.about)-1].aside = true
	}
	if v.enforced = len(v.claims); v.enforced == 0 {
		v.Granted = ask.Times
	}
	v.hold(0, ask)
	return false, nil
}

// enforced takes the store's answer to the enforced claims.
func (g *Gate) enforced(ctx context.Context, times int64, v *Verdict, granted int64, err error) error {
	if err == nil {
		granted, err = g.complete(ctx, g.store, v, v.part(0, v.enforced), times, granted)
	}
	if err != nil {
		return g.fallBack(ctx, times, v, err)
	}
	v.decided(0, v.enforced, g.store, granted)
	v.resolve(times)
	return nil
}

// counts reports whether the refusals count towards bans.
func (v *Verdict) counts(times int64) bool {
	return v.bannable && v.Outcome != Failed && v.Reason != Repeated && v.Granted < times
}

func isInput(err error) bool {
	var input *weir.InputError
	return errors.As(err, &input)
}

// fallBack decides after an error of the store.
func (g *Gate) fallBack(ctx context.Context, times int64, v *Verdict, failure error) error {
	switch {
	case v.overflows():
		if g.decideApart(ctx, times, v) {
			return nil
		}
		failure = ErrTooManyClaims
	case isInput(failure):
		return failure
	}
	if err := callerLeft(ctx); err != nil {
		return err
	}
	v.Err = failure
	v.forgetIDs()
	var claims []weir.Claim
	var places []int
	for i, about := range v.about[:v.enforced] {
		switch {
		case about.aside && (!v.claims[i].Once || len(claims) == 0):
		case v.claims[i].Once && about.rule == nil: // what is decided here is kept here
			claims, places = append(claims, v.claims[i]), append(places, i)
		case about.onStoreError() == rules.RefuseAll:
			v.Outcome, v.Reason, v.Rule = Failed, StoreFailed, about.rule
			return nil
		case about.onStoreError() == rules.Local:
			claims, places = append(claims, v.claims[i]), append(places, i)
		}
	}
	if len(claims) == 0 {
		v.Reason, v.Granted = StoreFailed, times
		return nil
	}
	local := part{claims: claims, places: places, decisions: make([]weir.Decision, len(claims))}
	granted, err := decideInParts(ctx, g.local, claims, times, local.decisions)
	if err == nil {
		local.scatter(v)
		granted, err = g.complete(ctx, g.local, v, local, times, granted)
	}
	if err != nil {
		v.Outcome, v.Reason, v.Err = Failed, StoreFailed, errors.Join(failure, err)
		return nil
	}
	for _, i := range places {
		v.about[i].by, v.about[i].granted = g.local, granted
	}
	v.resolve(times)
	return nil
}
