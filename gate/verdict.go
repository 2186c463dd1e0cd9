package gate

import (
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Outcome is the result of a decision.
type Outcome uint8

// The outcomes.
const (
	Passed  Outcome = iota
	Refused         // a limit is exceeded
	Denied          // by a list, or for a missing key
	Failed          // the store did not answer and a rule has deny, or Decide returned an error
)

// String is the outcome in metrics and logs.
func (o Outcome) String() string { return [...]string{"passed", "refused", "denied", "failed"}[o] }

// Reason explains an outcome.
type Reason uint8

// The reasons.
const (
	NoRule        Reason = iota // passed: no rule matched
	WithinLimits                // passed: every limit granted it
	AllowList                   // passed: the file's list allows it
	LimitExceeded               // refused
	Banned                      // refused by Rule's ban, whatever its limits have left
	DenyList                    // denied by a list, of the file or of Rule
	MissingKey                  // denied: Rule's key lacks a component, and its on_missing is deny
	StoreFailed                 // passed or failed, by the rules' on_store_error
	BadInput                    // failed: Decide's error is about the request or the ask
	Canceled                    // failed: Decide's error is the context's
	OtherRefused                // refused: another request of DecideTogether does not pass, and this one would
	Repeated                    // refused: the id of the request was granted before, and Rule refuses repetitions
	OtherGranted                // passed: Rule has quota and refuses, and another request of DecideTogether passes
)

// String is the reason in logs and answers.
func (r Reason) String() string {
	return [...]string{"no_rule", "within_limits", "allow_list", "limit_exceeded", "banned", "deny_list",
		"missing_key", "store_failed", "bad_input", "canceled", "other_refused", "repeated", "other_granted"}[r]
}

// A Verdict is the result of deciding a request. The zero Verdict is ready for Decide; reusing one saves its
// memory. Results of its methods are valid until the next Decide, except Receipt. A Verdict is not safe for
// concurrent use.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	Times   int64         // Ask.Times; 0: nothing was charged
	Granted int64         // how many of Times pass
	Rule    *rules.Rule   // that decided, if one did
	Found   bool          // it passes, and was granted before by its id: what the id stands with is not charged
	Delay   time.Duration // how long a granted caller should wait: the longest delay of borrowed units
	Err     error         // the store's, also where the request passes; or Decide's
	Took    time.Duration // of Decide; only if the gate has observers
	Client  netip.Addr    // of the request; only if the gate has observers, or the request is denied

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
	guards      []guard
	unstated    []*rules.Rule // the request does not state their cost, so that it is the default
	expected    []expected
	twice       int     // of guards: the one whose rule refuses the request as a repetition; −1: none
	bannable    bool    // a claim is a ban's
	full        bool    // a rule has charge: full
	others      bool    // another request of DecideTogether is why it does not pass
	keys        []byte  // what claims' keys are made of
	path        string  // of the request, if a rule counts it by its path: see rules.Rule.ByPath
	settles     bool    // by Ask.Settles
	origin      *Origin // of the request, for observers of its settling; nil: there are none
	lease       string  // under which concurrency limits are held
	gate        *Gate
	located     *rules.Request // the request, completed; nil: never needed
	isLocated   bool
	attributes  rules.Attributes // until the observers were called
	method      string           // likewise
	target      string           // likewise: the path
}

// about describes a claim.
type about struct {
	rule      *rules.Rule
	class     *rules.Class // of the request; nil: the rule has no classes
	by        weir.Store   // the store that decided; nil: none
	granted   int64
	aside     bool
	candidate bool
	ban       bool // the claim checks the rule's ban
	override  bool // the claim is an Override's, without a rule
	repeated  bool // the claim is not charged, because an id was granted before
}

// onStoreError is the treatment of a claim while the store does not answer.
func (a *about) onStoreError() rules.StoreError {
	switch {
	case a.rule != nil:
		return a.rule.OnStoreError()
	case a.override:
		return rules.Local
	}
	return rules.RefuseAll
}

// Degraded reports whether the store did not answer, so that the rules' on_store_error decided.
func (v *Verdict) Degraded() bool {
	return v.Err != nil && v.Reason != BadInput && v.Reason != Canceled
}

