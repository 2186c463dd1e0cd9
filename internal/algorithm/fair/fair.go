// Package fair shares a limit among its members: see README.md. Its state is the state of the shared limit, and the
// units that each member has of it.
package fair

import (
	"math"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// A Member makes requests. ID is a number of its own, and Weight is 1 or more.
type Member struct{ ID, Weight int64 }

// A Part is the usage of a member, and its weight.
type Part struct{ Units, Weight int64 }

// stand fills in the standing of a member, without Used and Open.
func (p *Parts) stand(l *weir.Limit, m Member, s *weir.Standing) {
	p.sums().stand(l, m, p.part(m.ID), s)
}

// sums are the numbers that a standing depends on, beside the member's own part.
type sums struct {
	members int64 // without the others
	weights int64 // of these members
	others  int64 // units of the members beyond MaxKeys
}

func (p *Parts) sums() sums { return sums{p.members, p.weights, p.others} }

// stand fills in the standing of a member with this part.
func (s sums) stand(l *weir.Limit, m Member, part Part, of *weir.Standing) {
	of.Own, of.Weights = part.Units, s.weights
	if s.others > 0 {
		of.Weights++
	}
	switch {
	case part.Units > 0:
		of.Weights += m.Weight - part.Weight
	case s.members < l.MaxKeys():
		of.Weights += m.Weight
	default:
		of.Own, of.Others, m.Weight = s.others, true, 1
		if s.others == 0 {
			of.Weights++
		}
	}
	of.Share = l.Capacity() * m.Weight / of.Weights
}

// add counts n units of a member, or of the others.
func (p *Parts) add(l *weir.Limit, m Member, n int64) {
	at, known := p.find(m.ID)
	switch {
	case known:
		part := &p.slots[at].Part
		p.weights += m.Weight - part.Weight
		part.Units, part.Weight = algorithm.Add(part.Units, n), m.Weight
	case p.members < l.MaxKeys():
		p.insert(m.ID, Part{algorithm.Add(0, n), m.Weight})
	default:
		p.others = algorithm.Add(p.others, n)
	}
}

// counted is the ID under which further units of a member are counted: its own, or 0 for the others.
func (p *Parts) counted(l *weir.Limit, m Member) int64 {
	if _, known := p.find(m.ID); known || p.members < l.MaxKeys() {
		return m.ID
	}
	return 0
}

// remove gives back n units of a member: of the others, if it is not told apart.
func (p *Parts) remove(id, n int64) {
	at, known := p.find(id)
	switch {
	case !known:
		p.others = max(0, p.others-n)
	case p.slots[at].Units <= n:
		p.drop(at)
	default:
		p.slots[at].Units -= n
	}
}

// Numbers are the parts as a list: the others' units, then for each member both halves of the ID, units and weight. A
// number of a snapshot is about as large as units may be, and an ID may be larger.
func (p *Parts) Numbers() []int64 {
	list := []int64{p.others}
	for _, s := range p.slots {
		if s.Units > 0 {
			list = append(list, s.id>>32, s.id&math.MaxUint32, s.Units, s.Weight)
		}
	}
	return list
}

// FromNumbers returns the parts of such a list. ok is false for any other list.
func FromNumbers(list []int64) (p Parts, ok bool) {
	if len(list)%4 != 1 || list[0] < 0 || len(list) > 1+4*weir.MaxFairKeys {
		return p, false
	}
	p.others = list[0]
	for rest := list[1:]; len(rest) > 0; rest = rest[4:] {
		high, low, part := rest[0], rest[1], Part{rest[2], rest[3]}
		if int64(int32(high)) != high || int64(uint32(low)) != low ||
			part.Units < 1 || part.Weight < 1 || part.Weight > weir.MaxWeight {
			return p, false
		}
		id := high<<32 | low
		if _, twice := p.find(id); twice {
			return p, false
		}
		p.insert(id, part)
	}
	return p, true
}

// left is the number of units that a member is granted above a floor: at most the rest of the limit, and beyond Open at
// most the rest of its share. It is −1 if a request of no units is refused too.
func left(l *weir.Limit, s *weir.Standing, floor int64) int64 {
	return max(-1, min(l.Capacity()-s.Used-floor, max(s.Open-s.Used, s.Share-s.Own)))
}

// opened is the usage up to which every member is granted, when a percentage of a window has passed.
func opened(l *weir.Limit, percent int64) int64 {
	return max(l.Above(), algorithm.CeilDiv(l.Capacity()*min(percent, 100), 100))
}

// opens is the inverse: the percentage of a window from which on every member is granted up to a usage of units.
func opens(l *weir.Limit, units int64) int64 {
	return max(0, 100*(units-1)/l.Capacity()+1)
}
