package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/ruleset/geosource"
	"github.com/weirproject/weir/rules"
)

// geoLayer is the name of the layer of the files with countries and autonomous systems. It has no rules.
const geoLayer = "geo"

// settleGeo reads the files for the first time.
func (l *Setup) settleGeo() error {
	if l.CountryHeader != "" && len(l.Trusted) == 0 && !slices.Contains(l.TrustedProxies, "unix") {
		return wrong("%s is %q, but no proxy is trusted, so that it would never be read: name the proxies that set it "+
			"in %s", l.field("CountryHeader"), l.CountryHeader, l.field("TrustedProxies"))
	}
	l.CountryHeader = http.CanonicalHeaderKey(l.CountryHeader)
	if len(l.Geo) == 0 {
		return nil
	}
	var err error
	if l.geo, err = geosource.New(l.Geo, l.Poll); err != nil {
		return fmt.Errorf("%s: %w", l.field("Geo"), err)
	}
	l.Located = l.geo
	return nil
}

// checkGeo refuses rules that would silently apply to nobody, or to everybody, because nothing knows the countries or
// autonomous systems that they name.
func (l *Setup) checkGeo(set *rules.Set) error {
	needCountry, needASN := set.Located()
	var country, asn bool
	if l.geo != nil {
		country, asn = l.geo.Has()
	}
	if needCountry && !country && l.CountryHeader == "" {
		return wrong("rules need the client's country (%s), and nothing knows it: give a file with countries in %s, "+
			"or the header of a trusted proxy in %s", located(set, geoCountry), l.field("Geo"),
			l.field("CountryHeader"))
	}
	if needASN && !asn {
		return wrong("rules need the client's autonomous system (%s), and nothing knows it: give a file with "+
			"autonomous systems in %s", located(set, geoASN), l.field("Geo"))
	}
	return nil
}

// GeoNote says what weir serve needs for rules that depend on where clients are; "" if there are none.
func GeoNote(set *rules.Set) string {
	country, asn := set.Located()
	var texts []string
	if country {
		texts = append(texts, "rules need the client's country ("+located(set, geoCountry)+
			"): weir serve starts only with --geo or --country-header")
	}
	if asn {
		texts = append(texts, "rules need the client's autonomous system ("+located(set, geoASN)+
			"): weir serve starts only with --geo")
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

// countryOf is the client's country according to a trusted proxy; "" if it says none. A second line may be the
// client's.
func (l *Setup) countryOf(r *http.Request) string {
	lines := r.Header[l.CountryHeader]
	if len(lines) != 1 || !l.Clients.TrustsPeer(r) || !rules.IsCountry(lines[0]) || lines[0] == unknownCountry {
		return ""
	}
	return lines[0]
}

// unknownCountry is what Cloudflare's CF-IPCountry says where it does not know the country. T1 is Tor.
const unknownCountry = "XX"