// A Check is one claim of the verdict and its result.
type Check struct {
	Rule      *rules.Rule // nil: the caller's own claim
	Claim     *weir.Claim
	Class     *rules.Class   // of the request; the claim has its floor; nil: the rule has no classes
	Decision  *weir.Decision // meaningful if Decided
	Decided   bool           // a store answered
	Shadow    bool           // of a shadow rule or a candidate
	Aside     bool           // it limits no request: of Ask.Aside, or a ban that is not in force
	Ban       bool           // the rule's ban, not one of its limits
	Candidate bool           // of the rule's candidate; Shadow too
	Local     bool           // the local store decided, because the store did not answer
	Granted   int64
}

// Len is the number of checks.
func (v *Verdict) Len() int { return len(v.claims) }

// At returns the ith check: first the enforced rules in the order of the file, then the caller's own claims,
// those aside, candidates, and shadow rules.
func (v *Verdict) At(i int) Check {
	a := &v.about[i]
	return Check{
		Rule:      a.rule,
		Claim:     &v.claims[i],
		Class:     a.class,
		Decision:  &v.decisions[i],
		Decided:   a.by != nil,
		Shadow:    i >= v.enforced,
		Aside:     a.aside || a.ban && !v.bans(i),
		Ban:       a.ban,
		Candidate: a.candidate,
		Local:     a.by != nil && a.by != v.gate.store,
		Granted:   a.granted,
	}
}

// Class is the class of the request under the limit of Rule that decided; nil if the rule has no classes.
func (v *Verdict) Class() *rules.Class {
	if v.worst < 0 || v.worst >= len(v.about) {
		return nil
	}
	return v.about[v.worst].class
}

// Counted returns the rule and the claim of the ith check if it counts as a request of the rule. The limits of one rule
// are adjacent and granted together, so only the first of them counts. The rule is nil for the caller's own claims. It
// serves observers of each request, since it copies less than At.
func (v *Verdict) Counted(i int) (rule *rules.Rule, claim *weir.Claim, shadow, granted, ok bool) {
	a := &v.about[i]
	if a.aside || a.candidate || a.ban || i > 0 && a.rule == v.about[i-1].rule {
		return nil, nil, false, false, false
	}
	return a.rule, &v.claims[i], i >= v.enforced, a.granted > 0, true
}

// Worst is the check that decided; ok is false if no limit did.
func (v *Verdict) Worst() (check Check, ok bool) {
	if v.worst < 0 {
		return Check{}, false
	}
	return v.At(v.worst), true
}

// RetryAfter is the wait to send to the client: the longest [weir.Limit.Advice] of the limits that refuse, or a longer
// ban that this request caused. The RetryAfter of Worst is exact, or an upper bound.
func (v *Verdict) RetryAfter() (wait time.Duration) {
	for i := range v.enforced {
		a := &v.about[i]
		free := a.repeated && v.Reason != Repeated
		if a.by != nil && !a.aside && !free && (!a.ban || v.bans(i)) {
			wait = max(wait, v.claims[i].Limit.Advice(v.decisions[i].RetryAfter))
		}
	}
	for i := range v.banned {
		wait = max(wait, v.banned[i].Length)
	}
	return wait
}

// A Skip is a rule that matched and was not decided.
type Skip struct {
	Rule *rules.Rule
	Why  string // in words, such as "off schedule"
}

// The reasons of skips. The last three are for shadow rules only: an enforced rule denies the request, or
// returns an error, instead.
const (
	applies     = ""
	offSchedule = "off schedule"
	exempt      = "on its allow list"
	withoutKey  = "a component of its key is missing" // and on_missing is skip
	wouldFail   = "the cost is wrong"                 // or the key
	// WouldDeny: by its deny list, or on_missing is deny.
	WouldDeny = "would be denied"
	// Unasked is also the reason of a decided rule's check that is not Decided.
	Unasked = "the store did not answer"
)

// Skips are the rules that matched and were not decided.
func (v *Verdict) Skips() []Skip { return v.skips }

// Matched are all rules that match the request, in the order of the file.
func (v *Verdict) Matched() []*rules.Rule { return v.matched }

