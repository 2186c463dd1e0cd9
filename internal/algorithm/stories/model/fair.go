package model

import (
	"maps"
	"math/big"
	"slices"

	"github.com/weirproject/weir"
)

// A Fair is a window that members share: the whole as a Window, and what each member had of it.
type Fair struct {
	*shared
	member string
	weight int64
	floor  int64 // part of the units that Fits asks for: it must fit the whole alone
}

type shared struct {
	whole *Window
	had   map[string]had
	rest  int64 // of the members beyond the limit's MaxKeys
}

type had struct{ units, weight int64 }

// For is the limit as the member of a claim meets it.
func (f *Fair) For(c *weir.Claim) Model {
	return &Fair{f.shared, c.Member, max(1, c.Weight), c.Floor}
}

// now is what counts at an instant.
func (f *Fair) now(l *weir.Limit, now int64) *shared {
	if f.whole.Used(l.Whole(), now) == 0 {
		return &shared{f.whole, map[string]had{}, 0}
	}
	return f.shared
}

// apart reports whether the member is told apart from the rest.
func (s *shared) apart(l *weir.Limit, member string) bool {
	return s.had[member].units > 0 || int64(len(s.had)) < l.MaxKeys()
}

func (f *Fair) Fits(l *weir.Limit, n, now int64) bool {
	if !f.whole.Fits(l.Whole(), n, now) {
		return false
	}
	n -= f.floor
	s := f.now(l, now)
	return n+f.whole.Used(l.Whole(), now) <= f.open(l, now) || s.within(l, f, n)
}

// open is the most units that are for anybody: above, or as many hundredths of the limit as of the window have passed.
func (f *Fair) open(l *weir.Limit, now int64) int64 {
	start, end := Period(l.Whole(), f.whole.Start)
	if f.whole.Used(l.Whole(), now) == 0 {
		start, end = Period(l.Whole(), now)
	}
	passed := new(big.Int).Mul(big.NewInt(100), big.NewInt(min(max(0, now-start), end-start)))
	part := big.NewRat(passed.Div(passed, big.NewInt(end-start)).Int64(), 100)
	part.Mul(part, Whole(l.Capacity()))
	most := new(big.Int).Div(part.Num(), part.Denom())
	if !part.IsInt() {
		most.Add(most, big.NewInt(1))
	}
	return max(most.Int64(), l.Capacity()*int64(l.Spec().(weir.Fair).Above)/100)
}

// within reports whether n more units stay in the member's share.
func (s *shared) within(l *weir.Limit, f *Fair, n int64) bool {
	own, weight, sum, _ := s.part(l, f)
	share := new(big.Int).Mul(big.NewInt(l.Capacity()), big.NewInt(weight))
	return sum.Mul(sum, big.NewInt(own+n)).Cmp(share) <= 0
}

// Standing implements Sharer.
func (f *Fair) Standing(l *weir.Limit, now int64) weir.Standing {
	own, weight, sum, apart := f.now(l, now).part(l, f)
	return weir.Standing{Own: own, Share: rounded(big.NewRat(l.Capacity()*weight, sum.Int64())), Weights: sum.Int64(),
		Used: f.whole.Used(l.Whole(), now), Open: f.open(l, now), Others: !apart}
}

func rounded(part *big.Rat) int64 { return new(big.Int).Div(part.Num(), part.Denom()).Int64() }

// part is what the member had, its weight and the sum of all weights; of those that are not told apart, together.
func (s *shared) part(l *weir.Limit, f *Fair) (own, weight int64, sum *big.Int, apart bool) {
	own, weight = s.had[f.member].units, f.weight
	sum = new(big.Int)
	for member, h := range s.had {
		if member != f.member {
			sum.Add(sum, big.NewInt(h.weight))
		}
	}
	if apart = s.apart(l, f.member); apart {
		sum.Add(sum, big.NewInt(weight))
	} else {
		own, weight = s.rest, 1
	}
	if s.rest > 0 || !apart {
		sum.Add(sum, big.NewInt(1))
	}
	return own, weight, sum, apart
}

func (f *Fair) Fresh(l *weir.Limit, now int64) bool { return f.whole.Fresh(l.Whole(), now) }

func (f *Fair) Charge(l *weir.Limit, n, now int64) {
	*f.shared = *f.now(l, now)
	f.whole.Charge(l.Whole(), n, now)
	f.add(l, n)
}

func (f *Fair) add(l *weir.Limit, n int64) {
	if f.apart(l, f.member) {
		f.had[f.member] = had{min(f.had[f.member].units+n, weir.MaxUnits), f.weight}
	} else {
		f.rest = min(f.rest+n, weir.MaxUnits)
	}
}

func (f *Fair) Settle(l *weir.Limit, n, now int64) {
	before := f.whole.count
	f.whole.Settle(l.Whole(), n, now)
	if before == 0 || f.whole.count != min(before+n, weir.MaxUnits) { // another window
		f.had, f.rest = map[string]had{}, 0
	}
	f.add(l, n)
}

