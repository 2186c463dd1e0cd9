package review

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/rules"
)

// Keys are the keys that a rule may count.
type Keys struct {
	// Class says who determines how many there are: one (the rule has one key), bounded (the rules or routes name
	// them), addresses (a key for each client address or autonomous system), users, front_end (descriptors, routes,
	// services), or client (each client chooses, and may have any number).
	Class string `json:"class"`
	Count int64  `json:"count,omitempty"` // of one and bounded
	Words string `json:"words"`
}

// Classes of keys, in the order of how little bounds them.
const (
	one       = "one"
	bounded   = "bounded"
	frontEnd  = "front_end"
	users     = "users"
	addresses = "addresses"
	client    = "client"
)

var classes = []string{one, bounded, frontEnd, users, addresses, client}

const (
	endpoints = 1001    // paths of the component endpoint that have a place at a time, and all others
	countries = 26 * 26 // texts of two letters
)

// keysOf is the estimate for a rule.
func keysOf(rule *rules.Rule, s *rules.Spec) Keys {
	all := Keys{Class: one, Count: 1, Words: "1"}
	var words []string
	for _, component := range rule.Components() {
		k := keysOfComponent(component, &s.Match)
		if k.Class != one {
			words = append(words, k.Words)
		}
		if slices.Index(classes, k.Class) > slices.Index(classes, all.Class) {
			all.Class = k.Class
		}
		if high, low := bits.Mul64(uint64(all.Count), uint64(k.Count)); high != 0 || low > math.MaxInt64 {
			all.Count = 0
		} else {
			all.Count = int64(low)
		}
	}
	if len(words) > 0 {
		all.Words = strings.Join(words, " × ")
	}
	return all
}

// keysOfComponent is the estimate for one component of a rule with this match.
func keysOfComponent(component string, m *rules.Match) Keys {
	source, options, _ := strings.Cut(component, " ")
	kind, name, _ := strings.Cut(source, ".")
	if kind == "client" {
		kind = name
	}
	named := func(values []string, other Keys) Keys {
		if len(values) == 0 || slices.Contains(values, "*") {
			return other
		}
		return Keys{bounded, int64(len(values)), strconv.Itoa(len(values))}
	}
	chosen := Keys{Class: client, Words: "any " + source}
	switch kind {
	case "constant":
		return Keys{one, 1, "1"}
	case "ip":
		return addressesOf(options, m.Client)
	case "country":
		return named(m.Country, Keys{Class: bounded, Count: countries, Words: "countries"})
	case "asn":
		return named(m.ASN, Keys{Class: addresses, Words: "autonomous systems"})
	case "user":
		return named(m.User, Keys{Class: users, Words: "users"})
	case "route", "service":
		values := map[string][]string{"route": m.Route, "service": m.Service}[kind]
		return named(values, Keys{Class: frontEnd, Words: kind + "s"})
	case "endpoint":
		return Keys{bounded, endpoints, "endpoints, up to 1,001 that exist"}
	case "method":
		return named(methodsOf(m.Method), chosen)
	case "host":
		if slices.ContainsFunc(m.Host, func(host string) bool { return strings.HasPrefix(host, "*.") }) {
			return chosen
		}
		return named(m.Host, chosen)
	case "header":
		return named(headerOf(m.Header, name), chosen)
	case "query":
		return named(m.Query[name], chosen)
	case "descriptor":
		return named(m.Descriptor[name], Keys{Class: frontEnd, Words: "any " + source})
	}
	return chosen
}

// methodsOf are the methods that a match names, with HEAD for GET.
func methodsOf(methods []string) []string {
	if slices.Contains(methods, "GET") && !slices.Contains(methods, "HEAD") {
		return append(slices.Clone(methods), "HEAD")
	}
	return methods
}

func headerOf(headers map[string][]string, name string) []string {
	for given, values := range headers {
		if strings.EqualFold(given, name) {
			return values
		}
	}
	return nil
}

// addressesOf is the estimate for client.ip with these options, of the clients that a match names.
func addressesOf(options string, clients []string) Keys {
	v4, v6 := 32, 64
	if options != "" {
		// The words of Rule.Components: both lengths or neither.
		fmt.Sscanf(options, "v4/%d v6/%d", &v4, &v6)
	}
	if len(clients) == 0 {
		words := fmt.Sprintf("2^%d IPv4, 2^%d IPv6 /%d", v4, v6, v6)
		if v4 < 32 {
			words = fmt.Sprintf("2^%d IPv4 /%d, 2^%d IPv6 /%d", v4, v4, v6, v6)
		}
		return Keys{Class: addresses, Words: words}
	}
	total := 0.0
	for _, text := range clients {
		width := v4
		prefix, err := netip.ParsePrefix(text)
		if address, _, _ := strings.Cut(text, "/"); strings.Contains(address, ":") {
			width = v6
		}
		if err != nil { // an address
			total++
			continue
		}
		total += math.Pow(2, float64(max(0, width-prefix.Bits())))
	}
	if total > math.MaxInt32 {
		return Keys{Class: addresses, Words: fmt.Sprintf("2^%.0f addresses", math.Ceil(math.Log2(total)))}
	}
	return Keys{bounded, int64(total), strconv.Itoa(int(total)) + " addresses"}
}

// few lists some names.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