// Exceptions are the operators' exceptions that took part in the verdict on this request: that blocked it, let
// it pass, or gave a key other limits. It looks them up again, so it is for explaining, not for every request.
func (v *Verdict) Exceptions(r *rules.Request) (list []rules.Exception) {
	r = v.completed(r)
	if v.Rule == nil && (v.Reason == AllowList || v.Reason == DenyList) {
		return v.set.Excepted(r)
	}
	for _, rule := range v.matched {
		for _, e := range rule.Excepted(r) {
			if v.involves(rule, e.Kind) {
				list = append(list, e)
			}
		}
	}
	return list
}

// completed is the request with the country and the autonomous system of its client, if the verdict needed them.
func (v *Verdict) completed(r *rules.Request) *rules.Request {
	if !v.isLocated {
		return r
	}
	located := *r
	located.Country, located.ASN = v.Located()
	return &located
}

// involves reports whether an exception of this kind took part in the result of a rule.
func (v *Verdict) involves(rule *rules.Rule, kind rules.ExceptionKind) bool {
	skipped := func(why string) bool { return slices.Contains(v.skips, Skip{rule, why}) }
	switch kind {
	case rules.Blocked:
		return v.Reason == DenyList && v.Rule == rule || skipped(WouldDeny)
	case rules.LetPass:
		return skipped(exempt)
	}
	return slices.ContainsFunc(v.about, func(a about) bool { return a.rule == rule && !a.candidate })
}

// reset clears the verdict for the next request, and drops references of the last one.
func (v *Verdict) reset(g *Gate) {
	clear(v.claims)
	clear(v.banned)
	clear(v.differences)
	clear(v.followers)
	clear(v.guards)
	clear(v.unstated)
	clear(v.expected)
	// Kept first, or the whole struct would be copied once more.
	matched, claims, decisions, abouts, skips := v.matched[:0], v.claims[:0], v.decisions[:0], v.about[:0], v.skips[:0]
	banned, differences, followers, keys := v.banned[:0], v.differences[:0], v.followers[:0], v.keys[:0]
	guards, unstated, costs := v.guards[:0], v.unstated[:0], v.expected[:0]
	located := v.located
	*v = Verdict{}
	v.worst, v.twice, v.gate, v.located = -1, -1, g, located
	v.matched, v.claims, v.decisions, v.about, v.skips = matched, claims, decisions, abouts, skips
	v.banned, v.differences, v.followers, v.keys, v.guards = banned, differences, followers, keys, guards
	v.unstated, v.expected = unstated, costs
}

// fail sets the verdict for an error of Decide.
func (v *Verdict) fail(err error) {
	v.Outcome, v.Reason, v.Granted, v.Err, v.worst = Failed, Canceled, 0, err, -1
	if isInput(err) {
		v.Reason = BadInput
	}
	v.truncate(0)
}

