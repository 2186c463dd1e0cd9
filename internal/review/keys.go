package review

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
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
		// The words of Rule.Components: both lengths or none.
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

// Bytes are the approximate memory of a key that is used to its limit, without its ban.
type Bytes struct {
	Memory int64 `json:"memory"` // as --max-bytes counts it
	Redis  int64 `json:"redis"`  // with a name of 40 bytes
}

func bytesOf(rule *rules.Rule) (all Bytes) {
	for _, limit := range rule.Limits() {
		of := bytesOfLimit(limit)
		all.Memory += of.Memory
		all.Redis += of.Redis
	}
	return all
}

// Sizes that TestBytesOfAKey measures.
const (
	entry    = 62  // of a key in memory
	line     = 64  // beside it, of a key whose log or counter is small
	log      = 104 // or larger, without its charges
	counter  = 96  // or larger, without its counts
	leases   = 72  // or of leases, without them
	redisKey = 150 // with its name and its expiry
)

// bytesOfLimit is the memory of a key that is used to its limit.
func bytesOfLimit(limit *weir.Limit) Bytes {
	switch n, slices := limit.Capacity(), limit.Slices(); {
	case limit.Itemized():
		return Bytes{entry + logBytes(n), redisKey + 100 + 21*n/2}
	case slices > 0:
		return Bytes{entry + counterBytes(slices+1, n), redisKey + 40 + 4*(slices+1)}
	case limit.Leases():
		inRedis := int64(50)
		if n > 128 { // a sorted set is compact up to there
			inRedis = 135
		}
		return Bytes{entry + leases + 128*n, redisKey + 60 + inRedis*n}
	case limit.Refills() && !limit.Step():
		return Bytes{entry, redisKey}
	}
	return Bytes{entry, redisKey + 30}
}

// logBytes is the memory of a log of charges of one unit.
func logBytes(charges int64) int64 {
	if charges <= 2 {
		return line
	}
	ring := int64(4) // grows by doubling
	for ring < charges {
		ring *= 2
	}
	return log + 16*ring
}

// counterBytes is the memory of a counter.
func counterBytes(counts, limit int64) int64 {
	if counts <= 12 && limit <= math.MaxUint16 {
		return line
	}
	return counter + 8*counts
}

// largeKey is the memory of a key from which another algorithm is proposed.
const largeKey = 64 << 10

// bytesOfBan is the memory of the states of a ban; zero if the rule has none.
func bytesOfBan(rule *rules.Rule) (all Bytes) {
	b := rule.Bans()
	if b == nil {
		return all
	}
	for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
		of := bytesOfLimit(limit)
		all.Memory += of.Memory
		all.Redis += of.Redis
	}
	return all
}

// large notes rules whose keys are large, or so many that a client can fill a store in memory.
func (r *Report) large(set *rules.Set) {
	var fill []string
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.Bytes.Memory >= largeKey && rule.Keys.Class != one {
			r.note(rule.Name, fmt.Sprintf("a key at its limit takes %d bytes in memory and about %d in Redis; "+
				"sliding_counter with slices 60 takes under 800, and grants below twice the limit in a window",
				rule.Bytes.Memory, rule.Bytes.Redis))
		}
		// A path that is 404 gives its place back, and its count stays until it expires.
		junk := strings.Contains(rule.Keys.Words, "endpoints")
		if rule.Keys.Class == client || rule.Keys.Class == addresses || junk {
			fill = append(fill, rule.Name)
		}
	}
	if set.Store() == "memory" && len(fill) > 0 {
		r.note("", fmt.Sprintf("store: memory keeps 1,000,000 keys (--max-keys): a client with many addresses, "+
			"values or paths that are 404 can fill it, and then new keys of a limit share one entry; rules with such "+
			"keys: %s", few(fill)))
	}
}

// few lists some names.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
