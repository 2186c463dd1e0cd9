package gate

import (
	"context"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// DecideCrowd decides so many claims of a rule, which no set of rules that compiles would have.
func (g *Gate) DecideCrowd(ctx context.Context, rule *rules.Rule, keys []string, v *Verdict) error {
	v.reset(g)
	for _, key := range keys {
		v.add(rule, weir.Claim{Key: key, Limit: rule.Limits()[0], Cost: 1})
	}
	v.enforced = len(keys)
	granted, err := g.store.Decide(ctx, v.claims, 1, v.room(len(v.claims)))
	return g.enforced(ctx, 1, v, granted, err)
}

// Replaced are the aliases that all requests of the call replace, where a rule of the request has one of them.
func (q *Question) Replaced() []string { return q.Ask.replaced }