// match finds the rules and makes the claims of the enforced ones. If done, the store need not be called.
func (v *Verdict) match(set *rules.Set, r *rules.Request, ask *Ask) (done bool, err error) {
	v.set = set
	switch set.Listed(r) {
	case rules.Denied:
		v.Outcome, v.Reason, v.Client = Denied, DenyList, r.Client
		return true, nil
	case rules.Allowed:
		v.Reason, v.Granted = AllowList, ask.Times
		return true, nil
	}
	if ask.Override != nil && ask.Override.Alone {
		return false, nil
	}
	v.matched = set.Match(r, v.matched)
	if v.Rule, err = set.Doubt(r); err != nil {
		return true, err
	}
	if set.Replaces() {
		v.withoutReplaced(ask.replaced)
	}
	for _, rule := range v.matched {
		if v.onTrial(rule, r) {
			continue
		}
		why, err := v.apply(rule, r, ask, false)
		switch why {
		case applies:
		case wouldFail:
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

// deny sets the verdict for a rule's deny list or missing key.
func (v *Verdict) deny(rule *rules.Rule, r *rules.Request) {
	v.Outcome, v.Reason, v.Rule, v.Client = Denied, MissingKey, rule, r.Client
	if rule.Listed(r) == rules.Denied {
		v.Reason = DenyList
	}
	v.truncate(0)
}

// onTrial reports whether the rule is a shadow rule for this request: in mode shadow, or not enforced yet for
// the request's key. A request without a key is in no percentage.
func (v *Verdict) onTrial(rule *rules.Rule, r *rules.Request) bool {
	if rule.Mode() == rules.Shadow {
		return true
	}
	if rule.EnforcePercent() == 100 {
		return false
	}
	start := len(v.keys)
	key, ok := rule.AppendKey(v.keys, r)
	v.keys = key[:start] // keep the grown buffer
	return !ok || !rule.Enforces(key[start:])
}

// apply makes a rule's claims, or returns why there are no claims. A shadow rule counts on separate keys.
func (v *Verdict) apply(rule *rules.Rule, r *rules.Request, ask *Ask, tried bool) (why string, err error) {
	if rule.Scheduled() && !rule.Active(v.gate.now()) {
		return offSchedule, nil
	}
	if err := rule.Doubt(r); err != nil {
		return wouldFail, err
	}
	switch rule.Listed(r) {
	case rules.Denied:
		return WouldDeny, nil
	case rules.Allowed:
		return exempt, nil
	}
	start := len(v.keys)
	if tried {
		v.keys = append(v.keys, shadowed...)
	}
	plain, ok := v.keys, true
	if last := v.lastKeyed(); last >= 0 && !tried && v.about[last].rule.SameKey(rule) {
		plain = append(plain, v.claims[last].Key...) // rendering it takes longer
	} else {
		plain, ok = rule.AppendKey(plain, r)
	}
	if !ok {
		v.keys = v.keys[:start]
		if rule.OnMissing() == rules.Deny {
			return WouldDeny, nil
		}
		return withoutKey, nil
	}
	if rule.ByPath() && r.Route == "" {
		v.path = r.Path
	}
	own := plain[len(v.keys):] // without the prefix of shadow rules
	v.keys = plain
	// Stores do not keep keys, so keys may be in a reused buffer.
	key := unsafe.String(&v.keys[start], len(v.keys)-start)
	cost, err := v.cost(rule, r, ask, key)
	if err != nil {
		return wouldFail, err
	}
	if rule.ChargesFull() {
		if v.full = true; ask.Times == 0 {
			cost = min(cost, 1) // what the request needs
		}
	}
	limits := rule.LimitsFor(r, own)
	if ask.Override != nil {
		if limits, err = ask.Override.limits(rule, limits); err != nil {
			return wouldFail, err
		}
	}
	if err := v.addLimits(rule, r, ask, weir.Claim{Key: key, Cost: cost}, limits); err != nil {
		return wouldFail, err
	}
	if bans := rule.Bans(); bans != nil && !tried {
		v.addBan(rule, weir.Claim{Key: key, Limit: bans.Hold})
	}
	return applies, nil
}

// Unstated are the rules of which the cost is their default, because the request does not state it.
func (v *Verdict) Unstated() []*rules.Rule { return v.unstated }

// lastKeyed is the last claim on the key of its rule; −1 if there is no such claim.
func (v *Verdict) lastKeyed() int {
	last := len(v.about) - 1
	for last >= 0 && v.about[last].aside {
		last--
	}
	return last
}

// shadowed is the prefix of keys of shadow rules. No key of a rule begins with it: each begins with its
// source.
const shadowed = "shadow "

func (v *Verdict) cost(rule *rules.Rule, r *rules.Request, ask *Ask, key string) (int64, error) {
	if ask.Cost != nil && !rule.FixedCost() {
		return *ask.Cost, nil
	}
	units, stated, err := rule.CostOf(r)
	switch {
	case err != nil:
	case !stated:
		v.unstated = append(v.unstated, rule)
		if rule.Expects() { // the length of a body that is not read is known all the same
			_, known, _ := rule.Expect(nil, r)
			v.expected = append(v.expected, expected{rule: rule, known: known})
		}
	case rule.Expects():
		units = v.expect(rule, r, key, units)
	}
	return units, err
}

// slots sets the cost of the claims of concurrency limits from a place on: see Ask.Cost.
func (v *Verdict) slots(from int, rule *rules.Rule, r *rules.Request, ask *Ask) error {
	if ask.Cost == nil || ask.HoldsCost || rule.FixedCost() {
		return nil
	}
	for i := from; i < len(v.claims); i++ {
		if c := &v.claims[i]; c.Limit.Leases() {
			own, _, err := rule.CostOf(r)
			if err != nil {
				return err
			}
			if c.Cost = own; *ask.Cost == 0 {
				c.Cost = 0
			}
		}
	}
	return nil
}

func (v *Verdict) add(rule *rules.Rule, claim weir.Claim) {
	v.claims = append(v.claims, claim)
	v.about = append(v.about, about{rule: rule})
}

// addLimit adds a claim of a request on a limit: with the floor of the request's class, and with its member if members
// share the limit. The claim is copied once.
func (v *Verdict) addLimit(rule *rules.Rule, r *rules.Request, class *rules.Class, claim *weir.Claim,
	limit *weir.Limit) {
	v.about = append(v.about, about{rule: rule, class: class})
	v.claims = append(v.claims, *claim)
	added := &v.claims[len(v.claims)-1]
	added.Limit, added.Floor = limit, class.Floor(limit)
	if limit.Whole() == nil {
		return
	}
	start := len(v.keys)
	v.keys, added.Weight = rule.AppendMember(v.keys, r)
	added.Member = unsafe.String(unsafe.SliceData(v.keys[start:]), len(v.keys)-start)
}

// addBan adds the claim that tells whether the key is banned.
func (v *Verdict) addBan(rule *rules.Rule, claim weir.Claim) {
	v.add(rule, claim)
	v.about[len(v.about)-1].ban, v.bannable = true, true
}

func (v *Verdict) truncate(n int) {
	v.claims, v.about, v.decisions = v.claims[:n], v.about[:n], v.decisions[:min(n, len(v.decisions))]
}

// hold sets the lease of the concurrency limits from the nth claim on. A claim without a charge needs no lease.
func (v *Verdict) hold(from int, ask *Ask) {
	for i := from; i < len(v.claims); i++ {
		c := &v.claims[i]
		if c.Lease != "" || ask.Times == 0 || c.Cost == 0 || !heldBy(c.Limit) {
			continue
		}
		if v.lease == "" {
			if v.lease = ask.Lease; v.lease == "" {
				v.lease = weir.NewLeaseID()
			}
		}
		c.Lease, c.OwnLease = v.lease, ask.Lease != ""
	}
}

// heldBy reports whether a limit's units are held by leases.
func heldBy(l *weir.Limit) bool { return l != nil && l.Leases() }

// room grows decisions to the number of claims.
func (v *Verdict) room(n int) []weir.Decision {
	v.decisions = slices.Grow(v.decisions, n-len(v.decisions))[:n]
	return v.decisions
}

// decided records the store that decided a range of claims.
func (v *Verdict) decided(from, to int, by weir.Store, granted int64) {
	for i := from; i < to; i++ {
		v.about[i].by, v.about[i].granted = by, granted
	}
}

// resolve derives the outcome from the enforced claims.
func (v *Verdict) resolve(times int64) {
	for i := range v.claims {
		a, d := &v.about[i], &v.decisions[i]
		if a.by == nil {
			continue
		}
		v.Granted = a.granted
		if a.aside || a.ban && !v.bans(i) || a.repeated && a.granted == 0 {
			continue
		}
		if !a.ban && !a.repeated { // the debt of a ban is not a borrowed unit
			v.Delay = max(v.Delay, d.Delay)
		}
		if v.worst < 0 || weir.Worse(d, &v.decisions[v.worst]) {
			v.worst = i
		}
	}
	if v.twice >= 0 && v.Granted == 0 {
		v.refuseTwice()
		return
	}
	v.Found = v.Granted > 0 && slices.ContainsFunc(v.guards, func(u guard) bool { return u.state == found })
	if v.worst < 0 { // only claims aside
		v.refuse(times > 0 && v.Granted == 0)
		return
	}
	v.Rule, v.Reason = v.about[v.worst].rule, WithinLimits
	refused := v.Granted == 0
	if times == 0 { // nothing charged: the result of a request now
		refused = v.decisions[v.worst].RetryAfter != 0
	}
	v.refuse(refused)
	if v.lease != "" && v.about[v.worst].by == v.gate.store {
		v.gate.sees(v.decisions[v.worst].At, refused)
	}
	if refused && v.holds(v.Rule) {
		v.Reason = Banned
	}
}

// holds reports whether the rule's ban is in force. Its limits may refuse for longer.
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
