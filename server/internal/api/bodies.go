package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// The bodies of requests: each member has its schema, and is read into the last ask of the call.

// An object is a JSON object with these members and no others.
type object struct {
	name, doc string // of its schema
	members   []field
	required  []string
	either    []string // one of these is required
}

// A field is a member of an object.
type field struct {
	name, doc string
	reader
}

// A reader reads one value.
type reader struct {
	schema web.Schema
	read   func(*call) error
	object *object // it reads, or reads an array of them; nil: none
}

// register adds the schemas of an object, and returns a reference to it.
func (o *object) register(schemas map[string]web.Schema) web.Schema {
	properties := web.Schema{}
	for i := range o.members {
		f := &o.members[i]
		if f.object != nil {
			f.object.register(schemas)
		}
		properties[f.name] = f.schema
		if f.doc != "" {
			f.schema["description"] = f.doc
		}
	}
	schema := web.Object(properties, o.required...)
	if o.doc != "" {
		schema["description"] = o.doc
	}
	var either []web.Schema
	for _, name := range o.either {
		either = append(either, web.Schema{"required": []string{name}})
	}
	if either != nil {
		schema["anyOf"] = either
	}
	schemas[o.name] = schema
	return web.Ref(o.name)
}

// askBody is the body of an operation that decides.
func askBody(name string, more ...field) *object {
	request := field{"request", "", readObject(requestBody(), func(c *call) { c.last().requested = true })}
	return &object{name: name, either: []string{"request", "claims"}, members: append([]field{request}, more...)}
}

func decideBody() *object {
	return askBody("Decide", claims("Claim", weir.MaxClaims, claimOf()...), cost(),
		field{"times", "The number of identical requests; as many as possible are granted.",
			units(1, func(c *call) *int64 { return &c.last().times })},
		lease(), id(), keep(),
		field{"dry_run", "Nothing is charged.", boolean(func(c *call) *bool { return &c.last().dryRun })})
}

func reserveBody() *object {
	fixed := field{"fixed", "settle does not change its cost.",
		boolean(func(c *call) *bool { return &c.lastClaim().fixed })}
	return askBody("Reserve", claims("ReservedClaim", maxReserved, claimOf(fixed)...), cost(), id(), keep(),
		field{"ttl", "Time in which it can be settled, 1s to 7d; then the estimate stays charged. The default is 1h.",
			text(1, 32, func(c *call) *string { return &c.last().ttl })})
}

func tokenBody() *object {
	return &object{name: "Token", required: []string{"token"}, members: []field{{"token",
		"The token of the answer. It is no secret.", text(1, maxToken, func(c *call) *string { return &c.token })}}}
}

func settleBody() *object {
	actual := field{"actual", "The actual cost, of all claims and rules without a cost of their own; 0 cancels.",
		units(0, func(c *call) *int64 { return &c.actual })}
	status := field{"status", "The status of the response, for rules with count_if; 0: there was none, which counts. " +
		"Without it their units stay charged, and no ban counts the request.",
		number(0, 599, func(c *call) *int64 { return &c.response })}
	headers := names(func(a *attributes) *[]pair { return &a.headers }, strings.EqualFold)
	return &object{name: "Settle", required: []string{"token"}, either: []string{"actual", "status", "json"},
		members: append(tokenBody().members, actual, status,
			field{"headers", "Of the response, for rules with count_if.", headers},
			field{"json", "The JSON body of the response, or a list of the events of a stream, for rules that read " +
				"the actual cost from it.", anyJSON(func(c *call) *jsontext.Value { return &c.answered })})}
}

func cost() field {
	f := slots()
	f.doc += " Concurrency limits without a cost of their own take 1, as a request is one at a time."
	return f
}

// slots is the cost of an acquire.
func slots() field {
	return field{"cost", "Units, for the rules and claims without a cost of their own.",
		units(0, func(c *call) *int64 { return &c.last().cost })}
}

func id() field {
	return field{"id", "The same ID again, with the same limits, keys and costs, is the same request: it is " +
		"granted once, and then repeated at no charge. A refused request keeps no ID. Not beside concurrency limits.",
		text(1, weir.MaxLease, func(c *call) *string { return &c.last().id })}
}

func keep() field {
	read := func(c *call) error {
		text, err := c.text(1, maxLimit)
		if err != nil {
			return err
		}
		keep, ok := web.ReadKeep(text)
		if !ok {
			return c.invalid("", strconv.Quote(text), "a duration from 1s to 24h, such as 10m")
		}
		c.last().keep = keep
		return nil
	}
	return field{"for", "How long the ID is kept, 1s to 24h; the default is 10m.",
		reader{schema: textSchema(1, maxLimit), read: read}}
}

func lease() field {
	return field{"lease", "The ID of the lease under concurrency limits, at least 128 random bits; the default is " +
		"random. The same ID again is the same lease, so that a request can be repeated.",
		text(1, weir.MaxLease, func(c *call) *string { return &c.last().lease })}
}

