// Package fair shares a limit among its members: see README.md. A state is that of the shared limit, and the units that
// each member has of it.
package fair

import (
	"math"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// A Member is who asks: a number of its own, and its weight, from 1.
type Member struct{ ID, Weight int64 }

// A Part is what a member has of a limit.
type Part struct{ Units, Weight int64 }

// Parts are what the members have. The zero Parts are empty.
type Parts struct {
	list   map[int64]Part
	others int64 // units of the members beyond MaxKeys, who are together one member with the weight 1
	sum    int64 // of the weights, without the others'
}

// A Standing is a member's usage, and its share of the limit.
type Standing struct {
	Own, Share int64
	Sum        int64 // of the weights of all that use the limit, and the member's own
}

// Of is the standing of a member.
func (p *Parts) Of(l *weir.Limit, m Member) (s Standing) { return p.without(nil).of(l, m) }

// totals are what a standing depends on, beside the member's own part.
type totals struct {
	*Parts
	gone    tally
	others  int64
	sum     int64 // of the weights of all, the others' too
	members int64
}

// tally is units by the ID of a member; the others have ID 0.
type tally map[int64]int64

// without are the parts without some units.
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

// part is whose units a member's are: its own, or the others'.
func (t *totals) part(l *weir.Limit, m Member) int64 {
	if t.known(m.ID) || t.members < l.MaxKeys() {
		return m.ID
	}
	return 0
}

func (t totals) of(l *weir.Limit, m Member) (s Standing) {
	s.Sum = t.sum
	switch {
	case t.known(m.ID):
		s.Own = t.list[m.ID].Units - t.gone[m.ID]
		s.Sum += m.Weight - t.list[m.ID].Weight
	case t.members < l.MaxKeys():
		s.Sum += m.Weight
	default:
		s.Own, m.Weight = t.others, 1
		if t.others == 0 {
			s.Sum++
		}
	}
	s.Share = l.Capacity() * m.Weight / s.Sum
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

// FromNumbers are the parts of such a list. ok is false for another one.
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

// left is how many units a member is granted now: the limit has room of them left, and below open they are for
// anybody. It is −1 if that is exceeded.
func left(s Standing, room, open, used int64) int64 {
	return max(-1, min(room, max(open-used, s.Share-s.Own)))
}

// opened is how many units anybody may use when percent of a window have passed.
func opened(l *weir.Limit, percent int64) int64 {
	return max(l.Above(), algorithm.CeilDiv(l.Capacity()*min(percent, 100), 100))
}

// opens is the per cent of a window at which anybody may use as many units.
func opens(l *weir.Limit, units int64) int64 {
	return max(0, 100*(units-1)/l.Capacity()+1)
}
