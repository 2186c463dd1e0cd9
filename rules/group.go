package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
)

// Of the rules of one group that match a request only the best match applies. It depends on the rules alone,
// so it is a number that is computed once: see rank.
//
// Shadow rules are compared among themselves: a rule on trial must not displace the one that it is to replace.

var groupName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// group adds a rule to its group.
func (b *builder) group(i int, s *Spec, rule *Rule) {
	if s.Group == "" {
		return
	}
	p := at(i, "group")
	if !groupName.MatchString(s.Group) {
		b.add(p, "group is %.80q; allowed: 1 to 128 of a-z A-Z 0-9 and . _ -", s.Group)
		return
	}
	if len(s.Schedule) > 0 {
		b.add(p, "a rule of a group has no schedule: while it is off, no other of its group would apply in its "+
			"place; give the rules of the group one limit, or leave the group")
	}
	name := string(rule.mode) + " " + s.Group
	if b.groups[name] == 0 {
		if len(b.groups) >= bounds.Groups {
			b.add(p, "the rules up to here have over %d groups", bounds.Groups)
			return
		}
		b.groups[name] = len(b.groups) + 1
	}
	rule.group, rule.groupName = b.groups[name], s.Group
	b.set.grouped = true
}

// Group is the name of the rule's group, or "".
func (r *Rule) Group() string { return r.groupName }

// rank orders matches: the larger of two is the better match. It packs the lines of the table in
// docs/reference/matching.md, the first as the most significant.
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
		case len(c.values)+len(c.entries) > 0:
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

// leastRank is the rank of the alternative that matches worst. An expression is a condition with a value.
func leastRank(ways []way, f *filter) uint64 {
	var expressed []condition
	for _, e := range f.expressions {
		expressed = append(expressed, condition{kind: e.kind, values: []string{e.name}})
	}
	least := ^uint64(0)
	for _, w := range ways {
		least = min(least, rank(w.hosts, w.path, slices.Concat(w.conditions, expressed)))
	}
	return least
}

// hostRank is the rank of the least specific host: 2 for a name, 1 for a wildcard, 0 for any host; labels is
// the number of dots of a wildcard.
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

// pathRank counts the segments that are written out and the wildcards; ends is 2 for a path that ends there, 1
// for a last **, 0 for no path.
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

// best keeps the best match of each group, and the first of equal ones: found is in the order of the file.
func best(found []*Rule, from int) []*Rule {
	var of [bounds.Groups + 1]*Rule
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
