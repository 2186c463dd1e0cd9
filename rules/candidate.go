package rules

import (
	"cmp"

	"github.com/weirproject/weir"
)

// A CompiledCandidate is a checked Candidate.
type CompiledCandidate struct {
	limits []*weir.Limit
	keyed  *Rule // has the components of its own key; nil: the rule's
}

// Candidate returns the rule's candidate; nil if the rule has no candidate.
func (r *Rule) Candidate() *CompiledCandidate { return r.candidate }

// Limits have the rule's name and .candidate before the number. Do not change the slice.
func (c *CompiledCandidate) Limits() []*weir.Limit { return c.limits }

// Keyed reports whether the candidate has another key than the rule.
func (c *CompiledCandidate) Keyed() bool { return c.keyed != nil }

// Components are the words of the candidate's own key, as Rule.Components; empty if it has the rule's key.
func (c *CompiledCandidate) Components() []string {
	if c.keyed == nil {
		return nil
	}
	return c.keyed.Components()
}

// AppendKey is Rule.AppendKey for the candidate's own key.
func (c *CompiledCandidate) AppendKey(dst []byte, r *Request) (key []byte, ok bool) {
	return c.keyed.AppendKey(dst, r)
}

func (b *builder) candidate(i int, s *Spec, rule *Rule, named bool) *CompiledCandidate {
	given := &s.Candidate
	if len(given.Limit) == 0 && given.Algorithm == "" && len(given.Key) == 0 {
		return nil
	}
	p := at(i, "candidate.limit")
	b.algorithm(at(i, "candidate.algorithm"), given.Algorithm)
	like := &Spec{Name: s.Name + ".candidate", Algorithm: cmp.Or(given.Algorithm, s.Algorithm)}
	c := &CompiledCandidate{limits: b.limits(p, given.Limit, like, rule, named)}
	for _, limit := range c.limits {
		if limit.Leases() {
			b.add(p, "a candidate cannot be a concurrency limit: requests that only the candidate grants never run, "+
				"so they never end")
			break
		}
	}
	if len(given.Key) > 0 {
		if len(s.Overrides) > 0 {
			b.add(at(i, "candidate.key"), "a candidate with another key does not go with overrides: it has other keys")
		}
		c.keyed = &Rule{set: b.set, onMissing: rule.onMissing,
			components: b.key(at(i, "candidate.key"), given.Key, s.Match.Path)}
	}
	return c
}

// candidate warns of candidates that are never decided.
func (l *linter) candidate(i int, rule *Rule) {
	if rule.candidate != nil && (rule.mode == Shadow || rule.percent == 0) {
		l.add(at(i, "candidate"), "the candidate is never used: its rule is not enforced for any key")
	}
}
