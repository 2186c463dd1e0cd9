package rls

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/rules"
)

// A call is one call of the service. Calls are pooled.
type call struct {
	parts     []*part
	questions []gate.Question
	checks    []ratefields.Check // of the headers
	fields    ratefields.Fields
}

// A part is one descriptor of a call.
type part struct {
	entries  []*common.RateLimitDescriptor_Entry
	keys     []string // of the entries, without chargeKey
	values   []string // likewise
	request  rules.Request
	verdict  gate.Verdict
	override gate.Override
	blocked  bool   // the override allows nothing
	id       string // of a request that does not pass, once it is asked for
	hits     int64
}

// Header implements rules.Attributes: a descriptor has no headers, queries and cookies.
func (p *part) Header(string) string { return "" }

// MakeRequestID is the id of a request that does not pass: see gate.Verdict. Envoy does not say its own.
func (p *part) MakeRequestID() string {
	if p.id == "" {
		p.id = requestid.New()
	}
	return p.id
}

// Query implements rules.Attributes.
func (p *part) Query(string) string { return "" }

// JSON is a body that is not read.
func (p *part) JSON() *rules.JSON { return rules.UnreadJSON(-1) }

// Cookie implements rules.Attributes.
func (p *part) Cookie(string) string { return "" }

// Descriptor implements rules.Attributes.
func (p *part) Descriptor(name string) string {
	for _, e := range p.entries {
		if e.GetKey() == name {
			return e.GetValue()
		}
	}
	return ""
}

// The entry that says that the hits are spent already, so that they are charged whatever is left. It is for Envoy's
// apply_on_stream_done: its calls have no other mark. As a generic_key without a descriptor_key it is one
// text.
const (
	chargeKey   = "weir.charge"
	chargeFull  = "full"
	genericKey  = "generic_key"
	genericFull = chargeKey + "=" + chargeFull
)

// clientKey is the key of Envoy's action remote_address.
const clientKey = "remote_address"

// read makes the questions of a request.
func (c *call) read(r *ratelimit.RateLimitRequest) error {
	switch {
	case r.GetDomain() == "":
		return &weir.InputError{Field: "domain", Given: "none", Allowed: "a text that is not empty"}
	case len(r.GetDescriptors()) == 0:
		return &weir.InputError{Field: "descriptors", Given: "none", Allowed: "at least one"}
	}
	c.questions = c.questions[:0]
	for i, d := range r.GetDescriptors() {
		if i == len(c.parts) {
			c.parts = append(c.parts, new(part))
		}
		q, err := c.parts[i].read(r, d)
		if err != nil {
			err.Field = fmt.Sprintf("descriptors[%d].%s", i, err.Field)
			return err
		}
		c.questions = append(c.questions, q)
	}
	return nil
}

func (p *part) read(r *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor) (q gate.Question,
	wrong *weir.InputError) {
	q = gate.Question{Request: &p.request, Ask: gate.Once, Verdict: &p.verdict}
	p.entries, p.keys, p.values, p.blocked, p.id = d.GetEntries(), p.keys[:0], p.values[:0], false, ""
	for _, e := range p.entries {
		switch {
		case e.GetKey() == chargeKey && e.GetValue() != chargeFull:
			return q, &weir.InputError{Field: chargeKey, Given: shortened(e.GetValue()), Allowed: chargeFull}
		case e.GetKey() == chargeKey || e.GetKey() == genericKey && e.GetValue() == genericFull:
			q.Act = gate.Charge
		default:
			p.keys, p.values = append(p.keys, e.GetKey()), append(p.values, e.GetValue())
		}
	}
	if len(p.keys) < len(p.entries) {
		p.entries = slices.DeleteFunc(slices.Clone(p.entries), isMark)
	}
	p.request = rules.Request{Service: r.GetDomain(), DescriptorKeys: p.keys, DescriptorValues: p.values,
		Attributes: p}
	if text := p.Descriptor(clientKey); text != "" {
		if client, err := netip.ParseAddr(text); err == nil {
			p.request.Client = client.Unmap().WithZone("")
		}
	}
	if wrong = p.cost(r, d, &q); wrong == nil && d.GetLimit() != nil {
		wrong = p.limit(r, d.GetLimit(), &q)
	}
	return q, wrong
}

