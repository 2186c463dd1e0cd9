package rules

import (
	"math/bits"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v4"
)

// EnforcePercent is for how many of its keys the rule is enforced, 0 to 100.
func (r *Rule) EnforcePercent() int { return int(r.percent) }

// Enforces reports whether the rule is enforced for a key, which is what AppendKey appended.
// The answer depends on the rule's name, its percentage and the key alone: it is the same on
// every node and after every restart, and who is enforced at 10 percent is at 20. There is
// no secret in it, and a percentage is no defence: who can choose keys can choose one that
// the rule is not enforced for yet.
func (r *Rule) Enforces(key []byte) bool {
	if r.percent == 100 {
		return true
	}
	// The name goes into the hash, not beside it, so that two rules take shares of their keys
	// that have nothing to do with each other.
	var hash xxhash.Digest
	hash.Reset()
	hash.WriteString(r.name)
	hash.WriteString(" ")
	hash.Write(key)
	place, _ := bits.Mul64(hash.Sum64(), 100)
	return place < r.percent
}

func (b *builder) percent(i int, s *Spec) uint64 {
	p := at(i, "enforce_percent")
	switch {
	case s.EnforcePercent == nil:
		return 100
	case *s.EnforcePercent < 0 || *s.EnforcePercent > 100:
		b.add(p, "enforce_percent is %d; allowed: 0 to 100", *s.EnforcePercent)
		return 100
	case len(s.Key) == 0 && !b.has(at(i, "key")):
		b.add(p, "enforce_percent needs a key: it is so many of a rule's keys, and without one all requests share one key")
	}
	return uint64(*s.EnforcePercent)
}

// percent reads a whole number that may be 0; nil is none.
func (d *decoder) percent(p place, n *yaml.Node) *int {
	text := d.text(p, n)
	if text == "" {
		return nil
	}
	percent, err := strconv.Atoi(text)
	if err != nil || percent < 0 || percent > 100 || text[0] == '+' || text[0] == '-' || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		d.wrong(n, "%s is %.80q; allowed: a whole number from 0 to 100, unquoted and without a sign", p, text)
		return nil
	}
	return &percent
}
