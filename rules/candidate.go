package rules

import (
	"cmp"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
)

// A Rival is a Candidate that was checked.
type Rival struct {
	limits []*weir.Limit
	keyed  *Rule // has the components of its own key; nil: it counts by the rule's
}

// Candidate is what is compared with the rule's limits; nil: nothing.
func (r *Rule) Candidate() *Rival { return r.candidate }

// Limits are called as the rule's, with .candidate before the number. Do not change the slice.
func (c *Rival) Limits() []*weir.Limit { return c.limits }

// Keyed reports whether the candidate counts by a key of its own.
func (c *Rival) Keyed() bool { return c.keyed != nil }

// Components are those of the candidate's own key, as Rule.Components has the rule's; none
// where it counts by the rule's.
func (c *Rival) Components() []string {
	if c.keyed == nil {
		return nil
	}
	return c.keyed.Components()
}

// AppendKey is Rule.AppendKey for the candidate's own key.
func (c *Rival) AppendKey(dst []byte, r *Request) (key []byte, ok bool) {
	return c.keyed.AppendKey(dst, r)
}

func (b *builder) candidate(i int, s *Spec, rule *Rule, named bool) *Rival {
	given := &s.Candidate
	if len(given.Limit) == 0 && given.Algorithm == "" && len(given.Key) == 0 {
		return nil
	}
	p := at(i, "candidate.limit")
	b.algorithm(at(i, "candidate.algorithm"), given.Algorithm)
	like := &Spec{Name: s.Name + ".candidate", Algorithm: cmp.Or(given.Algorithm, s.Algorithm)}
	c := &Rival{limits: b.limits(p, given.Limit, like, rule, named)}
	for _, limit := range c.limits {
		if limit.Algorithm() == weir.AlgorithmConcurrency {
			b.add(p, "a candidate cannot be a concurrency limit: what it would let run and the rule refuses never runs, and never ends")
			break
		}
	}
	if len(given.Key) > 0 {
		if len(s.Overrides) > 0 {
			b.add(at(i, "candidate.key"), "a candidate with another key does not go with overrides: their keys would be of no use to it")
		}
		c.keyed = &Rule{set: b.set, onMissing: rule.onMissing, components: b.key(at(i, "candidate.key"), given.Key, s.Match.Path)}
	}
	return c
}

func (d *decoder) candidate(p place, n *yaml.Node, c *Candidate) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.wrong(n, "candidate is empty; leave it out")
	}
	d.fields(n, p.rule, "candidate.", []field{
		{"limit", func(p place, n *yaml.Node) { c.Limit = d.list(p, n, MaxLimits) }},
		{"algorithm", func(p place, n *yaml.Node) { c.Algorithm = d.text(p, n) }},
		{"key", func(p place, n *yaml.Node) { c.Key = d.list(p, n, MaxComponents) }},
	})
}

// candidate looks for those that are never asked.
func (l *linter) candidate(i int, rule *Rule) {
	if rule.candidate != nil && (rule.mode == Shadow || rule.percent == 0) {
		l.add(at(i, "candidate"), "the candidate is never asked: the rule that it is compared with is in force for nobody")
	}
}
