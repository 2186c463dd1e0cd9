package gate

import (
	"hash/maphash"
	"math"
	"sync"

	"github.com/weirproject/weir/rules"
)

// An expected cost belongs to a request with a cost that is learned, or counted as the response passes.
type expected struct {
	rule  *rules.Rule
	known int64  // units that the request itself tells, such as the tokens of its prompt
	value []byte // class of the request in a rule that learns, beside its key
	class uint64 // hash of rule, key and value; 0: the rule does not learn
	from  uint32 // number of settled costs that the estimate is from; 0: the estimate is the stated cost
}

// A learner estimates costs by class. A class is a rule, a key and perhaps a value of the request. The estimate is the
// units that the request tells, the mean of all costs beyond such units, and two standard deviations. Mean and
// deviation are exponentially weighted.
//
// A budget holds while the costs of all requests under way are together no higher than their estimates. The mean alone
// would be too low for half of these sums. Two deviations for each request suffice, because the deviation of a sum
// grows only with the root of the number of requests. If a class becomes more expensive, the estimate follows within a
// few costs, since they widen the deviation. If it becomes cheaper, the estimate follows slowly.
//
// The key is always part of a class: otherwise one key could lower the estimates of others. A class that was not
// settled for long loses its place to a new class, and begins anew later. Only settled costs make classes: a client
// displaces a class only by requests that the service answers. The zero learner is ready to use. It is safe for
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

// class is the class of a rule, a key and a value. The hash has the lengths of the texts, so that equal letters with
// other borders are another class. It is not 0.
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

// expect is the learned cost of a request of the class, from 1 to most, and the number of costs that it is from; both
// are 0 if the class has too few costs.
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

// learn takes the settled cost of a request of the class.
func (l *learner) learn(class uint64, known, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled++
	set := &l.sets[class%learnSets]
	e := &set[0]
	for i := range set {
		if set[i].class == class {
			e = &set[i]
			break
		}
		if set[i].last < e.last {
			e = &set[i]
		}
	}
	if e.class != class {
		*e = estimate{class: class}
	}
	if e.last = l.settled; e.from < math.MaxUint32 {
		e.from++
	}
	weight := max(1/float64(e.from), learnWeight)
	off := float64(max(0, units-known)) - e.mean
	e.mean += weight * off
	e.variance = (1 - weight) * (e.variance + weight*off*off)
}

// teach takes the settled cost of a charge. Errors of a service cost nothing, and must not lower estimates.
func (l *learner) teach(c *Charged, units int64) {
	if c.Class != nil && c.Rule != nil && c.Rule.Learns() && units > 0 {
		l.learn(l.class(c.Rule, c.Claim.Key, c.Class), c.Known, units)
	}
}

// expect is the cost of a request that states units: the learned cost, if there is one. The verdict keeps the expected
// cost.
func (v *Verdict) expect(rule *rules.Rule, r *rules.Request, key string, units int64) int64 {
	value, known, most := rule.Expect([]byte{}, r)
	of := expected{rule: rule, known: known}
	if l := &v.gate.learner; rule.Learns() {
		of.value, of.class = value, l.class(rule, key, value)
		learned, from := l.expect(of.class, known, most)
		if of.from = from; from > 0 {
			units = learned
		}
	}
	v.expected = append(v.expected, of)
	return units
}

// expectedOf is a copy of the rule's expected cost, or nil. A receipt keeps it when the verdict is used again.
func (v *Verdict) expectedOf(rule *rules.Rule) *expected {
	for i := range v.expected {
		if v.expected[i].rule == rule {
			of := v.expected[i]
			return &of
		}
	}
	return nil
}
