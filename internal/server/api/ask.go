package api

import (
	"net/netip"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// An ask is one decision that is asked for.
type ask struct {
	request    rules.Request
	requested  bool // there is a request
	attributes attributes
	claims     []claim
	cost       int64 // −1: not given
	times      int64
	lease      string
	dryRun     bool
	ttl        string
}

// A claim is a caller's own.
type claim struct {
	weir.Claim
	name, limit string
	fixed       bool // settle leaves it
}

// reset makes it new, and keeps its memory.
func (a *ask) reset() {
	*a = ask{cost: -1, times: 1, claims: a.claims[:0], attributes: attributes{
		headers: a.attributes.headers[:0], query: a.attributes.query[:0], cookies: a.attributes.cookies[:0], descriptors: a.attributes.descriptors[:0]}}
}

// rulesRequest is the request as the gate takes it.
func (a *ask) rulesRequest() *rules.Request {
	if !a.requested {
		return nil
	}
	a.request.Attributes = &a.attributes
	return &a.request
}

// looks is the ask where it only looks, and nil otherwise.
func (a *ask) looks() *ask {
	if a.times == 0 {
		return a
	}
	return nil
}

// gateAsk is how to decide it. What a claim does not say costs what the ask says.
func (a *ask) gateAsk(own []weir.Claim) gate.Ask {
	g := gate.Ask{Times: a.times, Lease: a.lease}
	if a.cost >= 0 {
		g.Cost = &a.cost
	}
	for i := range a.claims {
		c := &a.claims[i].Claim
		if c.Cost < 0 {
			c.Cost = max(a.cost, 1)
			if a.cost == 0 {
				c.Cost = 0
			}
		}
		own = append(own, *c)
	}
	g.Claims = own
	return g
}

// attributes are what a request has by name.
type attributes struct{ headers, query, cookies, descriptors []pair }

type pair struct{ name, value string }

// Header implements rules.Attributes; names of headers have no case.
func (a *attributes) Header(name string) string { return value(a.headers, name, strings.EqualFold) }

// Query implements rules.Attributes.
func (a *attributes) Query(name string) string { return value(a.query, name, equal) }

// Cookie implements rules.Attributes.
func (a *attributes) Cookie(name string) string { return value(a.cookies, name, equal) }

// Descriptor implements rules.Attributes.
func (a *attributes) Descriptor(name string) string { return value(a.descriptors, name, equal) }

func value(list []pair, name string, same func(a, b string) bool) string {
	for i := range list {
		if same(list[i].name, name) {
			return list[i].value
		}
	}
	return ""
}

func equal(a, b string) bool { return a == b }

// The members of the documents, by operation. They read into the last ask of the call.

func askFields(more ...field) []field {
	return append([]field{
		{"request", readRequest(requestFields())},
		{"claims", readClaims(claimFields())},
		{"cost", func(c *call) (err error) { c.last().cost, err = c.units(0); return err }},
	}, more...)
}

func decideFields() []field {
	each := askFields(
		field{"times", func(c *call) (err error) { c.last().times, err = c.units(1); return err }},
		field{"lease", readLease},
		field{"dry_run", func(c *call) (err error) { c.last().dryRun, err = c.bool(); return err }},
	)
	return append(each, batchOf(each))
}

func peekFields() []field {
	each := askFields()
	return append(each, batchOf(each))
}

func acquireFields() []field { return askFields(field{"lease", readLease}) }

func resetFields() []field { return askFields()[:2] }

func reserveFields() []field {
	fields := askFields(field{"ttl", func(c *call) (err error) { c.last().ttl, err = c.text(1, 32); return err }})
	fields[1].read = readClaims(append(claimFields(),
		field{"fixed", func(c *call) (err error) { c.lastClaim().fixed, err = c.bool(); return err }}))
	return fields
}

func settleFields() []field {
	return append(tokenFields(), field{"actual", func(c *call) (err error) { c.actual, err = c.units(0); return err }})
}

func tokenFields() []field {
	return []field{{"token", func(c *call) (err error) { c.token, err = c.text(1, maxToken); return err }}}
}

func claimFields() []field {
	return []field{
		{"name", func(c *call) (err error) { c.lastClaim().name, err = c.text(1, weir.MaxName); return err }},
		{"limit", func(c *call) (err error) { c.lastClaim().limit, err = c.text(1, maxLimit); return err }},
		{"key", func(c *call) (err error) { c.lastClaim().Key, err = c.text(1, weir.MaxKey); return err }},
		{"cost", func(c *call) (err error) { c.lastClaim().Cost, err = c.units(0); return err }},
	}
}

func requestFields() []field {
	return []field{
		{"method", readText(func(r *rules.Request) *string { return &r.Method })},
		{"host", readHost},
		{"path", readPath},
		{"route", readText(func(r *rules.Request) *string { return &r.Route })},
		{"user", readText(func(r *rules.Request) *string { return &r.User })},
		{"service", readText(func(r *rules.Request) *string { return &r.Service })},
		{"client", readClient},
		{"headers", readNames(func(a *attributes) *[]pair { return &a.headers }, strings.EqualFold)},
		{"query", readNames(func(a *attributes) *[]pair { return &a.query }, equal)},
		{"cookies", readNames(func(a *attributes) *[]pair { return &a.cookies }, equal)},
		{"descriptors", readNames(func(a *attributes) *[]pair { return &a.descriptors }, equal)},
	}
}

// batchOf is the member that has several asks instead of one.
func batchOf(each []field) field {
	one := func(c *call) error {
		c.another()
		if _, err := c.object(each); err != nil {
			return err
		}
		return c.complete()
	}
	return field{"requests", func(c *call) error {
		c.batch, c.n = true, 0 // what the document itself asks is seen to be empty by decide
		return c.array(maxBatch, one)
	}}
}

func readRequest(fields []field) func(*call) error {
	return func(c *call) error {
		c.last().requested = true
		_, err := c.object(fields)
		return err
	}
}

func readClaims(fields []field) func(*call) error {
	one := func(c *call) error {
		a := c.last()
		a.claims = append(a.claims, claim{Claim: weir.Claim{Cost: -1}})
		if _, err := c.object(fields); err != nil {
			return err
		}
		return c.finish(c.lastClaim())
	}
	return func(c *call) error { return c.array(weir.MaxClaims, one) }
}

// reserved begins the names that callers may not use.
const reserved = "weir."

// finish reads the limit of a claim whose members are read.
func (c *call) finish(claim *claim) (err error) {
	for _, must := range [...]pair{{"name", claim.name}, {"limit", claim.limit}, {"key", claim.Key}} {
		if must.value == "" {
			return invalid(c.path(must.name), "missing", "a text", c.offset())
		}
	}
	if strings.HasPrefix(claim.name, reserved) {
		return invalid(c.path("name"), quote(claim.name), "names that do not begin with "+reserved, c.offset())
	}
	claim.Key = gate.ShortKey(claim.Key)
	if claim.Limit, err = c.api.limits.limit(claim.name, claim.limit); err != nil {
		return c.at("limit", err)
	}
	return nil
}

func readText(of func(*rules.Request) *string) func(*call) error {
	return func(c *call) (err error) {
		*of(&c.last().request), err = c.text(0, maxText)
		return err
	}
}

func readNames(of func(*attributes) *[]pair, same func(a, b string) bool) func(*call) error {
	return func(c *call) error { return c.names(of(&c.last().attributes), same) }
}

func readHost(c *call) error {
	host, err := c.text(0, maxText)
	if err != nil || host == "" {
		return err
	}
	if c.last().request.Host, err = pathform.Host(host); err != nil {
		return c.at("", err)
	}
	return nil
}

func readPath(c *call) error {
	path, err := c.text(0, maxText)
	if err != nil || path == "" {
		return err
	}
	if c.last().request.Path, err = c.api.form.Path(path); err != nil {
		return c.at("", err)
	}
	return nil
}

// readClient reads an address. An IPv4 address within IPv6 is IPv4, and zones are this
// machine's: they are dropped.
func readClient(c *call) error {
	text, err := c.text(0, 64)
	if err != nil || text == "" {
		return err
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return invalid(c.path(""), quote(text), "an IP address, such as 203.0.113.7 or 2001:db8::1", c.offset())
	}
	c.last().request.Client = address.Unmap().WithZone("")
	return nil
}

func readLease(c *call) (err error) {
	c.last().lease, err = c.text(1, weir.MaxLease)
	return err
}
