package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Receipt lists the charges of a verdict, to settle them when the actual cost is known, and to release
// leases. It is plain data, valid after the verdict is reused.
type Receipt []Charged

// Charged is the charge of one claim.
type Charged struct {
	Rule  *rules.Rule // nil: the caller's own claim, or an unknown rule
	Claim weir.Claim  // its Cost is the charge of all granted times; its Delay is the grant's
	Taken weir.Instant
	Fixed bool // Settle skips it: the rule's cost is fixed
	Local bool // the local store charged it
	// Actual, if not nil, is the cost at which SettleOnce and SettleResponse settle it, instead of units.
	Actual *int64

	estimated bool        // see Verdict.Units
	open      *openCharge // see Open; nil: not open
	origin    *Origin     // nil: not known

	steps []step // see ChargeStep

	// Known is the part of the cost that the request told, such as the units of its prompt; 0: not known.
	Known int64
	// Class is the value that cost.learn names, such as a model: the gate learns the settled cost for it. It is empty
	// with learn: key, and nil if nothing is learned from the charge.
	Class []byte

	path string // as in Verdict
	void bool   // settling gives all its units back
}

// Receipt lists the charges, shadow rules included; nil if there is no charge.
func (v *Verdict) Receipt() (list Receipt) {
	path := strings.Clone(v.path)
	for i := range v.Len() {
		c := v.At(i)
		if !c.Decided || c.Granted == 0 || c.Ban || v.about[i].repeated ||
			c.Claim.Lease == "" && heldBy(c.Claim.Limit) {
			continue // a cost of 0 has taken no lease
		}
		claim := *c.Claim
		claim.Key, claim.Member = strings.Clone(claim.Key), strings.Clone(claim.Member)
		claim.Cost *= c.Granted
		claim.Delay = c.Decision.Delay
		list = append(list, Charged{Rule: c.Rule, Claim: claim, Taken: c.Decision.At, Local: c.Local,
			Fixed: c.Rule != nil && c.Rule.FixedCost(), path: path, origin: v.origin,
			estimated: v.settles && c.Rule != nil && c.Rule.Settles()})
		if len(v.expected) > 0 && c.Granted == 1 {
			list.expect(v)
		}
	}
	return list
}

// expect adds the expected cost of its rule to the last charge.
func (r Receipt) expect(v *Verdict) {
	last := len(r) - 1
	of := v.expectedOf(r[last].Rule)
	if of == nil {
		return
	}
	r[last].Known = of.known
	if of.class != 0 && !slices.ContainsFunc(r[:last], func(c Charged) bool { return c.Rule == of.rule }) {
		r[last].Class = of.value
	}
}

// Holds reports whether a lease was taken, which has to be released.
func (v *Verdict) Holds() bool { return v.lease != "" && v.Granted > 0 }

// Lease is the id of the lease; "" if there is no lease.
func (v *Verdict) Lease() string {
	if !v.Holds() {
		return ""
	}
	return v.lease
}

// Settle charges the missing units, even beyond the limit, or refunds the excess, so that each claim has cost these
// units. Leases are unchanged: see Release. The error joins the errors of single claims; the other claims are settled.
// A second Settle of one receipt settles again.
func (g *Gate) Settle(ctx context.Context, receipt Receipt, units int64) error {
	return g.SettleEach(ctx, receipt, func(*Charged) (int64, bool, error) { return units, true, nil })
}

