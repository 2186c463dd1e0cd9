package weir

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Fair is a limit that its members, such as the tenants of a service, share fairly once it is nearly used up. Of is the
// shared limit: a [FixedWindow], [Calendar] or [Concurrency]. Each claim names its Member.
//
// While the usage after a grant stays within Above per cent of the limit, every member is granted. Beyond it a member
// is granted while its own usage, with the cost, stays within its share: limit × weight / sum of the weights of the
// members that used the limit, itself included. In a window, a member is also granted while the usage of all members is
// no larger a part of the limit than the time that has passed is of the window: otherwise the shares of members without
// requests would be lost. The limit as a whole is never exceeded. See docs/reference/fair.md.
type Fair struct {
	Of      Spec
	Above   int   // per cent of the limit, 0 to 100
	MaxKeys int64 // members that are told apart, 1 to MaxFairKeys, 0 is MaxFairKeys; further members share one usage
}

const (
	// MaxFairKeys is the largest number of members that a [Fair] limit tells apart.
	MaxFairKeys = 10_000
	// MaxWeight is the largest weight of a member of a [Fair] limit.
	MaxWeight = 1_000

	// Bounds of a shared limit: its units times a weight, and its period times 100, are below 2^52.
	maxFairUnits  = 1 << 42
	maxFairPeriod = 1 << 45
)

// fairOf is the algorithm of a Fair limit, by the algorithm of the shared limit; 0 if that cannot be shared.
var fairOf = [algorithms]Algorithm{
	AlgorithmFixedWindow: AlgorithmFairWindow,
	AlgorithmCalendar:    AlgorithmFairCalendar,
	AlgorithmConcurrency: AlgorithmFairConcurrency,
}

// fairWord is the begin of the text of a Fair limit. The text of the shared limit follows.
const fairWord = "fair_"

func (s Fair) compile(l *Limit) error {
	if s.Of == nil {
		return invalid("fair", "nothing", "a FixedWindow, Calendar or Concurrency")
	}
	whole := &Limit{name: l.name, spec: s.Of}
	if err := s.Of.compile(whole); err != nil {
		return err
	}
	whole.finish()
	if err := s.check(whole); err != nil {
		return err
	}
	if err := s.Of.compile(l); err != nil {
		return err
	}
	l.whole, l.algorithm = whole, fairOf[whole.algorithm]
	l.above, l.maxKeys = whole.capacity*int64(s.Above)/100, s.keys()
	return nil
}

func (s Fair) check(whole *Limit) error {
	switch {
	case fairOf[whole.algorithm] == 0:
		return invalid("fair", s.Of, "a fixed_window, calendar or concurrency: what a member has of a "+
			whole.algorithm.String()+" changes with time, and is not kept")
	case s.Above < 0 || s.Above > 100:
		return invalid("above", s.Above, "0 to 100 per cent")
	case s.keys() < 1 || s.keys() > MaxFairKeys:
		return invalid("keys", s.MaxKeys, "1 to "+strconv.Itoa(MaxFairKeys))
	case whole.capacity > maxFairUnits || whole.period > maxFairPeriod:
		return invalid("fair", s.Of, "at most 2^42 units, and a time of 2^45us (about 400 days) or less")
	}
	return nil
}

func (s Fair) keys() int64 {
	if s.MaxKeys == 0 {
		return MaxFairKeys
	}
	return s.MaxKeys
}

// String is "fair_" and the text of the shared limit, then "above N keys N".
func (s Fair) String() string {
	return fmt.Sprintf("%s%v above %d keys %d", fairWord, s.Of, s.Above, s.keys())
}

func (s Fair) most(l *Limit, us int64) int64 { return s.Of.most(l, us) }

func (s Fair) with(units int64) Spec {
	s.Of = s.Of.with(units)
	return s
}

// rated changes the shared limit; the result is a Fair limit too, as the claims name members.
func (s Fair) rated(units int64, period time.Duration) Spec {
	s.Of = s.Of.rated(units, period)
	return s
}

func (s Fair) shares(nodes int64) (list []Spec) {
	for _, part := range s.Of.shares(nodes) {
		list = append(list, Fair{Of: part, Above: s.Above, MaxKeys: s.MaxKeys})
	}
	return list
}

func (s Fair) within(other Spec) bool {
	b, ok := other.(Fair)
	return ok && s.Above <= b.Above && s.keys() == b.keys() && (s.Of == b.Of || s.Of.within(b.Of))
}

// fair returns the function that reads a Fair limit; of reads the shared limit.
func fair(of func(*limitParser) Spec) func(*limitParser) Spec {
	return func(p *limitParser) Spec {
		above, keys := p.option("above", defaultAbove), p.option("keys", MaxFairKeys)
		if keys == 0 { // which a Fair takes for its default
			p.fail("keys from 1 to " + strconv.Itoa(MaxFairKeys))
		}
		return Fair{Of: of(p), Above: int(min(above, 101)), MaxKeys: keys}
	}
}

// defaultAbove is Above of a text without it.
const defaultAbove = 50

// Whole is the limit that the members of a [Fair] limit share; nil for other limits.
func (l *Limit) Whole() *Limit { return l.whole }

// Above is the number of units of a [Fair] limit that are granted to any member.
func (l *Limit) Above() int64 { return l.above }

// MaxKeys is the number of members that a [Fair] limit tells apart.
func (l *Limit) MaxKeys() int64 { return l.maxKeys }

// Fair reports whether the algorithm's limits are shared by members.
func (a Algorithm) Fair() bool { return strings.HasPrefix(a.String(), fairWord) }
