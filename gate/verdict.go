package gate

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Outcome is what becomes of a request.
type Outcome uint8

// The outcomes.
const (
	Passed  Outcome = iota
	Refused         // a limit is exceeded: come back later
	Denied          // by a list, or because it lacks what it is counted by
	Failed          // the store did not answer, and a rule says deny; or Decide's error
)

// String is the outcome as metrics and logs call it.
func (o Outcome) String() string { return [...]string{"passed", "refused", "denied", "failed"}[o] }

// Reason says why.
type Reason uint8

// The reasons.
const (
	NoRule        Reason = iota // passed: nothing limits it
	WithinLimits                // passed: every limit granted it
	AllowList                   // passed: the file's list allows it
	LimitExceeded               // refused
	Banned                      // refused: by Rule's ban, whatever its limits say
	DenyList                    // denied by a list, of the file or of Rule
	MissingKey                  // denied: Rule's key lacks a component, and its on_missing is deny
	StoreFailed                 // passed or failed, by the rules' on_store_error
	BadInput                    // failed: Decide's error is what is wrong with the request, or the ask
	Canceled                    // failed: Decide's error is the context's
)

// String is the reason as logs and answers call it.
func (r Reason) String() string {
	return [...]string{"no_rule", "within_limits", "allow_list", "limit_exceeded", "banned", "deny_list", "missing_key", "store_failed", "bad_input", "canceled"}[r]
}

// A Verdict is what came of a request. The zero Verdict is ready to be filled by Decide;
// using one again saves its memory. What its methods return is gone with the next Decide;
// Receipt keeps what must outlive it. A Verdict is used by one goroutine at a time.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	Times   int64         // as it was asked; 0: it was only looked
	Granted int64         // how many of the times that were asked pass
	Rule    *rules.Rule   // that decided, if one did
	Delay   time.Duration // the longest that a granted caller should wait: what it borrowed
	Err     error         // the store's, also where the request passes; or Decide's
	Took    time.Duration // of Decide; only if the gate has observers

	worst       int // of claims; −1: none
	enforced    int // how many of claims count
	set         *rules.Set
	matched     []*rules.Rule
	claims      []weir.Claim
	decisions   []weir.Decision
	about       []about
	skips       []Skip
	banned      []Ban
	differences []Difference
	followers   []follower
	bannable    bool   // a claim is a ban's
	keys        []byte // what claims' keys are made of
	lease       string // under which concurrency limits are held
	gate        *Gate
}

// about is what the verdict knows of a claim besides.
type about struct {
	rule      *rules.Rule
	by        weir.Store // that decided; nil: none did
	granted   int64
	aside     bool
	candidate bool
	ban       bool // whether the request is banned is what the claim asks
}

// Degraded reports whether the store did not answer, so that the rules' on_store_error
// decided instead.
func (v *Verdict) Degraded() bool {
	return v.Err != nil && v.Reason != BadInput && v.Reason != Canceled
}

// A Check is one claim of the verdict and what came of it.
type Check struct {
	Rule      *rules.Rule // nil: the caller's own claim
	Claim     *weir.Claim
	Decision  *weir.Decision // meaningful if Decided
	Decided   bool           // a store was asked and answered
	Shadow    bool           // it does not count
	Aside     bool           // it limits nobody: of Ask.Aside, or a ban of somebody who is not banned
	Ban       bool           // it is the rule's ban, and not one of its limits
	Candidate bool           // it is of the rule's candidate; such a check is Shadow too
	Local     bool           // the local store decided, because the store did not answer
	Granted   int64
}

// Len is how many checks there are.
func (v *Verdict) Len() int { return len(v.claims) }

// At is one of them: first the enforced ones in the order of the file, then the caller's
// own claims, those aside, then those of candidates, then the shadow rules'.
func (v *Verdict) At(i int) Check {
	a := &v.about[i]
	return Check{Rule: a.rule, Claim: &v.claims[i], Decision: &v.decisions[i], Decided: a.by != nil, Shadow: i >= v.enforced,
		Aside: a.aside || a.ban && !v.bans(i), Ban: a.ban, Candidate: a.candidate, Local: a.by != nil && a.by != v.gate.store, Granted: a.granted}
}

// Worst is the check that decided; ok is false where no limit did.
func (v *Verdict) Worst() (check Check, ok bool) {
	if v.worst < 0 {
		return Check{}, false
	}
	return v.At(v.worst), true
}

// A Skip is a rule that matched and was not asked.
type Skip struct {
	Rule *rules.Rule
	Why  Why
}

// Why says why a rule was not asked.
type Why uint8

