package gate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A step is a charge that was made while a response was streamed.
type step struct {
	units int64
	taken weir.Instant
}

// maxSteps is the number of steps of a charge that are kept apart, so that each can be given back where it was taken.
const maxSteps = 32

// ChargeStep charges units of a rule with charge: as_it_streams while the response of its request is streamed, to all
// claims of the rule in the receipt, which notes them for Settle. granted is false if a limit does not have them, until
// wait has passed: nothing is charged then, unless beyond is set, which charges the units beyond the limit too. Shadow
// rules, and rules without a claim in the receipt, are granted. Calls for one receipt must not be concurrent.
func (g *Gate) ChargeStep(ctx context.Context, receipt Receipt, rule *rules.Rule, units int64, beyond bool) (
	granted bool, wait time.Duration, err error,
) {
	ctx, cancel := g.detached(ctx)
	defer cancel()
	var of []*Charged
	shadow, now := false, g.inForce(receipt)
	var claims []weir.Claim
	for i := range receipt {
		if c := &receipt[i]; c.Rule == rule && !c.Fixed && c.Claim.Lease == "" && !c.Claim.Once {
			claim := now[i].Claim
			claim.Cost, claim.Delay, claim.Settle = units, 0, false
			of, claims = append(of, c), append(claims, claim)
			shadow = shadow || strings.HasPrefix(claim.Key, shadowed)
		}
	}
	if len(of) == 0 {
		return true, 0, nil
	}
	by, decisions := g.by(of[0]), make([]weir.Decision, len(claims))
	times, err := by.Decide(ctx, claims, 1, decisions)
	if err != nil || times == 0 && !beyond && !shadow {
		return false, longest(decisions), err
	}
	if times == 0 {
		if err := by.Charge(ctx, claims, decisions); err != nil {
			return false, 0, err
		}
	}
	for i, c := range of {
		c.note(step{units, decisions[i].At})
	}
	return times > 0 || shadow, 0, nil
}

// longest is the longest wait of refused claims.
func longest(decisions []weir.Decision) (wait time.Duration) {
	for i := range decisions {
		if wait = max(wait, decisions[i].RetryAfter); decisions[i].RetryAfter == weir.Never {
			return weir.Never
		}
	}
	return wait
}

// note keeps a step. Beyond maxSteps the two oldest become one, taken when the first was: less of it may come back.
func (c *Charged) note(s step) {
	if c.open != nil {
		c.open.units.Add(s.units)
	}
	if c.steps = append(c.steps, s); len(c.steps) > maxSteps {
		c.steps[1] = step{c.steps[0].units + c.steps[1].units, c.steps[0].taken}
		c.steps = slices.Delete(c.steps, 0, 1)
	}
}

// stepped is the number of units of all steps.
func (c *Charged) stepped() (units int64) {
	for _, s := range c.steps {
		units += s.units
	}
	return units
}

// settleSteps gives back what the steps have beyond the cost, the latest first. It returns what the charge itself is to
// cost then.
func (g *Gate) settleSteps(ctx context.Context, c *Charged, units int64) (own int64, err error) {
	stepped := c.stepped()
	excess := c.Claim.Cost + stepped - units
	for _, s := range slices.Backward(c.steps) {
		back := min(excess, s.units)
		if back <= 0 {
			break
		}
		claim := c.Claim
		claim.Cost, claim.Settle = back, true
		if err := g.by(c).Refund(ctx, []weir.Claim{claim}, s.taken, nil); err != nil {
			return 0, err
		}
		excess, stepped = excess-back, stepped-back
	}
	return units - stepped, nil
}
