package gate

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// An Override is a limit that a request brings along, such as a tenant's limit.
type Override struct {
	// Limit has the numbers. A rule keeps its algorithm, but for a calendar, which counts in windows since the epoch;
	// the burst and the overdraft of a bucket do not apply.
	Limit weir.FixedWindow
	// Name and Key are the name and the key of the claim if no rule is about the request's descriptors: then it is
	// decided beside the rules. While the store does not answer, the local store decides it. Key is not in a reused
	// buffer.
	Name, Key string
	// Alone decides by this limit alone: no rule applies.
	Alone bool
}

// limits are the limits of a rule for a request.
func (o *Override) limits(rule *rules.Rule, own []*weir.Limit) ([]*weir.Limit, error) {
	if len(own) == 0 || !rule.Described() {
		return own, nil
	}
	limit, err := weir.NewLimit(own[0].Name(), own[0].WithRate(o.Limit.Limit, o.Limit.Window))
	if err != nil {
		return nil, err
	}
	return []*weir.Limit{limit}, nil
}

// override adds the claim of an override that no rule takes.
func (v *Verdict) override(ask *Ask) error {
	for _, rule := range v.matched {
		if rule.Described() {
			return nil
		}
	}
	limit, err := weir.NewLimit(ask.Override.Name, ask.Override.Limit)
	if err != nil {
		return err
	}
	cost := int64(1)
	if ask.Cost != nil {
		cost = *ask.Cost
	}
	v.add(nil, weir.Claim{Key: ask.Override.Key, Limit: limit, Cost: cost})
	v.about[len(v.about)-1].override = true
	return nil
}
