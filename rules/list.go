package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/netaddr"
)

// A Listing is the result of the lists for a request.
type Listing uint8

// The results of lists. If both lists name a request, it is denied.
const (
	Unlisted Listing = iota
	Allowed
	Denied
)

// Listed checks a request against the exceptions of the rule, and then against its lists. Limit: none denies each
// request, and limit: unlimited allows each that no list denies.
func (r *Rule) Listed(request *Request) Listing {
	if listing := r.excepted().listed(request); listing != Unlisted {
		return listing
	}
	if r.closed {
		return Denied
	}
	listing := r.lists.listed(request)
	if r.unlimited && listing == Unlisted {
		return Allowed
	}
	return listing
}

// Listed checks a request against the exceptions of the file, and then against its lists.
func (s *Set) Listed(request *Request) Listing {
	if listing := s.inForce().file.listed(request); listing != Unlisted {
		return listing
	}
	return s.lists.listed(request)
}

// lists are the lists of a file or of a rule.
type lists struct{ allow, deny []listEntry }

func (l *lists) listed(r *Request) Listing {
	switch {
	case names(l.deny, r):
		return Denied
	case names(l.allow, r):
		return Allowed
	}
	return Unlisted
}

func names(list []listEntry, r *Request) bool {
	for i := range list {
		if list[i].names(r) {
			return true
		}
	}
	return false
}

// A listEntry holds the listed values of one component.
type listEntry struct {
	component component
	values
}

func (l *listEntry) names(r *Request) bool {
	if l.component.source == sourceIP {
		address := netaddr.Plain(r.Client)
		return address.IsValid() && l.holds(address)
	}
	var buffer [512]byte
	value := l.component.text(buffer[:0], r)
	return value != "" && l.has(value)
}

// values is a compiled list of values: addresses, or texts.
type values struct {
	any      bool
	exact    map[string]bool
	prefixes []string // sorted; none is a prefix of another
	networks networks[struct{}]
	taken    []netip.Prefix // until finish
}

func (l *values) holds(address netip.Addr) bool { return l.any || l.networks.find(address) >= 0 }
func (l *values) has(text string) bool          { return l.any || l.exact[text] || l.begins(text) }

// begins checks the only prefix that can fit a value: the last one that does not sort after it.
func (l *values) begins(value string) bool {
	after, found := slices.BinarySearch(l.prefixes, value)
	return found || after > 0 && strings.HasPrefix(value, l.prefixes[after-1])
}

// lists compiles the lists of a rule, or with −1 of the file.
func (b *builder) lists(i int, allow, deny map[string][]string, path string) lists {
	return lists{allow: b.entries(at(i, "allow"), allow, path), deny: b.entries(at(i, "deny"), deny, path)}
}

func (b *builder) entries(p place, table map[string][]string, path string) (list []listEntry) {
	if len(table) == 0 || !b.count(p, len(table), bounds.Sources) {
		return nil
	}
	for _, text := range slices.Sorted(maps.Keys(table)) {
		source := at(p.rule, p.field+"."+text)
		c, complaint := parseListed(text, path, p.rule >= 0)
		if complaint != "" {
			b.add(source, "%s %.80q: %s", p.field, text, complaint)
			continue
		}
		c.inForm(b.set)
		if slices.ContainsFunc(list, func(other listEntry) bool { return other.component == c }) {
			b.add(source, "%s %.80q occurs twice, in other words", p.field, text)
		}
		list = append(list, b.listEntry(source, c, table[text]))
	}
	return list
}

// parseListed reads the component of a list.
func parseListed(text, path string, ofRule bool) (c component, complaint string) {
	word, options, _ := strings.Cut(strings.TrimSpace(text), " ")
	kind, _, _ := strings.Cut(word, ".")
	source, _ := sourceOf(kind, true)
	switch {
	case source == sourcePath && !ofRule:
		return c, "only the lists of a rule know the names of a path"
	case sources[source].needs == needsBody && !ofRule:
		return c, "only the lists of a rule read bodies; those of the file would read each"
	case source == sourceConstant:
		return c, "it is the same for all requests, so it names none"
	case word == "client.ip" && options != "":
		return c, "nothing follows client.ip here; write networks as its values"
	}
	return parseComponent(text, path)
}

func (b *builder) listEntry(p place, c component, given []string) listEntry {
	l := listEntry{component: c, values: values{exact: make(map[string]bool)}}
	if len(given) == 0 && !b.has(p) {
		b.add(p, "%s has no values; leave it out", p.field)
	}
	if b.listed += len(given); b.listed > bounds.AllListed || len(given) > bounds.Listed {
		b.add(p, "%s has %d values; at most %d, and %d in all lists together", p.field, len(given), bounds.Listed,
			bounds.AllListed)
		return l
	}
	seen := make(map[string]bool, len(given))
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		v, complaint := parsePatternOf(&c, text)
		if text == "" || len(text) > bounds.Text {
			complaint = fmt.Sprintf("a value of 1 to %d bytes is needed", bounds.Text)
		}
		if name := v.String(); complaint == "" && seen[name] {
			complaint = "it occurs twice"
		} else {
			seen[name] = true
		}
		if complaint != "" {
			b.add(item, "%s has %.80q: %s", p.field, text, complaint)
			continue
		}
		l.take(v)
	}
	l.finish()
	return l
}

func (l *values) finish() {
	l.networks, l.taken = networksOf(l.taken), nil
	l.prefixes = shortest(l.prefixes)
}

func (l *values) take(p pattern) {
	switch {
	case p.any():
		l.any = true
	case p.network.IsValid():
		l.taken = append(l.taken, p.network)
	case p.wild:
		l.prefixes = append(l.prefixes, p.text)
	default:
		l.exact[p.text] = true
	}
}

// shortest sorts prefixes and drops each prefix that begins with another one.
func shortest(list []string) (kept []string) {
	slices.Sort(list)
	for _, prefix := range list {
		if len(kept) == 0 || !strings.HasPrefix(prefix, kept[len(kept)-1]) {
			kept = append(kept, prefix)
		}
	}
	return kept
}