// maxReserved is the largest number of claims of a reservation, which adds a lease, so that it is settled once.
const maxReserved = weir.MaxClaims - 1

func claims(name string, most int, more ...field) field {
	body := &object{name: name, doc: "A limit of the caller.", required: []string{"name", "limit", "key"},
		members: append([]field{
			{"name", "The name of the limit. Its state is kept under the name, the algorithm and the key: with " +
				"the name of a rule's limit and the rule's key, it is the rule's state. " +
				"Names that begin with weir. are reserved.",
				text(1, weir.MaxName, func(c *call) *string { return &c.lastClaim().name }).
					matching("^[A-Za-z0-9._-]+$")},
			{"limit", "As in rules: 100/1m, 10/s burst 20, fixed_window 100/1h, calendar 10000/day in Asia/Shanghai, " +
				"sliding_log 5/1m, sliding_counter 100/1m, concurrency 20 ttl 30s; of members that share it " +
				"fair_fixed_window 100/1h above 50, also fair_calendar and fair_concurrency.",
				text(1, maxLimit, func(c *call) *string { return &c.lastClaim().limit })},
			{"key", "The key that is counted.",
				text(1, weir.MaxKey, func(c *call) *string { return &c.lastClaim().Key })},
			{"cost", "Units; by default the cost beside the claims, as of rules, or 1. 0 checks whether the limit " +
				"is exceeded.",
				units(0, func(c *call) *int64 { return &c.lastClaim().Cost })},
		}, more...)}
	one := func(c *call) error {
		a := c.last()
		a.claims = append(a.claims, claim{Claim: weir.Claim{Cost: -1}})
		if _, err := c.object(body.members); err != nil {
			return err
		}
		return c.finish(c.lastClaim())
	}
	return field{"claims", "Decided together with the rules of the request, all or nothing.",
		array(0, most, body, one)}
}

// claimOf returns the fields of a claim that only decisions use; a reset does not have them.
func claimOf(more ...field) []field {
	return append([]field{
		{"floor", "Units that the claim leaves to others: it is granted only if they fit besides its cost, and is " +
			"charged its cost alone. The default is 0.",
			units(0, func(c *call) *int64 { return &c.lastClaim().Floor })},
		{"member", "Of a fair limit: the member that asks, such as a tenant. The default is the empty name.",
			text(0, weir.MaxKey, func(c *call) *string { return &c.lastClaim().Member })},
		{"weight", "Of a fair limit: the weight of the member among all members. The default is 1.",
			number(1, weir.MaxWeight, func(c *call) *int64 { return &c.lastClaim().Weight })},
	}, more...)
}

func requestBody() *object {
	attribute := func(of func(*rules.Request) *string) reader {
		return text(0, maxText, func(c *call) *string { return of(&c.last().request) })
	}
	return &object{name: "Request", doc: "A request as rules match it. Parts that are left out are missing.",
		members: []field{
			{"method", "In capitals.", attribute(func(r *rules.Request) *string { return &r.Method })},
			{"host", "A port and a final dot are dropped.", reader{schema: textSchema(0, maxText), read: readHost}},
			{"path", "As received, without the query. It is brought into the form that rules match: //login is " +
				"/login. Encoded slashes and the like are an error.",
				reader{schema: textSchema(0, maxText), read: readPath}},
			{"route", "The pattern that a router chose.",
				attribute(func(r *rules.Request) *string { return &r.Route })},
			{"user", "The authenticated user.", attribute(func(r *rules.Request) *string { return &r.User })},
			{"service", "The service that is called.", attribute(func(r *rules.Request) *string { return &r.Service })},
			{"client", "The address of the client: 203.0.113.7 or 2001:db8::1.",
				reader{schema: textSchema(0, maxClient), read: readClient}},
			{"headers", "Names are case-insensitive, and have one value each.",
				names(func(a *attributes) *[]pair { return &a.headers }, strings.EqualFold)},
			{"query", "Parameters of the query, decoded.",
				names(func(a *attributes) *[]pair { return &a.query }, equal)},
			{"cookies", "", names(func(a *attributes) *[]pair { return &a.cookies }, equal)},
			{"descriptors", "The values of descriptor.NAME in rules. Their order is that of descriptor_keys.",
				names(func(a *attributes) *[]pair { return &a.descriptors }, equal)},
			{"json", "The JSON body, for rules that read it; null if the request has none. Without it such a rule is " +
				"an error, and a cost that reads it has its default.",
				anyJSON(func(c *call) *jsontext.Value { return &c.last().attributes.body.text })},
		}}
}

// batchOf is the member with several asks instead of one.
func batchOf(one *object) field {
	members := one.members
	read := array(1, maxBatch, one, func(c *call) error {
		c.another()
		if _, err := c.object(members); err != nil {
			return err
		}
		return c.complete()
	})
	list := read.read
	read.read = func(c *call) error {
		c.batch, c.n = true, 0 // parse refuses other members beside it
		return list(c)
	}
	return field{"requests", "Decided in this order, each by itself.", read}
}