func isMark(e *common.RateLimitDescriptor_Entry) bool {
	return e.GetKey() == chargeKey || e.GetKey() == genericKey && e.GetValue() == genericFull
}

// cost reads the hits: the descriptor's, else the request's, else the cost that the rules say.
func (p *part) cost(r *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor, q *gate.Question) *weir.InputError {
	if d.GetIsNegativeHits() {
		q.Act = gate.Refund
	}
	switch {
	case d.GetHitsAddend() != nil:
		hits := d.GetHitsAddend().GetValue()
		if hits > weir.MaxUnits {
			return &weir.InputError{Field: "hits_addend", Given: hits, Allowed: "0 to 4503599627370496 (2^52)"}
		}
		p.hits = int64(hits)
	case r.GetHitsAddend() > 0:
		p.hits = int64(r.GetHitsAddend())
	default:
		return nil
	}
	if q.Ask.Cost = &p.hits; p.hits == 0 && q.Act == gate.Decided {
		q.Ask.Times, p.hits = 0, 1 // whether one more would be granted
	}
	return nil
}

// unitSeconds are the units of limits. Envoy's months have 30 days, its years 365.
var unitSeconds = map[envoytype.RateLimitUnit]int64{
	envoytype.RateLimitUnit_SECOND: 1, envoytype.RateLimitUnit_MINUTE: 60, envoytype.RateLimitUnit_HOUR: 3600,
	envoytype.RateLimitUnit_DAY: 24 * 3600, envoytype.RateLimitUnit_MONTH: 30 * 24 * 3600,
	envoytype.RateLimitUnit_YEAR: 365 * 24 * 3600,
}

// longest is the longest window in seconds.
const longest = weir.MaxUnits / 1_000_000

// limit reads the limit that a descriptor brings along. One of 0 requests refuses each.
func (p *part) limit(r *ratelimit.RateLimitRequest, l *common.RateLimitDescriptor_RateLimitOverride,
	q *gate.Question) *weir.InputError {
	seconds, ok := unitSeconds[l.GetUnit()]
	if !ok {
		return &weir.InputError{Field: "limit.unit", Given: l.GetUnit().String(),
			Allowed: "SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"}
	}
	if m := l.GetUnitMultiplier(); m != nil {
		n := int64(m.GetValue())
		if n == 0 || n > longest/seconds {
			return &weir.InputError{Field: "limit.unit_multiplier", Given: n,
				Allowed: "1 to " + strconv.FormatInt(longest/seconds, 10) + " of this unit"}
		}
		seconds *= n
	}
	requests := int64(l.GetRequestsPerUnit())
	if p.blocked = requests == 0; p.blocked {
		p.block(q)
	}
	p.override = gate.Override{
		Limit: weir.FixedWindow{Limit: max(requests, 1), Window: time.Duration(seconds) * time.Second},
		Name:  "envoy-limit",
		Key:   overrideKey(r.GetDomain(), p.entries),
	}
	q.Ask.Override = &p.override
	return nil
}

// block makes the cost larger than the limit, which cannot be 0.
func (p *part) block(q *gate.Question) {
	if q.Act == gate.Decided {
		p.hits = max(p.hits, 2)
		q.Ask.Cost, q.Ask.HoldsCost = &p.hits, true
	}
}

// overrideKey is the key of a limit that is no rule's: the domain and all entries, each with its length, so that no two
// descriptors share one.
func overrideKey(domain string, entries []*common.RateLimitDescriptor_Entry) string {
	key := appendText([]byte("envoy "), domain)
	for _, e := range entries {
		key = appendText(appendText(key, e.GetKey()), e.GetValue())
	}
	if len(key) > bounds.PlainKey {
		return fmt.Sprintf("envoy-hash %x", sha256.Sum256(key))
	}
	return string(key)
}

func appendText(key []byte, text string) []byte {
	return append(append(strconv.AppendInt(key, int64(len(text)), 10), ':'), text...)
}

// shortened is a text for an error.
func shortened(text string) string { return text[:min(len(text), 80)] }
