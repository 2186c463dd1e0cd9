package rules

import (
	"hash/fnv"
	"math/bits"
)

// EnforcePercent is the percentage of keys that the rule is enforced for.
func (r *Rule) EnforcePercent() int { return int(r.percent) }

// Enforces reports whether the rule is enforced for a key, the result of AppendKey. It depends on the rule's
// name, its percentage and the key alone: it is the same on every node and after a restart, and a key that is
// enforced at 10 percent is enforced at 20. It is not secret: a client that can choose keys can find one that
// is not enforced.
func (r *Rule) Enforces(key []byte) bool {
	if r.percent == 100 {
		return true
	}
	// The name is part of the hash, so that two rules select their keys independently.
	hash := fnv.New64a()
	hash.Write([]byte(r.name))
	hash.Write([]byte{' '})
	hash.Write(key)
	place, _ := bits.Mul64(mixed(hash.Sum64()), 100)
	return place < r.percent
}

// mixed is MurmurHash3's last step: the high bits of FNV-1a hardly depend on the last bytes of a short key.
func mixed(hash uint64) uint64 {
	hash = (hash ^ hash>>33) * 0xff51afd7ed558ccd
	hash = (hash ^ hash>>33) * 0xc4ceb9fe1a85ec53
	return hash ^ hash>>33
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
		b.add(p, "enforce_percent needs a key: it is so many of a rule's keys, and without one all requests share "+
			"one key")
	}
	return uint64(*s.EnforcePercent)
}
