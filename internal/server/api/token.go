package api

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

const (
	maxToken   = 512 << 10 // bytes of a token
	maxCharged = 256       // claims of a token

	reservation = reserved + "reservation" // the name of the limit that a reservation holds
	defaultTTL  = "1h"
	leastTTL    = time.Second
	mostTTL     = 7 * 24 * time.Hour
)

// A token is what a caller keeps of what was charged: base64url of JSON. It is versioned,
// because it may outlive the server that made it.
type token struct {
	Version int       `json:"v"`
	Held    string    `json:"r,omitzero"` // the id of the reservation
	TTL     string    `json:"ttl,omitzero"`
	Taken   int64     `json:"t,omitzero"`
	Charged []charged `json:"c"`

	lifetime int64 // µs: how long it may be used unless it is renewed
}

// charged is one claim of it.
type charged struct {
	Name  string `json:"n"`
	Limit string `json:"l"`
	Key   []byte `json:"k"` // any bytes: not all are JSON
	Cost  int64  `json:"q"`
	Taken int64  `json:"t"`
	Lease string `json:"e,omitzero"`
	Fixed bool   `json:"f,omitzero"`
	Local bool   `json:"o,omitzero"` // the process that made the token counted it by itself
	Delay int64  `json:"d,omitzero"` // µs that the grant was told to wait
}

// with adds what was charged. Beyond maxCharged there can only be shadow rules: they are
// then not settled, which nobody feels.
func (t *token) with(c *gate.Charged) {
	if len(t.Charged) == maxCharged {
		return
	}
	t.Charged = append(t.Charged, charged{Name: c.Claim.Limit.Name(), Limit: c.Claim.Limit.String(), Key: []byte(c.Claim.Key),
		Cost: c.Claim.Cost, Taken: int64(c.Taken), Lease: c.Claim.Lease, Fixed: c.Fixed, Local: c.Local, Delay: c.Claim.Delay.Microseconds()})
}

// leases are the part of a receipt that is held.
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
	if err != nil { // not of these types
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// open reads a token strictly: one that was damaged must not settle something else.
func (a *api) open(text string) (*token, gate.Receipt, error) {
	wrong := func() error {
		return invalid("token", quote(cut(text)), "a token as reserve, acquire or decide answered it", -1)
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which that package leaves out
		return nil, nil, wrong()
	}
	var t token
	if err := json.Unmarshal(plain, &t, json.RejectUnknownMembers(true)); err != nil || t.Version != 1 || len(t.Charged) > maxCharged {
		return nil, nil, wrong()
	}
	receipt := make(gate.Receipt, len(t.Charged))
	for i, c := range t.Charged {
		limit, err := a.limits.limit(c.Name, c.Limit)
		if err != nil || len(c.Limit) > maxLimit || c.Taken < 0 || c.Delay > weir.MaxUnits {
			return nil, nil, wrong()
		}
		claim := weir.Claim{Key: string(c.Key), Limit: limit, Cost: c.Cost, Lease: c.Lease, Delay: time.Duration(c.Delay) * time.Microsecond}
		receipt[i] = gate.Charged{Claim: claim, Taken: weir.Instant(c.Taken), Fixed: c.Fixed, Local: c.Local}
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

// guard is the lease that a reservation holds. Whoever releases it settles.
func (a *api) guard(id, ttl string) (weir.Claim, error) {
	limit, err := a.limits.limit(reservation, "concurrency 1 ttl "+ttl)
	if err != nil || limit.Period() < leastTTL.Microseconds() || limit.Period() > mostTTL.Microseconds() {
		return weir.Claim{}, invalid("ttl", quote(ttl), "a duration from 1s to 7d, such as 30m", -1)
	}
	return weir.Claim{Key: id, Limit: limit, Cost: 1, Lease: id}, nil
}