// SettleEach is Settle with the units of each claim; claims are unchanged if ok is false or actual fails. The
// error of actual is returned with the name of the rule, once for claims with the same error.
func (g *Gate) SettleEach(
	ctx context.Context, receipt Receipt, actual func(*Charged) (units int64, ok bool, err error),
) error {
	var failed []error
	receipt = g.inForce(receipt)
	for i := range receipt {
		c := &receipt[i]
		if c.Fixed || c.Claim.Lease != "" {
			continue
		}
		units, ok, err := actual(c)
		if err != nil {
			failed = appendUnknown(failed, c, err)
			continue
		}
		if !ok {
			continue
		}
		if err = checkActual(units); err == nil {
			err = g.settle(ctx, c, units)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		g.settled(receipt, i, units)
	}
	return errors.Join(failed...)
}

// appendUnknown appends the reason why the cost of a claim is unknown, unless that of another claim is the same.
func appendUnknown(failed []error, c *Charged, err error) []error {
	if c.Rule != nil {
		err = fmt.Errorf("rule %s: %w", c.Rule.Name(), err)
	}
	if slices.ContainsFunc(failed, func(other error) bool { return other.Error() == err.Error() }) {
		return failed
	}
	return append(failed, err)
}

func checkActual(units int64) error {
	if units < 0 || units > weir.MaxUnits {
		return &weir.InputError{Field: "actual", Given: units, Allowed: "0 to 4503599627370496 (2^52)"}
	}
	return nil
}

func (g *Gate) settle(ctx context.Context, c *Charged, units int64) error {
	if len(c.steps) > 0 {
		var err error
		if units, err = g.settleSteps(ctx, c, units); err != nil {
			return err
		}
	}
	switch claim, missing := c.change(units); {
	case missing > 0:
		return g.by(c).Charge(ctx, []weir.Claim{claim}, nil)
	case missing < 0:
		return g.by(c).Refund(ctx, []weir.Claim{claim}, c.Taken, nil)
	}
	return nil
}

// change is the claim to charge if units are missing for this cost, or to refund if missing is negative.
func (c *Charged) change(units int64) (claim weir.Claim, missing int64) {
	if c.Claim.Once { // a request that cost nothing frees its id
		units = min(units, c.Claim.Cost)
	}
	claim, missing = c.Claim, units-c.Claim.Cost
	claim.Settle = c.Claim.Cost > 0 // or there is no charge that was to be corrected
	claim.Cost = max(missing, -missing)
	return claim, missing
}

func (g *Gate) by(c *Charged) weir.Store {
	if c.Local && g.local != nil {
		return g.local
	}
	return g.store
}

// Release releases the leases; counts of windows and buckets are unchanged. The error is weir.ErrLeaseGone if
// a lease had ended before. After another error the store repeats the release in the background.
func (g *Gate) Release(ctx context.Context, receipt Receipt) error {
	var failed []error
	for i := range receipt {
		if c := &receipt[i]; c.Claim.Lease != "" {
			err := g.by(c).Refund(ctx, []weir.Claim{c.Claim}, c.Taken, nil)
			if err == nil {
				g.held(c)
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// held tells the limit of a released lease how long it was held.
func (g *Gate) held(c *Charged) {
	ahead := g.ahead.Load()
	if c.Local || c.Taken <= 0 || ahead == 0 {
		return
	}
	c.Claim.Limit.Held(func() time.Duration { return time.Since(g.start) + time.Duration(ahead-nanoseconds(c.Taken)) })
}

// sees notes the store's clock by a decision on a lease, for held: each time that a lease was refused, since only then
// is it of use.
func (g *Gate) sees(at weir.Instant, refused bool) {
	if at > 0 && (refused || g.ahead.Load() == 0) {
		g.ahead.Store(nanoseconds(at) - int64(time.Since(g.start)))
	}
}

func nanoseconds(at weir.Instant) int64 { return int64(at) * int64(time.Microsecond) }

// Hold returns the receipt without the leases of rules with hold_until: done, for Release: these leases end with their
// time-to-live. It is for a request that may still be worked on, because its end was not seen.
func (g *Gate) Hold(receipt Receipt) (rest Receipt) {
	var last *rules.Rule
	for _, c := range receipt {
		switch {
		case c.Claim.Lease == "" || c.Rule == nil || !c.Rule.HoldUntilDone():
			rest = append(rest, c)
		case c.Rule != last:
			g.ended(&Counting{Rule: c.Rule, Key: c.Claim.Key, Result: Held})
			last = c.Rule
		}
	}
	return rest
}

// Abandon releases the leases of a verdict if its caller left before the answer, and so cannot release them. A caller
// that chose Ask.Lease can, and may ask again with it.
func (g *Gate) Abandon(ctx context.Context, v *Verdict) {
	if !v.Holds() {
		return
	}
	own := func(c Charged) bool { return c.Claim.OwnLease }
	// The store repeats a release that fails.
	_ = g.Release(context.WithoutCancel(ctx), slices.DeleteFunc(v.Receipt(), own))
}

// Renew extends the leases by another time-to-live. The error is weir.ErrLeaseGone if a lease has ended: stop
// the work.
func (g *Gate) Renew(ctx context.Context, receipt Receipt) error {
	var failed []error
	for i := range receipt {
		c := &receipt[i]
		if c.Claim.Lease == "" {
			continue
		}
		claim := c.Claim
		claim.Renew = true
		granted, err := g.by(c).Decide(ctx, []weir.Claim{claim}, 1, nil)
		if err == nil && granted == 0 {
			err = weir.ErrLeaseGone
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// KeepAlive renews the leases until stop is called; see weir.KeepAlive. Without leases it has no effect.
func (g *Gate) KeepAlive(ctx context.Context, receipt Receipt, failed func(error)) (stop func()) {
	var ttl time.Duration // the shortest
	for i := range receipt {
		if c := &receipt[i].Claim; c.Lease != "" {
			own := time.Duration(c.Limit.Period()) * time.Microsecond
			if ttl == 0 || own < ttl {
				ttl = own
			}
		}
	}
	if ttl == 0 {
		return func() {}
	}
	return weir.KeepAlive(ctx, ttl, func(ctx context.Context) error { return g.Renew(ctx, receipt) }, failed)
}

// ClaimsOf are a rule's claims for a key from rules.Rule.Lookup: to read the remaining units, with Ask.Claims, and to
// Reset it.
func (g *Gate) ClaimsOf(rule *rules.Rule, key []byte, limits []*weir.Limit) (claims []weir.Claim) {
	text := string(key)
	if rule.Mode() == rules.Shadow || !rule.Enforces(key) {
		text = shadowed + text
	}
	for _, limit := range limits {
		claims = append(claims, weir.Claim{Key: text, Limit: limit, Cost: 1})
	}
	return claims
}

// Reset deletes the counts of all claims of a verdict, also the counts of shadow rules, in the local store too; with a
// rule's claims also its bans. Fill the verdict with the zero Ask, which has no charge.
func (g *Gate) Reset(ctx context.Context, v *Verdict) error {
	var failed []error
	all := slices.Clone(v.claims)
	for i := range v.about {
		if a := &v.about[i]; a.ban {
			all = append(all, banClaims(nil, a.rule.Bans(), v.claims[i].Key)[1:]...) // the first is a claim already
		}
	}
	for claims := range slices.Chunk(all, weir.MaxClaims) {
		failed = append(failed, g.store.Reset(ctx, claims))
		if g.local != nil {
			failed = append(failed, g.local.Reset(ctx, claims))
		}
	}
	return errors.Join(failed...)
}