// The readers of values.

func textSchema(least, most int) web.Schema {
	return web.Schema{"type": "string", "minLength": least, "maxLength": most}
}

func text(least, most int, into func(*call) *string) reader {
	return reader{schema: textSchema(least, most), read: func(c *call) (err error) {
		*into(c), err = c.text(least, most)
		return err
	}}
}

func units(least int64, into func(*call) *int64) reader { return number(least, weir.MaxUnits, into) }

func number(least, most int64, into func(*call) *int64) reader {
	schema := web.Schema{"type": "integer", "format": "int64", "minimum": least, "maximum": most}
	return reader{schema: schema, read: func(c *call) (err error) {
		*into(c), err = c.number(least, most)
		return err
	}}
}

func boolean(into func(*call) *bool) reader {
	return reader{schema: web.Schema{"type": "boolean"}, read: func(c *call) (err error) {
		*into(c), err = c.bool()
		return err
	}}
}

// names reads an object of texts under names that the caller chooses.
func names(of func(*attributes) *[]pair, same func(a, b string) bool) reader {
	schema := web.Schema{"type": "object", "maxProperties": maxNames, "additionalProperties": textSchema(0, maxText)}
	return reader{schema: schema, read: func(c *call) error { return c.names(of(&c.last().attributes), same) }}
}

// readObject reads an object, after note.
func readObject(o *object, note func(*call)) reader {
	return reader{schema: web.Schema{"allOf": []web.Schema{web.Ref(o.name)}}, object: o, read: func(c *call) error {
		note(c)
		_, err := c.object(o.members)
		return err
	}}
}

// array reads an array, with one for each of its objects.
func array(least, most int, of *object, one func(*call) error) reader {
	schema := web.Schema{"type": "array", "minItems": least, "maxItems": most, "items": web.Ref(of.name)}
	return reader{schema: schema, object: of, read: func(c *call) error { return c.array(most, one) }}
}

// matching adds a pattern to the schema of a text.
func (r reader) matching(pattern string) reader {
	r.schema["pattern"] = pattern
	return r
}

// reservedPrefix begins the names that callers may not use.
const reservedPrefix = "weir."

// finish checks a claim that was read, and parses its limit.
func (c *call) finish(claim *claim) (err error) {
	for _, must := range [...]pair{{"name", claim.name}, {"limit", claim.limit}, {"key", claim.Key}} {
		if must.value == "" {
			return c.invalid(must.name, "missing", "a text")
		}
	}
	if strings.HasPrefix(claim.name, reservedPrefix) {
		return c.invalid("name", strconv.Quote(claim.name), "names that do not begin with "+reservedPrefix)
	}
	claim.Key, claim.Member = web.ShortKey(claim.Key), web.ShortKey(claim.Member)
	if claim.Limit, err = c.api.limits.limit(claim.name, claim.limit); err != nil {
		return c.at("limit", err)
	}
	return c.unshared(claim)
}

// unshared refuses a member or a weight for a limit that is not fair.
func (c *call) unshared(claim *claim) error {
	const allowed = "only for a fair limit, such as fair_fixed_window 100/1h above 50"
	switch {
	case claim.Limit.Whole() != nil:
		return nil
	case claim.Member != "":
		return c.invalid("member", strconv.Quote(web.Shorten(claim.Member)), allowed)
	case claim.Weight != 0:
		return c.invalid("weight", strconv.FormatInt(claim.Weight, 10), allowed)
	}
	return nil
}

// complete checks an ask as a whole.
func (c *call) complete() error {
	a := c.last()
	switch {
	case !a.requested && len(a.claims) == 0:
		return c.invalid("request", "missing", "a request, claims, or both")
	case a.id == "" && a.keep != 0:
		return c.invalid("id", "missing", "an ID beside for")
	case a.id != "" && a.keep == 0:
		a.keep = web.UsualKeep
	}
	switch {
	case a.dryRun && a.times > 1:
		return c.invalid("times", fmt.Sprint(a.times), "1 where dry_run is true")
	case a.dryRun:
		a.times = 0
	}
	return c.readMessage(a)
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
	if c.last().request.Path, err = c.api.Form.Path(path); err != nil {
		return c.at("", err)
	}
	return nil
}

// readClient reads an address. An IPv4 address within IPv6 becomes IPv4. Zones are dropped: they have a
// meaning only on the machine of the caller.
func readClient(c *call) error {
	text, err := c.text(0, maxClient)
	if err != nil || text == "" {
		return err
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return c.invalid("", strconv.Quote(text), "an IP address, such as 203.0.113.7 or 2001:db8::1")
	}
	c.last().request.Client = address.Unmap().WithZone("")
	return nil
}
