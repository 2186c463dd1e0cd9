package redissource

import (
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// DefaultPrefix is what the keys of hashes begin with.
const DefaultPrefix = "rate_limit_config:"

// A Hash is what one hash says: a rule, or problems.
type Hash struct {
	Rule     *rules.Spec
	Enabled  bool
	Problems []ruleset.Problem
	Ignored  []ruleset.Problem // fields without an effect
}

// ReadHash reads a hash alone, as a source does.
func ReadHash(prefix, key string, fields map[string]string) Hash {
	fields = plainFields(fields)
	f := found(prefix, key, fields)
	h := Hash{Enabled: f.rec.enabled, Problems: f.problems, Ignored: f.ignored}
	if len(h.Problems) == 0 {
		h.Problems = check(key, fields, &f.rec)
	}
	if len(h.Problems) == 0 {
		h.Rule = f.rec.spec
	}
	return h
}