// What keeps a rule from being asked. The last four are told of shadow rules only: an
// enforced rule denies, or is an error, instead.
const (
	applies     Why = iota
	OffSchedule     // its schedule says not now
	Exempt          // its allow list names the request
	Unkeyed         // a component of its key is missing, and on_missing is skip
	WouldDeny       // its deny list names the request, or on_missing is deny
	WouldFail       // the request's cost is wrong, or it says several keys
	Unasked         // the store did not answer
)

// String is the reason in words.
func (w Why) String() string {
	return [...]string{"applies", "off schedule", "on its allow list", "a component of its key is missing",
		"would be denied", "the cost is wrong", "the store did not answer"}[w]
}

// Skips are the rules that matched and were not asked.
func (v *Verdict) Skips() []Skip { return v.skips }

// Matched are all rules that match the request, in the order of the file.
func (v *Verdict) Matched() []*rules.Rule { return v.matched }

// Exceptions are those of operators that had a part in the verdict on this request: that
// blocked it, let it pass, or gave a key other limits. It looks for them anew, which is for
// whoever asks why, and not for every request.
func (v *Verdict) Exceptions(r *rules.Request) (list []rules.Exception) {
	if v.Rule == nil && (v.Reason == AllowList || v.Reason == DenyList) {
		return v.set.Excepted(r)
	}
	for _, rule := range v.matched {
		for _, e := range rule.Excepted(r) {
			if v.heeds(rule, e.Kind) {
				list = append(list, e)
			}
		}
	}
	return list
}

// heeds reports whether an exception of this kind would have had a part in what became of a
// rule.
func (v *Verdict) heeds(rule *rules.Rule, kind rules.ExceptionKind) bool {
	skipped := func(why Why) bool { return slices.Contains(v.skips, Skip{rule, why}) }
	switch kind {
	case rules.Blocked:
		return v.Reason == DenyList && v.Rule == rule || skipped(WouldDeny)
	case rules.LetPass:
		return skipped(Exempt)
	}
	return slices.ContainsFunc(v.about, func(a about) bool { return a.rule == rule && !a.candidate })
}

// reset makes room for the next request, and lets go of what the last one brought.
func (v *Verdict) reset(g *Gate) {
	clear(v.claims)
	clear(v.banned)
	clear(v.differences)
	clear(v.followers)
	*v = Verdict{worst: -1, matched: v.matched[:0], claims: v.claims[:0], decisions: v.decisions[:0], about: v.about[:0],
		skips: v.skips[:0], banned: v.banned[:0], differences: v.differences[:0], followers: v.followers[:0], keys: v.keys[:0], gate: g}
}

// fail is what the verdict says where Decide returns an error.
func (v *Verdict) fail(err error) {
	v.Outcome, v.Reason, v.Granted, v.Err, v.worst = Failed, Canceled, 0, err, -1
	var input *weir.InputError
	if errors.As(err, &input) {
		v.Reason = BadInput
	}
	v.truncate(0)
}

// match finds the rules and makes the enforced ones' claims. done says that nobody need be
// asked.
func (v *Verdict) match(set *rules.Set, r *rules.Request, ask *Ask) (done bool, err error) {
	v.set = set
	switch set.Listed(r) {
	case rules.Denied:
		v.Outcome, v.Reason = Denied, DenyList
		return true, nil
	case rules.Allowed:
		v.Reason, v.Granted = AllowList, ask.Times
		return true, nil
	}
	v.matched = set.Match(r, v.matched)
	for _, rule := range v.matched {
		if v.tries(rule, r) {
			continue
		}
		why, err := v.apply(rule, r, ask, false)
		switch why {
		case applies:
		case WouldFail:
			v.Rule = rule
			return true, err
		case WouldDeny:
			v.deny(rule, r)
			return true, nil
		default:
			v.skips = append(v.skips, Skip{rule, why})
		}
	}
	return false, nil
}

// deny is for a rule's own reasons.
func (v *Verdict) deny(rule *rules.Rule, r *rules.Request) {
	v.Outcome, v.Reason, v.Rule = Denied, MissingKey, rule
	if rule.Listed(r) == rules.Denied {
		v.Reason = DenyList
	}
	v.truncate(0)
}

// tries reports whether the rule is only tried out for this request: it is in shadow, or
// not enforced yet for the request's key. Whoever has no key is no part of a percentage.
func (v *Verdict) tries(rule *rules.Rule, r *rules.Request) bool {
	if rule.Mode() == rules.Shadow {
		return true
	}
	if rule.EnforcePercent() == 100 {
		return false
	}
	start := len(v.keys)
	key, ok := rule.AppendKey(v.keys, r)
	v.keys = key[:start] // what it has grown by is of use to the next
	return !ok || !rule.Enforces(key[start:])
}

