package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A Geo finds the country and the autonomous system of an address. A Geo that is a
// ruleset.Source too is read again as rules are.
type Geo interface {
	gate.Geo
	Has() (country, asn bool) // whether it can know them
}

// geoLayer is the name of the layer of the files with countries and autonomous systems. It has no rules.
const geoLayer = "geo"

// settleGeo reads the files for the first time.
func (e *Engine) settleGeo() error {
	if e.CountryHeader != "" && len(e.Trusted) == 0 && !slices.Contains(e.TrustedProxies, "unix") {
		return wrong("server.country_header is %q, but no proxy is trusted, so that it would never be read: name the "+
			"proxies that set it in server.trusted_proxies", e.CountryHeader)
	}
	e.CountryHeader = http.CanonicalHeaderKey(e.CountryHeader)
	if len(e.Geo) == 0 || e.Locate == nil {
		return nil
	}
	var err error
	if e.Located, err = e.Locate(e.Geo, e.ConfigPoll); err != nil {
		return fmt.Errorf("server.geo: %w", err)
	}
	return nil
}

// checkGeo refuses rules that name countries or autonomous systems without data about them: such rules would silently
// apply to no client, or to every client.
func (e *Engine) checkGeo(set *rules.Set) error {
	needCountry, needASN := set.Located()
	var country, asn bool
	if e.Located != nil {
		country, asn = e.Located.Has()
	}
	if needCountry && !country && e.CountryHeader == "" {
		return wrong("rules need the client's country (%s), and nothing knows it: give a file with countries in "+
			"server.geo, or the header of a trusted proxy in server.country_header", located(set, geoCountry))
	}
	if needASN && !asn {
		return wrong("rules need the client's autonomous system (%s), and nothing knows it: give a file with "+
			"autonomous systems in server.geo", located(set, geoASN))
	}
	return nil
}

// GeoNote says what weir serve needs for rules that depend on where clients are; "" if there are no such rules.
func GeoNote(set *rules.Set) string {
	country, asn := set.Located()
	var texts []string
	if country {
		texts = append(texts, "rules need the client's country ("+located(set, geoCountry)+
			"): weir serve starts only with server.geo or server.country_header")
	}
	if asn {
		texts = append(texts, "rules need the client's autonomous system ("+located(set, geoASN)+
			"): weir serve starts only with server.geo")
	}
	return strings.Join(texts, "; ")
}

const (
	geoCountry = true
	geoASN     = false
)

// located names the rules that need the country, or else the autonomous system.
func located(set *rules.Set, byCountry bool) string {
	var names []string
	for _, rule := range set.Rules() {
		country, asn := rule.Located()
		if rule.Enabled() && (byCountry && country || !byCountry && asn) {
			names = append(names, rule.Name())
		}
	}
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprint(more, " more"))
	}
	return cmp.Or(strings.Join(names, ", "), "lists of the file, or exceptions")
}

// countryOf is the client's country according to a trusted proxy; "" if it names no country. A second line may be the
// client's.
func (e *Engine) countryOf(r *http.Request) string {
	lines := r.Header[e.CountryHeader]
	if len(lines) != 1 || !e.Clients.TrustsPeer(r) || !rules.IsCountry(lines[0]) || lines[0] == unknownCountry {
		return ""
	}
	return lines[0]
}

// unknownCountry is what Cloudflare's CF-IPCountry says where it does not know the country. T1 is Tor.
const unknownCountry = "XX"
