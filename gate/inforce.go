package gate

import (
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

// inForce is the receipt under the limits that its rules have by now: an edit may have changed numbers while the
// request was under way, and units are given back and corrected under the limits in force. A rule that is gone keeps
// its numbers.
func (g *Gate) inForce(receipt Receipt) Receipt {
	set, copied := g.Rules(), false
	for i := range receipt {
		before := receipt[i].Rule
		if before == nil {
			continue
		}
		all := set.Rules()
		if place := before.Index(); place < len(all) && all[place] == before {
			continue
		}
		place := slices.IndexFunc(all, func(r *rules.Rule) bool { return r.Name() == before.Name() })
		if place < 0 {
			continue
		}
		if !copied {
			receipt, copied = slices.Clone(receipt), true
		}
		receipt[i].adopt(all[place])
	}
	return receipt
}

// adopt replaces the limit of the claim by the limit of the rule with the same state, if there is one.
func (c *Charged) adopt(rule *rules.Rule) {
	_, limits, err := rule.LookupText(strings.TrimPrefix(c.Claim.Key, shadowed))
	if candidate := rule.Candidate(); candidate != nil {
		limits = append(slices.Clip(limits), candidate.Limits()...)
	}
	if err != nil {
		return
	}
	for _, limit := range limits {
		if limit.SameState(c.Claim.Limit) {
			c.Claim.Limit = limit
		}
	}
}