// apply makes a rule's claims, or says why there are none. A rule that is tried out is
// counted on keys of its own.
func (v *Verdict) apply(rule *rules.Rule, r *rules.Request, ask *Ask, tried bool) (Why, error) {
	if rule.Scheduled() && !rule.Active(v.gate.now()) {
		return OffSchedule, nil
	}
	if err := rule.Doubt(r); err != nil {
		return WouldFail, err
	}
	switch rule.Listed(r) {
	case rules.Denied:
		return WouldDeny, nil
	case rules.Allowed:
		return Exempt, nil
	}
	start := len(v.keys)
	if tried {
		v.keys = append(v.keys, shadowed...)
	}
	plain, ok := rule.AppendKey(v.keys, r)
	if !ok {
		v.keys = v.keys[:start]
		if rule.OnMissing() == rules.Deny {
			return WouldDeny, nil
		}
		return Unkeyed, nil
	}
	own := plain[len(v.keys):] // without what shadows put before it
	v.keys = plain
	cost, err := v.cost(rule, r, ask)
	if err != nil {
		return WouldFail, err
	}
	// Stores keep no keys, so they may lie in a buffer that is used again.
	key := unsafe.String(&v.keys[start], len(v.keys)-start)
	for _, limit := range rule.LimitsFor(r, own) {
		v.add(rule, weir.Claim{Key: key, Limit: limit, Cost: cost})
	}
	if bans := rule.Bans(); bans != nil && !tried {
		v.add(rule, weir.Claim{Key: key, Limit: bans.Hold})
		v.about[len(v.about)-1].ban, v.bannable = true, true
	}
	return applies, nil
}

// shadowed begins the keys of shadow rules. No key of a rule begins so: each begins with
// its source.
const shadowed = "shadow "

func (v *Verdict) cost(rule *rules.Rule, r *rules.Request, ask *Ask) (int64, error) {
	if ask.Cost != nil && !rule.FixedCost() {
		return *ask.Cost, nil
	}
	return rule.CostOf(r)
}

func (v *Verdict) add(rule *rules.Rule, claim weir.Claim) {
	v.claims = append(v.claims, claim)
	v.about = append(v.about, about{rule: rule})
}

func (v *Verdict) truncate(n int) {
	v.claims, v.about, v.decisions = v.claims[:n], v.about[:n], v.decisions[:min(n, len(v.decisions))]
}

// hold gives the concurrency limits from the nth claim on the lease that they are held
// under. A look needs none.
func (v *Verdict) hold(from int, ask *Ask) {
	for i := from; i < len(v.claims); i++ {
		c := &v.claims[i]
		if c.Lease != "" || ask.Times == 0 || c.Limit == nil || c.Limit.Algorithm() != weir.AlgorithmConcurrency {
			continue
		}
		if v.lease == "" {
			if v.lease = ask.Lease; v.lease == "" {
				v.lease = weir.NewLeaseID()
			}
		}
		c.Lease = v.lease
	}
}

// room makes decisions as many as there are claims.
func (v *Verdict) room(n int) []weir.Decision {
	v.decisions = slices.Grow(v.decisions, n-len(v.decisions))[:n]
	return v.decisions
}

// decided notes which store decided some of the claims.
func (v *Verdict) decided(from, to int, by weir.Store, granted int64) {
	for i := from; i < to; i++ {
		v.about[i].by, v.about[i].granted = by, granted
	}
}

// judge says what the enforced claims come to.
func (v *Verdict) judge(times int64) {
	for i := range v.claims {
		a, d := &v.about[i], &v.decisions[i]
		if a.by == nil {
			continue
		}
		v.Granted = a.granted
		if a.aside || a.ban && !v.bans(i) {
			continue
		}
		if !a.ban { // whose debt is no borrowed unit
			v.Delay = max(v.Delay, d.Delay)
		}
		if v.worst < 0 || weir.Worse(d, &v.decisions[v.worst]) {
			v.worst = i
		}
	}
	if v.worst < 0 { // there were only claims aside
		v.refuse(times > 0 && v.Granted == 0)
		return
	}
	v.Rule, v.Reason = v.about[v.worst].rule, WithinLimits
	refused := v.Granted == 0
	if times == 0 { // a look says what a request would meet
		refused = v.decisions[v.worst].RetryAfter != 0
	}
	v.refuse(refused)
	if refused && v.holds(v.Rule) {
		v.Reason = Banned
	}
}

// holds reports whether the rule bans the request. Its limits may refuse it for longer.
func (v *Verdict) holds(rule *rules.Rule) bool {
	for i := range v.enforced {
		if v.about[i].rule == rule && v.bans(i) {
			return true
		}
	}
	return false
}

func (v *Verdict) refuse(refused bool) {
	if refused {
		v.Outcome, v.Reason = Refused, LimitExceeded
	}
}