func (f *Fair) Refund(l *weir.Limit, n, taken, now int64) {
	before := f.whole.count
	if f.whole.Refund(l.Whole(), n, taken, now); f.whole.count == before {
		return
	}
	if h := f.had[f.member]; h.units > n {
		f.had[f.member] = had{h.units - n, h.weight}
	} else if h.units > 0 {
		delete(f.had, f.member)
	} else {
		f.rest = max(0, f.rest-n)
	}
	if f.whole.count == 0 {
		f.had, f.rest = map[string]had{}, 0
	}
}

func (f *Fair) Back(l *weir.Limit, now int64) { f.whole.Back(l.Whole(), now) }

func (f *Fair) Clone() Model {
	whole := *f.whole
	return &Fair{&shared{&whole, maps.Clone(f.had), f.rest}, f.member, f.weight, f.floor}
}

func (f *Fair) Text() string {
	text := f.whole.Text() + texts(f.rest)
	for _, member := range slices.Sorted(maps.Keys(f.had)) {
		text += member + texts(f.had[member].units, f.had[member].weight)
	}
	return text
}

// FairLeases are leases that members share.
type FairLeases struct {
	*sharedLeases
	member string
	weight int64
	floor  int64
}

// sharedLeases are leases, and by the id of each whose units it takes: a member's, or "" of those beyond MaxKeys.
type sharedLeases struct {
	Leases
	of map[string]owner
}

type owner struct {
	member string // with a mark before it; "" are those beyond MaxKeys
	weight int64  // the one of the member's newest lease counts
}

// For is the limit as the member of a claim meets it.
func (f *FairLeases) For(c *weir.Claim) Model {
	return &FairLeases{f.sharedLeases, c.Member, max(1, c.Weight), c.Floor}
}

// id is a lease's among those of all members: a lease belongs to the member that took it.
func (f *FairLeases) id(id string) string { return f.member + "/" + id }

// Standing implements Sharer.
func (f *FairLeases) Standing(l *weir.Limit, now int64) weir.Standing {
	own, share, weights, of := f.part(l, now)
	return weir.Standing{Own: own, Share: rounded(share), Weights: weights, Used: f.used(now), Open: l.Above(),
		Others: of == ""}
}

// standing is the member's usage, its share, and whose units it would take.
func (f *FairLeases) standing(l *weir.Limit, now int64) (own int64, share *big.Rat, of string) {
	own, share, _, of = f.part(l, now)
	return own, share, of
}

// part is the standing with the sum of the weights.
func (f *FairLeases) part(l *weir.Limit, now int64) (own int64, share *big.Rat, all int64, of string) {
	units, weights := map[string]int64{}, map[string]int64{}
	for _, lease := range f.held {
		if now < lease.expires {
			o := f.of[lease.id]
			units[o.member] += lease.n
			weights[o.member] = o.weight // leases stand in the order in which they were taken or renewed
		}
	}
	for member := range weights {
		weights[member] = f.newest(member)
	}
	of, members := "m"+f.member, int64(len(units))
	if units[""] > 0 {
		members--
		weights[""] = 1
	}
	if units[of] == 0 && members >= l.MaxKeys() {
		of, weights[""] = "", 1
	} else {
		weights[of] = f.weight
	}
	sum := new(big.Int)
	for _, w := range weights {
		sum.Add(sum, big.NewInt(w))
	}
	share = new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(l.Capacity()), big.NewInt(weights[of])), sum)
	return units[of], share, sum.Int64(), of
}

func (s *sharedLeases) newest(member string) int64 { return s.of["newest "+member].weight }

func (f *FairLeases) Fits(l *weir.Limit, n, now int64) bool {
	own, share, _ := f.standing(l, now)
	used := f.used(now)
	return used+n <= l.Capacity() &&
		(used+n-f.floor <= l.Above() || Whole(own+n-f.floor).Cmp(share) <= 0)
}

// Promised is about all leases: when a member may hold more within its share again is not told.
func (f *FairLeases) Promised(now int64) func(l *weir.Limit, n, at int64) bool {
	used := f.promised(now)
	return func(l *weir.Limit, n, at int64) bool {
		own, share, _ := f.standing(l, now)
		n -= f.floor
		if f.used(now)+n > l.Above() && Whole(own+n).Cmp(share) > 0 && used(at)+n > max(l.Above(), n) {
			return false
		}
		return used(at)+n+f.floor <= l.Capacity()
	}
}

func (f *FairLeases) Holds(id string, now int64) bool { return f.Leases.Holds(f.id(id), now) }

func (f *FairLeases) Take(l *weir.Limit, id string, n, now int64) {
	if f.of == nil {
		f.of = map[string]owner{}
	}
	if _, _, of := f.standing(l, now); !f.Holds(id, now) {
		f.of[f.id(id)] = owner{of, f.weight}
		f.of["newest "+of] = owner{of, f.weight}
	}
	f.Leases.Take(l, f.id(id), n, now)
}

func (f *FairLeases) Release(id string, now int64) bool { return f.Leases.Release(f.id(id), now) }

func (f *FairLeases) Clone() Model {
	leases := f.Leases.Clone().(*Leases)
	return &FairLeases{&sharedLeases{*leases, maps.Clone(f.of)}, f.member, f.weight, f.floor}
}
