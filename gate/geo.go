package gate

import (
	"net/netip"

	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/rules"
)

// A Geo finds the country and the autonomous system of an address. It is safe for concurrent use, and fast: it is
// called while requests are decided.
type Geo interface {
	Country(client netip.Addr) string // a code of ISO 3166 in capitals, such as "CN"; "": not known
	ASN(client netip.Addr) uint32     // 0: not known
}

// WithGeo completes requests that do not state the country or the autonomous system of their client. It is asked only
// for the data that the rules in force need, and never for an invalid address. Without it, such conditions are met by
// no request, and such components of keys are missing.
func WithGeo(geo Geo) Option { return func(g *Gate) { g.geo = geo } }

// Located is the client's country and autonomous system, if rules need them; "" and 0 if they are not known.
func (v *Verdict) Located() (country string, asn uint32) {
	if !v.isLocated {
		return "", 0
	}
	return v.located.Country, v.located.ASN
}

// locate returns the request with the country and the autonomous system of its client, as far as rules need them. The
// request itself is not changed: its owner may use it again, with another client.
func (v *Verdict) locate(g *Gate, set *rules.Set, r *rules.Request) *rules.Request {
	country, asn := set.Located()
	if r == nil || !country && !asn {
		return r
	}
	if v.located == nil {
		v.located = new(rules.Request)
	}
	*v.located, v.isLocated = *r, true
	client := netaddr.Plain(r.Client)
	if g.geo == nil || !client.IsValid() {
		return v.located
	}
	if country && r.Country == "" {
		v.located.Country = g.geo.Country(client)
	}
	if asn && r.ASN == 0 {
		v.located.ASN = g.geo.ASN(client)
	}
	return v.located
}
