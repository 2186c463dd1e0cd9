package api

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

const (
	maxToken   = 512 << 10 // bytes of a token
	maxCharged = 256       // claims of a token

	reservation = reservedPrefix + "reservation" // the name of the limit of reservations
	defaultTTL  = "1h"
	minTTL      = time.Second
	maxTTL      = 7 * 24 * time.Hour
)

// A token is a receipt that a caller keeps: base64url of JSON. It has a version, because it may outlive
// the server that made it.
type token struct {
	Version int       `json:"v"`
	Held    string    `json:"r,omitzero"` // the id of the reservation
	TTL     string    `json:"ttl,omitzero"`
	Taken   int64     `json:"t,omitzero"`
	Charged []charged `json:"c"`

	lifetime int64 // µs until it expires unless it is renewed
}

// A charged claim of a token.
type charged struct {
	Name  string `json:"n"`
	Limit string `json:"l"`
	Key   []byte `json:"k"` // any bytes, which need not be UTF-8
	Cost  int64  `json:"q"`
	Taken int64  `json:"t"`
	Lease string `json:"e,omitzero"`
	Fixed bool   `json:"f,omitzero"`
	Local bool   `json:"o,omitzero"` // only the process that made the token counted it
	Delay int64  `json:"d,omitzero"` // µs of the grant's delay
	Rule  string `json:"u,omitzero"` // with count_if, metered, or of a lease
	Once  bool   `json:"i,omitzero"` // of an id

	Member []byte `json:"m,omitempty"` // of a fair limit
	Weight int64  `json:"w,omitzero"`
	Known  int64  `json:"p,omitzero"` // as of a receipt
	Class  []byte `json:"a,omitzero"` // as of a receipt, where empty differs from nil
}

// with adds a charged claim. Beyond maxCharged there can only be shadow rules, which are not settled then.
func (t *token) with(c *gate.Charged) {
	if len(t.Charged) == maxCharged {
		return
	}
	claim, rule := &c.Claim, ""
	if c.Rule != nil && (c.Rule.HasCountIf() || c.Rule.Metered() || claim.Lease != "") {
		rule = c.Rule.Name()
	}
	t.Charged = append(t.Charged, charged{Name: claim.Limit.Name(), Limit: claim.Limit.String(),
		Key: []byte(claim.Key), Cost: claim.Cost, Taken: int64(c.Taken), Lease: claim.Lease,
		Fixed: c.Fixed, Local: c.Local, Delay: claim.Delay.Microseconds(), Rule: rule,
		Once: claim.Once, Member: []byte(claim.Member), Weight: claim.Weight, Known: c.Known, Class: c.Class})
}

// leases are the part of a receipt that has leases.
func leases(receipt gate.Receipt) *token {
	t := &token{Version: 1}
	for i := range receipt {
		c := &receipt[i]
		if c.Claim.Lease == "" {
			continue
		}
		t.with(c)
		if ttl := c.Claim.Limit.Period(); t.lifetime == 0 || ttl < t.lifetime {
			t.lifetime = ttl
		}
	}
	return t
}

func (t *token) text() string {
	text, err := json.Marshal(t)
	if err != nil { // impossible with these types
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// open reads a token strictly: a damaged one must not settle something else.
func (a *api) open(text string) (*token, gate.Receipt, error) {
	wrong := func() error {
		return web.Invalid("token", strconv.Quote(web.Shorten(text)),
			"a token as reserve, acquire or decide answered it", 0)
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which base64 ignores
		return nil, nil, wrong()
	}
	var t token
	err = json.Unmarshal(plain, &t, json.RejectUnknownMembers(true))
	if err != nil || t.Version != 1 || len(t.Charged) > maxCharged {
		return nil, nil, wrong()
	}
	receipt := make(gate.Receipt, len(t.Charged))
	for i, c := range t.Charged {
		limit, err := a.limits.limit(c.Name, c.Limit)
		if err != nil || len(c.Limit) > maxLimit || c.Taken < 0 || c.Delay > weir.MaxUnits || c.Known < 0 ||
			c.Known > weir.MaxUnits {
			return nil, nil, wrong()
		}
		rule := a.rule(c.Rule)
		if c.Lease != "" {
			limit = inRule(rule, limit)
		}
		claim := weir.Claim{Key: string(c.Key), Limit: limit, Cost: c.Cost, Lease: c.Lease, Once: c.Once,
			Member: string(c.Member), Weight: c.Weight, Delay: time.Duration(c.Delay) * time.Microsecond}
		receipt[i] = gate.Charged{Rule: rule, Claim: claim, Taken: weir.Instant(c.Taken),
			Fixed: c.Fixed, Local: c.Local, Known: c.Known, Class: c.Class}
		times := int64(1)
		if c.Lease == "" {
			times = 0
		}
		if weir.Check([]weir.Claim{claim}, times, nil) != nil {
			return nil, nil, wrong()
		}
	}
	return &t, receipt, nil
}

// rule is the rule in force with this name; nil if there is no such rule. Only charges of rules that read responses,
// and leases, have a name.
func (a *api) rule(name string) *rules.Rule {
	if name == "" {
		return nil
	}
	for _, rule := range a.gate.Rules().Rules() {
		if rule.Name() == name {
			return rule
		}
	}
	return nil
}

// inRule is the rule's limit with the numbers of a limit, if it has one: that limit knows how long its units are held.
func inRule(rule *rules.Rule, limit *weir.Limit) *weir.Limit {
	if rule != nil {
		for _, own := range rule.Limits() {
			if own.SameState(limit) && own.Spec() == limit.Spec() {
				return own
			}
		}
	}
	return limit
}

// guard is the lease of a reservation. Releasing it settles the reservation.
func (a *api) guard(id, ttl string) (weir.Claim, error) {
	limit, err := a.limits.limit(reservation, "concurrency 1 ttl "+ttl)
	if err != nil || limit.Period() < minTTL.Microseconds() || limit.Period() > maxTTL.Microseconds() {
		return weir.Claim{}, web.Invalid("ttl", strconv.Quote(ttl), "a duration from 1s to 7d, such as 30m", 0)
	}
	return weir.Claim{Key: id, Limit: limit, Cost: 1, Lease: id}, nil
}
