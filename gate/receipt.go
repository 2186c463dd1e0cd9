package gate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Receipt is what a verdict charged: to settle it when the true cost is known, and to
// give back what is held. It is plain data, and stays when the verdict is used again.
type Receipt []Charged

// Charged is one claim that was granted.
type Charged struct {
	Rule  *rules.Rule // nil: the caller's own claim, or the rule is not known here
	Claim weir.Claim  // its Cost is what was charged, for all the times that were granted; its Delay is the grant's
	Taken weir.Instant
	Fixed bool // Settle leaves it: the rule states its cost
	Local bool // the local store charged it
}

// Receipt is what was charged, shadow rules included. It is nil where nothing was.
func (v *Verdict) Receipt() (list Receipt) {
	for i := range v.Len() {
		c := v.At(i)
		if !c.Decided || c.Granted == 0 || c.Ban {
			continue
		}
		claim := *c.Claim
		claim.Key = strings.Clone(claim.Key)
		claim.Cost *= c.Granted
		claim.Delay = c.Decision.Delay
		list = append(list, Charged{Rule: c.Rule, Claim: claim, Taken: c.Decision.At, Local: c.Local,
			Fixed: c.Rule != nil && c.Rule.FixedCost()})
	}
	return list
}

// Holds reports whether a lease was taken, which must be released.
func (v *Verdict) Holds() bool { return v.lease != "" && v.Granted > 0 }

// Lease is the id of what is held; "" if nothing is.
func (v *Verdict) Lease() string {
	if !v.Holds() {
		return ""
	}
	return v.lease
}

// Settle charges what was missing, even beyond the limit, or gives back what was too much,
// so that each claim has cost what actual says; where ok is false it is left as it is.
// What is held is not touched: see Release. The error joins what went wrong with each; the
// others are settled. A second Settle of one receipt settles again.
func (g *Gate) Settle(ctx context.Context, receipt Receipt, actual func(*Charged) (units int64, ok bool)) error {
	var failed []error
	for i := range receipt {
		c := &receipt[i]
		if c.Fixed || c.Claim.Lease != "" {
			continue
		}
		units, ok := actual(c)
		if !ok {
			continue
		}
		if units < 0 || units > weir.MaxUnits {
			failed = append(failed, &weir.InputError{Field: "actual", Given: units, Allowed: "0 to 4503599627370496 (2^52)"})
			continue
		}
		if err := g.settle(ctx, c, units); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Actually is for Settle: all claims have cost so much.
func Actually(units int64) func(*Charged) (int64, bool) {
	return func(*Charged) (int64, bool) { return units, true }
}

func (g *Gate) settle(ctx context.Context, c *Charged, units int64) error {
	claim := c.Claim
	switch {
	case units > claim.Cost:
		claim.Cost = units - claim.Cost
		return g.by(c).Charge(ctx, []weir.Claim{claim}, nil)
	case units < claim.Cost:
		claim.Cost -= units
		return g.by(c).Refund(ctx, []weir.Claim{claim}, c.Taken, nil)
	}
	return nil
}

func (g *Gate) by(c *Charged) weir.Store {
	if c.Local && g.local != nil {
		return g.local
	}
	return g.store
}

// Release gives back what is held; what windows and buckets counted stays counted. The
// error is weir.ErrLeaseGone where a lease had ended before.
func (g *Gate) Release(ctx context.Context, receipt Receipt) error {
	var failed []error
	for i := range receipt {
		if c := &receipt[i]; c.Claim.Lease != "" {
			failed = append(failed, g.by(c).Refund(ctx, []weir.Claim{c.Claim}, c.Taken, nil))
		}
	}
	return errors.Join(failed...)
}

// Renew keeps what is held for another time-to-live. The error is weir.ErrLeaseGone where
// a lease has ended: stop the work.
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

// ClaimsOf are those by which a rule counts a key that rules.Rule.Lookup found: to look at
// what is left of it with Ask.Claims, and to Reset it.
func ClaimsOf(rule *rules.Rule, key []byte, limits []*weir.Limit) (claims []weir.Claim) {
	text := string(key)
	if rule.Mode() == rules.Shadow || !rule.Enforces(key) {
		text = shadowed + text
	}
	for _, limit := range limits {
		claims = append(claims, weir.Claim{Key: text, Limit: limit, Cost: 1})
	}
	return claims
}

// Reset forgets what was counted under all claims of a verdict, shadow rules' included,
// also in the local store; with the claims of a rule, its bans. Fill the verdict with the
// zero Ask, which only looks.
func (g *Gate) Reset(ctx context.Context, v *Verdict) error {
	var failed []error
	all := slices.Clone(v.claims)
	for i := range v.about {
		if a := &v.about[i]; a.ban {
			all = append(all, lifted(nil, a.rule.Bans(), v.claims[i].Key)[1:]...) // the first is a claim already
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
