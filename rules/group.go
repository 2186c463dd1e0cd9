package rules

import (
	"regexp"
	"slices"
	"strings"
)

// Of the rules of one group that match a request only the best match applies. Which that is
// depends on the rules alone, so it is a number that is made once: see rank.
//
// Rules that are only tried out (shadow) are a group of their own: trying a rule must not
// put the one out of force that it is to replace.

var groupName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// group puts a rule into its group.
func (b *builder) group(i int, s *Spec, rule *Rule) {
	if s.Group == "" {
		return
	}
	p := at(i, "group")
	if !groupName.MatchString(s.Group) {
		b.add(p, "group is %.80q; allowed: 1 to 128 letters, digits and . _ -", s.Group)
		return
	}
	if len(s.Schedule) > 0 {
		b.add(p, "a rule of a group has no schedule: while it is off, no other of its group would apply in its place; give the rules of the group one limit, or leave the group")
	}
	name := string(rule.mode) + " " + s.Group
	if b.groups[name] == 0 {
		if len(b.groups) >= MaxGroups {
			b.add(p, "the rules up to here have over %d groups", MaxGroups)
			return
		}
		b.groups[name] = len(b.groups) + 1
	}
	rule.group, rule.groupName = b.groups[name], s.Group
	b.set.grouped = true
}

// Group is that of the rule, or "".
func (r *Rule) Group() string { return r.groupName }

// Outdone appends the rules that are for a request and do not apply, because another rule
// of their group is the better match: what Match leaves out, to explain it.
func (s *Set) Outdone(r *Request, dst []*Rule) []*Rule {
	w := walk{request: r, form: s.form}
	w.hosts(s)
	all := w.sorted(0)
	apply := best(slices.Clone(all), 0)
	for _, rule := range all {
		if !slices.Contains(apply, rule) {
			dst = append(dst, rule)
		}
	}
	return dst
}

// rank is how special a match is: the larger of two is the better match. It is made of the
// lines of the table in docs/rules.md, the first of which is the most significant.
func rank(hosts []string, path string, conditions []condition) (rank uint64) {
	put := func(n int, bits uint) { rank = rank<<bits | uint64(min(max(n, 0), 1<<bits-1)) }
	kind, labels := hostRank(hosts)
	put(kind, 2)
	put(labels, 7)
	var service, client, exact, any int
	for i := range conditions {
		switch c := &conditions[i]; {
		case c.kind == sourceService:
			service = 1 + min(1, len(c.values))
		case c.kind == sourceIP:
			client = 1 + widest(c)
		case len(c.values) > 0:
			exact++
		default:
			any++
		}
	}
	put(service, 2)
	text, one, ends := pathRank(path)
	put(text, 10)
	put(one, 10)
	put(ends, 2)
	put(client, 8)
	put(exact, 5)
	put(any, 5)
	return rank
}

// hostRank is that of the least special host: 2 for a name, 1 for all below one, 0 for any;
// and how many dots the latter has.
func hostRank(hosts []string) (kind, labels int) {
	if len(hosts) == 0 {
		return 0, 0
	}
	kind, labels = 2, 127
	for _, host := range hosts {
		if strings.HasPrefix(host, "*.") {
			kind, labels = 1, min(labels, strings.Count(host, "."))
		}
	}
	return kind, labels
}

// pathRank is how many segments are written out, how many stand for one, and 2 for a path
// that ends there, 1 for one that may go on, 0 for none.
func pathRank(pattern string) (text, one, ends int) {
	if pattern == "" {
		return 0, 0, 0
	}
	ends = 2
	for segment := range segments(pattern) {
		switch {
		case segment == "**":
			ends = 1
		case segment == "*" || strings.HasPrefix(segment, "{"):
			one++
		default:
			text++
		}
	}
	return text, one, ends
}

// widest is the length of the shortest prefix.
func widest(c *condition) int {
	bits := 128
	for _, network := range c.networks {
		bits = min(bits, network.Bits())
	}
	return bits
}

// best keeps of each group the best match, of equal ones the first: found is in the order
// of the file.
func best(found []*Rule, from int) []*Rule {
	var of [MaxGroups + 1]*Rule
	for _, rule := range found[from:] {
		if b := of[rule.group]; b == nil || rule.rank > b.rank {
			of[rule.group] = rule
		}
	}
	kept := found[:from]
	for _, rule := range found[from:] {
		if rule.group == 0 || of[rule.group] == rule {
			kept = append(kept, rule)
		}
	}
	return kept
}
