package gate

import (
	"hash/maphash"
	"math"
	"sync"

	"github.com/weirproject/weir/rules"
)

// An expected cost is what a verdict knows of a cost that is learned, or counted as the response passes.
type expected struct {
	rule  *rules.Rule
	known int64  // units that the request itself tells, such as those of its prompt
	class uint64 // of a rule that learns
	from  uint32 // number of the settled costs that the estimate is from; 0: it is the stated one
}

// A learner has estimates of costs, by class: a rule, a key and perhaps a value of the request. It estimates the cost
// of a request beyond the units that the request tells: the exponentially weighted mean, and two standard deviations
// weighted likewise. A budget holds if the sum of the requests under way is not above its estimate, and the deviation
// of a sum grows with the root of their number, so that two suffice. The mean alone would be too low for half of the
// sums. The estimate follows a class that costs more within a few costs, which widen the deviation, and one that costs
// less slowly.
//
// The key is always part of a class: by a class of several keys, one key could lower the estimates of others. A class
// gives its place to another one if it was not settled for long, and is then as a new one. Only settled costs make
// classes, so that it takes answers of the service to displace one. The zero learner is ready to use. It is safe for
// concurrent use.
type learner struct {
	mu      sync.Mutex
	seed    maphash.Seed
	sets    [][learnWays]estimate // nil: nothing was learned yet
	settled uint64                // number of all costs
}

// An estimate is of a class.
type estimate struct {
	class          uint64 // 0: the place is free
	mean, variance float64
	from           uint32
	last           uint64 // learner.settled at its latest cost
}

const (
	learnSets   = 1 << 12 // of 160 bytes
	learnWays   = 4       // a class has one of the places of a set
	learnFrom   = 16      // costs that a class must have settled
	learnWeight = 1. / 32
	learnMargin = 2 // standard deviations
)

// class is the class of a rule and texts, which have no common borders by accident. It is not 0.
func (l *learner) class(rule *rules.Rule, key string, value []byte) uint64 {
	l.mu.Lock()
	if l.sets == nil {
		l.sets, l.seed = make([][learnWays]estimate, learnSets), maphash.MakeSeed()
	}
	l.mu.Unlock()
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, text := range []string{rule.Name(), rule.Settle(), key} {
		maphash.WriteComparable(&h, len(text))
		h.WriteString(text)
	}
	h.Write(value)
	return max(1, h.Sum64())
}

// expect is the learned cost of a request of the class, from 1 to most, and the number of costs that it is from. That
// is 0 if they are too few.
func (l *learner) expect(class uint64, known, most int64) (units int64, from uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range &l.sets[class%learnSets] {
		if e.class == class && e.from >= learnFrom {
			beyond := math.Ceil(e.mean + learnMargin*math.Sqrt(e.variance))
			return max(1, known+int64(min(beyond, float64(most-known)))), e.from
		}
	}
	return 0, 0
}

// learn takes the settled cost of a request.
func (l *learner) learn(of *expected, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled++
	set := &l.sets[of.class%learnSets]
	e := &set[0]
	for i := range set {
		if set[i].class == of.class {
			e = &set[i]
			break
		}
		if set[i].last < e.last {
			e = &set[i]
		}
	}
	if e.class != of.class {
		*e = estimate{class: of.class}
	}
	if e.last = l.settled; e.from < math.MaxUint32 {
		e.from++
	}
	weight := max(1/float64(e.from), learnWeight)
	off := float64(max(0, units-of.known)) - e.mean
	e.mean += weight * off
	e.variance = (1 - weight) * (e.variance + weight*off*off)
}

// expect is the cost of a request that states units: by what was learned, if the rule learns. The verdict notes what is
// known of it.
func (v *Verdict) expect(rule *rules.Rule, r *rules.Request, key string, units int64) int64 {
	class, known, most := rule.Expect(nil, r)
	of := expected{rule: rule, known: known}
	if l := &v.gate.learner; rule.Learns() {
		of.class = l.class(rule, key, class)
		learned, from := l.expect(of.class, known, most)
		if of.from = from; from > 0 {
			units = learned
		}
	}
	v.expected = append(v.expected, of)
	return units
}

// expectedOf is what is known of the rule's cost, or nil.
func (v *Verdict) expectedOf(rule *rules.Rule) *expected {
	for i := range v.expected {
		if v.expected[i].rule == rule {
			of := v.expected[i]
			return &of
		}
	}
	return nil
}
