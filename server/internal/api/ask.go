package api

import (
	"strings"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/rules"
)

// An ask is one requested decision.
type ask struct {
	request    rules.Request
	requested  bool // there is a request
	attributes attributes
	keys       []string // of the descriptors, in the order of the document
	claims     []claim
	cost       int64 // −1: not given
	times      int64
	lease      string
	id         string
	keep       time.Duration // of the id
	dryRun     bool
	holds      bool // cost is of concurrency limits too
	ttl        string
}

// A claim is one of the caller's.
type claim struct {
	weir.Claim
	name, limit string
	fixed       bool // settle does not change it
}

// reset clears it, and keeps its memory.
func (a *ask) reset() {
	old := &a.attributes
	*a = ask{cost: -1, times: 1, claims: a.claims[:0], keys: a.keys, attributes: attributes{
		headers:     old.headers[:0],
		query:       old.query[:0],
		cookies:     old.cookies[:0],
		descriptors: old.descriptors[:0],
		made:        old.made[:0],
	}}
}

// rulesRequest is the request for the gate, or nil.
func (a *ask) rulesRequest() *rules.Request {
	if !a.requested {
		return nil
	}
	a.keys = a.keys[:0]
	for i := range a.attributes.descriptors {
		a.keys = append(a.keys, a.attributes.descriptors[i].name)
	}
	a.request.DescriptorKeys, a.request.Attributes = a.keys, &a.attributes
	return &a.request
}

// gateAsk is the ask for the gate. A claim without a cost has the cost of the ask, unless it is on a concurrency limit:
// see gate.Ask.
func (a *ask) gateAsk(own []weir.Claim) gate.Ask {
	// The store may keep the lease, and a's texts are in a buffer that the next request uses.
	g := gate.Ask{Times: a.times, Lease: strings.Clone(a.lease), ID: a.id, Keep: a.keep, Rules: a.attributes.body.rules}
	if g.HoldsCost = a.holds; a.cost >= 0 {
		g.Cost = &a.cost
	}
	for i := range a.claims {
		c := &a.claims[i].Claim
		if c.Cost < 0 {
			c.Cost = a.costOf(c.Limit)
		}
		own = append(own, *c)
	}
	g.Claims = own
	return g
}

// costOf is the cost of a claim that states none.
func (a *ask) costOf(limit *weir.Limit) int64 {
	switch {
	case a.cost < 0:
		return 1
	case limit.Leases() && !a.holds:
		return min(a.cost, 1)
	}
	return a.cost
}

// attributes are the parts of a request that have names.
type attributes struct {
	headers, query, cookies, descriptors []pair

	body body
	set  *rules.Set // by which the body is read
	made []byte     // that id, if the request has none; empty: not needed yet
}

type pair struct{ name, value string }

// Header implements rules.Attributes; names of headers are case-insensitive.
func (a *attributes) Header(name string) string { return value(a.headers, name, strings.EqualFold) }

// Query implements rules.Attributes.
func (a *attributes) Query(name string) string { return value(a.query, name, equal) }

// Cookie implements rules.Attributes.
func (a *attributes) Cookie(name string) string { return value(a.cookies, name, equal) }

// Descriptor implements rules.Attributes.
func (a *attributes) Descriptor(name string) string { return value(a.descriptors, name, equal) }

// MakeRequestID is the id of a request without one: see gate.Verdict.
func (a *attributes) MakeRequestID() string {
	if len(a.made) == 0 {
		a.made = requestid.Append(a.made)
	}
	return unsafe.String(&a.made[0], len(a.made))
}

// id is the id of the request, made if it has no id.
func (a *attributes) id() string {
	if id := requestid.Of(a); id != "" {
		return id
	}
	return a.MakeRequestID()
}

func value(list []pair, name string, same func(a, b string) bool) string {
	for i := range list {
		if same(list[i].name, name) {
			return list[i].value
		}
	}
	return ""
}

func equal(a, b string) bool { return a == b }
