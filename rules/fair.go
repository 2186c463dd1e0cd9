package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A fair is a checked Fair.
type fair struct {
	by      []component
	weigh   *component // its values have the weights; nil: all members have the weight 1
	weights map[string]int64
	above   int
	keys    int64
	label   Rule // renders members as keys
}

// defaultFairAbove is above of a rule without it.
const defaultFairAbove = 50

// fair checks fair; nil without it. The limits follow it: see share.
func (b *builder) fair(i int, s *Spec) *fair {
	given := &s.Fair
	if len(given.By)+len(given.Weights) == 0 && given.MaxKeys == 0 && given.Above+given.WeightBy == "" {
		return nil
	}
	f := &fair{weights: make(map[string]int64), above: defaultFairAbove, keys: int64(given.MaxKeys)}
	if len(given.By) == 0 && !b.has(at(i, "fair.by")) {
		b.add(at(i, "fair.by"), "fair.by is missing: who shares the limit, such as by: [header.X-Tenant]")
	}
	f.by = b.key(at(i, "fair.by"), given.By, s.Match.Path)
	f.label = Rule{set: b.set, components: f.by, onMissing: Anonymous}
	if given.Above != "" {
		percent, ok := wholePercent(given.Above)
		if f.above = int(percent); !ok && given.Above != "100%" {
			b.add(at(i, "fair.above"), "fair.above is %.80q; allowed: 0%% to 100%%, in whole numbers", given.Above)
		} else if !ok {
			f.above = 100
		}
	}
	if given.MaxKeys < 0 || given.MaxKeys > weir.MaxFairKeys {
		b.add(at(i, "fair.max_keys"), "fair.max_keys is %d; allowed: 1 to %d", given.MaxKeys, weir.MaxFairKeys)
		f.keys = 0
	}
	b.weights(i, s, f)
	if !s.limited() {
		b.add(at(i, "fair"), "fair shares a limit, and the rule has none")
	}
	if s.LeasePercent != 0 {
		b.add(at(i, "lease_percent"), "lease_percent has no effect with fair: units of a fair limit are not "+
			"prefetched; leave one out")
	}
	return f
}

func (b *builder) weights(i int, s *Spec, f *fair) {
	given, p := &s.Fair, at(i, "fair.weights")
	b.count(p, len(given.Weights), bounds.Values)
	for _, value := range slices.Sorted(maps.Keys(given.Weights)) {
		weight := given.Weights[value]
		if weight < 1 || weight > weir.MaxWeight {
			b.add(at(i, "fair.weights."+value), "fair.weights.%s is %d; allowed: 1 to %d", value, weight,
				weir.MaxWeight)
		}
		f.weights[value] = weight
	}
	switch {
	case given.WeightBy != "" && len(given.Weights) == 0:
		b.add(at(i, "fair.weight_by"), "fair.weight_by has no effect without weights")
	case given.WeightBy != "":
		if list := b.key(at(i, "fair.weight_by"), []string{given.WeightBy}, s.Match.Path); len(list) == 1 {
			f.weigh = &list[0]
		}
	case len(given.Weights) > 0 && len(f.by) == 1:
		f.weigh = &f.by[0]
	case len(given.Weights) > 0 && len(f.by) > 1:
		b.add(at(i, "fair.weight_by"), "fair.weight_by is missing: fair.by has several components; which has the "+
			"weights?")
	}
}

// share makes the fair limit of a limit of the rule.
func (b *builder) share(p place, limit *weir.Limit, f *fair) *weir.Limit {
	shared, err := weir.NewLimit(limit.Name(), weir.Fair{Of: limit.Spec(), Above: f.above, MaxKeys: f.keys})
	if err != nil {
		b.add(p, "%s", sentence(err))
		return limit
	}
	return shared
}

// AppendMember appends the member of a request that shares the rule's limits, and returns its weight. Without fair dst
// is unchanged.
func (r *Rule) AppendMember(dst []byte, request *Request) (member []byte, weight int64) {
	if r.fair == nil {
		return dst, 0
	}
	var buffer [bounds.Text]byte
	if weight = 1; r.fair.weigh != nil {
		if stated := r.fair.weights[r.fair.weigh.text(buffer[:0], request)]; stated > 0 {
			weight = stated
		}
	}
	member, _ = r.fair.label.AppendKey(dst, request)
	return member, weight
}

// fair warns of members that clients can make up, and of limits with a single member.
func (l *linter) fair(i int, s *Spec, rule *Rule) {
	f := rule.fair
	if f == nil {
		return
	}
	alone := true
	for j, c := range f.by {
		alone = alone && slices.Contains(s.Key, s.Fair.By[j])
		if c.source.chosen() && len(l.set.proxies) == 0 {
			l.add(at(i, "fair.by"), "each client can be many members, as it sends %s itself, and gain their shares: "+
				takeProven, s.Fair.By[j])
		}
	}
	if alone {
		l.add(at(i, "fair.by"), "each key has one member, which shares with nobody, as %s is in key: leave fair out, "+
			"or take it out of key", strings.Join(s.Fair.By, ", "))
	}
	switch named := int64(len(f.weights)); {
	case f.keys == 1:
		l.add(at(i, "fair.max_keys"), "one member alone is told apart, and all others have one share together")
	case f.keys > 0 && f.keys < named && f.weigh == &f.by[0]:
		l.add(at(i, "fair.max_keys"), "%d members are told apart, and weights has %d: those beyond them have one "+
			"share together, of weight 1", f.keys, named)
	}
}
