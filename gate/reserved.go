package gate

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir/rules"
)

// An Origin is the request of a charge, for observers. Its texts are copies.
type Origin struct {
	RequestID    string // as Verdict.RequestID
	Method, Path string
	Client       netip.Addr
}

// reserved are the charges that wait to be settled.
type reserved struct {
	mu   sync.Mutex
	list map[*openCharge]struct{}
}

// An openCharge is a charge that waits to be settled: the first of its rule in a receipt.
type openCharge struct {
	rule  *rules.Rule
	units atomic.Int64 // with the steps of ChargeStep
}

// Units is the number of units that the ith check has charged, for all granted requests, if its rule is metered; else
// 0. If estimated, they are an estimate, and a Counting says at last how many they were. It serves observers.
func (v *Verdict) Units(i int) (units int64, estimated bool) {
	a := &v.about[i]
	if a.rule == nil || !a.rule.Metered() || a.repeated {
		return 0, false
	}
	return v.claims[i].Cost * a.granted, v.settles && a.rule.Settles()
}

// keepOrigin keeps what observers are told of the request at its end, if a cost is settled then.
func (v *Verdict) keepOrigin() {
	for i := range v.about {
		if units, estimated := v.Units(i); units > 0 && estimated {
			v.origin = &Origin{strings.Clone(v.RequestID()), strings.Clone(v.method), strings.Clone(v.target), v.Client}
			return
		}
	}
}

// first reports whether the ith charge stands for its rule: other charges of the rule have the same units, or belong to
// its candidate.
func (r Receipt) first(i int) bool {
	c := &r[i]
	if c.Rule == nil || !c.Rule.Metered() || c.Claim.Lease != "" || c.Claim.Once {
		return false
	}
	for j := range r[:i] {
		if r[j].Rule == c.Rule && r[j].Claim.Lease == "" && !r[j].Claim.Once {
			return false
		}
	}
	return true
}

// Open notes the charges of a receipt that are estimates, by Ask.Settles, until they are settled: Reserved counts them.
// Call end at last: charges that are not settled by then stay as they are, and observers are told so.
func (g *Gate) Open(receipt Receipt) (end func()) {
	var list Receipt
	for i := range receipt {
		c := &receipt[i]
		if !c.estimated || !receipt.first(i) {
			continue
		}
		c.open = &openCharge{rule: c.Rule}
		c.open.units.Store(c.Claim.Cost)
		list = append(list, *c)
		g.reserved.add(c.open)
	}
	if list == nil {
		return func() {}
	}
	return func() {
		for i := range list {
			c := &list[i]
			g.close(c, &Counting{Result: Unsettled, Units: c.open.units.Load()})
		}
	}
}

func (r *reserved) add(e *openCharge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		r.list = make(map[*openCharge]struct{})
	}
	r.list[e] = struct{}{}
}

// remove reports whether the estimate was there.
func (r *reserved) remove(e *openCharge) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, there := r.list[e]
	delete(r.list, e)
	return there
}

// Reserved returns the units of each rule, by its name, that are charged as estimates by receipts that are open.
func (g *Gate) Reserved() map[string]int64 {
	r := &g.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := make(map[string]int64)
	for e := range r.list {
		sums[e.rule.Name()] += e.units.Load()
	}
	return sums
}

// settled reports the cost of the ith charge to observers, and learns it.
func (g *Gate) settled(r Receipt, i int, units int64) {
	g.learner.teach(&r[i], units)
	if r.first(i) && !r[i].Fixed {
		g.close(&r[i], &Counting{Result: Settled, Units: units})
	}
}

// close tells observers the end of a charge. One that was open ends once, but for units that come back later.
func (g *Gate) close(c *Charged, end *Counting) {
	if end.Estimated = c.open != nil && g.reserved.remove(c.open); !end.Estimated && c.open != nil &&
		end.Result >= Settled {
		return
	}
	end.Rule, end.Key, end.Estimate, end.Origin = c.Rule, c.Claim.Key, c.Claim.Cost, c.origin
	g.ended(end)
}
