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

// Parts are the parts of all members. The zero Parts are empty.
type Parts struct {
	list   map[int64]Part
	others int64 // units of the members beyond MaxKeys, who are together one member with the weight 1
	sum    int64 // of the weights, without the others'
}

// Of is the standing of a member, without Used and Open.
func (p *Parts) Of(l *weir.Limit, m Member) (s weir.Standing) { return p.without(nil).of(l, m) }

// totals are the sums that a standing depends on, beside the member's own part.
type totals struct {
	*Parts
	gone    tally
	others  int64
	sum     int64 // of the weights of all, the others' too
	members int64
}

// tally is units by the ID of a member; the others have ID 0.
type tally map[int64]int64

// without returns the totals as they are after some units went back.
func (p *Parts) without(gone tally) totals {
	t := totals{p, gone, p.others - gone[0], p.sum, int64(len(p.list))}
	if t.others > 0 {
		t.sum++
	}
	for id, units := range gone {
		if part, known := p.list[id]; known && part.Units <= units {
			t.sum -= part.Weight
			t.members--
		}
	}
	return t
}

func (t *totals) known(id int64) bool { return t.list[id].Units > t.gone[id] }

// part is the ID that the units of a member are counted under: its own, or 0 with the others.
func (t *totals) part(l *weir.Limit, m Member) int64 {
	if t.known(m.ID) || t.members < l.MaxKeys() {
		return m.ID
	}
	return 0
}

func (t totals) of(l *weir.Limit, m Member) (s weir.Standing) {
	s.Weights = t.sum
	switch {
	case t.known(m.ID):
		s.Own = t.list[m.ID].Units - t.gone[m.ID]
		s.Weights += m.Weight - t.list[m.ID].Weight
	case t.members < l.MaxKeys():
		s.Weights += m.Weight
	default:
		s.Own, s.Others, m.Weight = t.others, true, 1
		if t.others == 0 {
			s.Weights++
		}
	}
	s.Share = l.Capacity() * m.Weight / s.Weights
	return s
}

// add counts n units of a member, or of the others.
func (p *Parts) add(l *weir.Limit, m Member, n int64) {
	t := p.without(nil)
	if t.part(l, m) == 0 {
		p.others = algorithm.Add(p.others, n)
		return
	}
	if p.list == nil {
		p.list = make(map[int64]Part)
	}
	part := p.list[m.ID]
	p.sum += m.Weight - part.Weight
	p.list[m.ID] = Part{algorithm.Add(part.Units, n), m.Weight}
}

// remove gives back n units of a member: of the others, if it is not told apart.
func (p *Parts) remove(id, n int64) {
	part, known := p.list[id]
	switch {
	case !known:
		p.others = max(0, p.others-n)
	case part.Units <= n:
		delete(p.list, id)
		p.sum -= part.Weight
	default:
		part.Units -= n
		p.list[id] = part
	}
}

// PartBytes is about the memory of a member's part.
const PartBytes = 64

// Bytes is about the memory of the parts.
func (p *Parts) Bytes() int64 { return int64(len(p.list)) * PartBytes }

// Numbers are the parts as a list: the others' units, then for each member both halves of the ID, units and weight. A
// number of a snapshot is about as large as units may be, and an ID may be larger.
func (p *Parts) Numbers() []int64 {
	list := []int64{p.others}
	for id, part := range p.list {
		list = append(list, id>>32, id&math.MaxUint32, part.Units, part.Weight)
	}
	return list
}

// FromNumbers returns the parts of such a list. ok is false for any other list.
func FromNumbers(list []int64) (p Parts, ok bool) {
	if len(list)%4 != 1 || list[0] < 0 || len(list) > 1+4*weir.MaxFairKeys {
		return p, false
	}
	p.others, p.list = list[0], make(map[int64]Part)
	for rest := list[1:]; len(rest) > 0; rest = rest[4:] {
		high, low, part := rest[0], rest[1], Part{rest[2], rest[3]}
		if int64(int32(high)) != high || int64(uint32(low)) != low ||
			part.Units < 1 || part.Weight < 1 || part.Weight > weir.MaxWeight {
			return p, false
		}
		p.list[high<<32|low] = part
		p.sum += part.Weight
	}
	return p, len(p.list) == len(list)/4
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
