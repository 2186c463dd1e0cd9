package fair

import "unsafe"

// Parts are the parts of all members, in a hash table with open addressing: a decision looks at one line of the cache,
// and allocates nothing. The zero Parts are empty. A copy shares its table, so of two copies one is written at most.
type Parts struct {
	slots   []slot // a power of two, of which at most three quarters are used
	members int64
	weights int64 // of the members, without the others
	others  int64 // units of the members beyond MaxKeys, who are together one member with the weight 1
}

// A slot has the part of a member, or no units. A search for a member ends at the first slot without units.
type slot struct {
	id int64
	Part
}

const (
	slotBytes  = int64(unsafe.Sizeof(slot{}))
	firstSlots = 8
)

// home is the slot at which the search for a member begins. IDs need not be random: they are multiplied by 2^64 / φ.
func (p *Parts) home(id int64) int {
	return int(uint64(id)*0x9e3779b97f4a7c15>>32) & (len(p.slots) - 1)
}

func (p *Parts) next(i int) int { return (i + 1) & (len(p.slots) - 1) }

// find is the slot of a member, or the one that ends the search for it.
func (p *Parts) find(id int64) (i int, known bool) {
	if len(p.slots) == 0 {
		return 0, false
	}
	for i = p.home(id); p.slots[i].Units > 0; i = p.next(i) {
		if p.slots[i].id == id {
			return i, true
		}
	}
	return i, false
}

// part is the part of a member; without units, if the member has none of its own.
func (p *Parts) part(id int64) (part Part) {
	if i, known := p.find(id); known {
		part = p.slots[i].Part
	}
	return part
}

// insert adds the part of a member that has none.
func (p *Parts) insert(id int64, part Part) {
	if p.full() {
		p.grow()
	}
	i, _ := p.find(id)
	p.slots[i] = slot{id, part}
	p.members++
	p.weights += part.Weight
}

// full reports whether a further member needs a larger table.
func (p *Parts) full() bool { return 4*(p.members+1) > 3*int64(len(p.slots)) }

func (p *Parts) grow() {
	old := p.slots
	p.slots = make([]slot, max(firstSlots, 2*len(old)))
	for _, s := range old {
		if s.Units > 0 {
			i, _ := p.find(s.id)
			p.slots[i] = s
		}
	}
}

// drop empties a slot. Later parts that are not at home move towards it; otherwise a search for them would end at the
// empty slot.
func (p *Parts) drop(i int) {
	p.members--
	p.weights -= p.slots[i].Weight
	mask := len(p.slots) - 1
	for j := p.next(i); p.slots[j].Units > 0; j = p.next(j) {
		if (j-p.home(p.slots[j].id))&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = slot{}
}

// clear drops all parts. The table stays for the members of the next window, unless it was mostly empty.
func (p *Parts) clear() {
	kept := p.slots
	if 8*p.members < int64(len(kept)) {
		kept = nil
	}
	clear(kept)
	*p = Parts{slots: kept}
}

// Bytes is the memory of the parts.
func (p *Parts) Bytes() int64 { return int64(len(p.slots)) * slotBytes }

// Growth is the number of bytes that one more member adds.
func (p *Parts) Growth() int64 {
	if !p.full() {
		return 0
	}
	return max(firstSlots*slotBytes, p.Bytes())
}
