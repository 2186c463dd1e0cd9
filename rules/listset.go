package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
)

// WithSets allows lists to name sets in Redis (deny: {client.ip: {redis: weir:blocked}}). Parse and Lint only
// record the names; the caller of Compile puts the members into File.Sets, as internal/ruleset/redissource does.
// Without the option such a list is a mistake; rules from a URL or a database must stay without it, because
// their authors must not choose what a server reads.
func WithSets() Option { return func(o *options) { o.sets = true } }

// SetNames are the sets named by the lists of the file, sorted.
func (f *File) SetNames() []string {
	names := make(map[string]bool)
	note := func(tables ...map[string]List) {
		for _, table := range tables {
			for _, list := range table {
				for _, name := range list.Sets {
					names[name] = true
				}
			}
		}
	}
	note(f.Allow, f.Deny)
	for i := range f.Rules {
		note(f.Rules[i].Allow, f.Rules[i].Deny)
	}
	return slices.Sorted(maps.Keys(names))
}

// SetNames are the sets named by the lists, sorted. Do not change the slice.
func (s *Set) SetNames() []string { return s.names }

// LeftOut is an *Error that lists the members of sets that are invalid, and the sets whose members are
// unknown; nil if there are none. These are not mistakes of the rules: the lists are in force without them.
func (s *Set) LeftOut() error { return s.leftOut }

// setNames reads the names of sets.
func (d *decoder) setNames(p place, n *yaml.Node, l *listing) {
	names := d.list(p, n, bounds.Sets)
	if !d.sets && len(names) > 0 {
		d.wrong(n, "%s is %.80q; only rules from a file, not in a URL or in a database, may name what else to read: "+
			"write the values here", p.field, names[0])
		return
	}
	l.Sets = names
}

// A setUse is a set and the component of its members.
type setUse struct {
	name      string
	addresses bool
}

// sets compiles the members of the sets of a list. A set that several lists name is compiled once.
func (b *builder) sets(p place, c component, names []string) (list []*values) {
	for i, name := range names {
		if complaint := b.nameOfSet(name, names[:i]); complaint != "" {
			b.add(at(p.rule, p.field+".redis"), "%s.redis has %.80q; %s", p.field, name, complaint)
			continue
		}
		use := setUse{name, c.source == sourceIP}
		if b.used[use] == nil {
			b.used[use] = b.membersOf(p, &c, name)
		}
		list = append(list, b.used[use])
	}
	return list
}

func (b *builder) nameOfSet(name string, before []string) (complaint string) {
	switch {
	case name == "" || len(name) > bounds.Text:
		return fmt.Sprintf("allowed: the key of a set, of 1 to %d bytes", bounds.Text)
	case strings.Contains(name, "://"):
		return "allowed: the key of a set, such as weir:blocked, without the address of its Redis"
	case slices.Contains(before, name):
		return "it occurs twice"
	}
	known := b.setNames()
	if _, there := slices.BinarySearch(known, name); !there && len(known) >= bounds.Sets {
		return fmt.Sprintf("the rules up to here name %d sets; at most that many", bounds.Sets)
	}
	return ""
}

// setNames are the sets so far, sorted.
func (b *builder) setNames() (names []string) {
	for use := range b.used {
		names = append(names, use.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// membersOf reads the members of a set like lines of a file of values. An invalid member does not invalidate
// the others: a program that adds to a set gets no error from the rules.
func (b *builder) membersOf(p place, c *component, name string) *values {
	v := &values{exact: make(map[string]bool)}
	members, read := b.members[name]
	if !read {
		b.leftOut.add(p, "%s: the set %.80q was not read, and has no members", p.field, name)
	}
	if b.membered += len(members); b.membered > bounds.AllMembers {
		b.add(p, "%s: with %.80q the sets have over %d members", p.field, name, bounds.AllMembers)
		return v
	}
	v.taken = make([]netip.Prefix, 0, len(members))
	for _, member := range members {
		if complaint := v.add(c, member); complaint != "" {
			b.leftOut.add(p, "%s: the set %.80q has %.80q, which is left out: %s", p.field, name, member, complaint)
		}
	}
	v.finish()
	return v
}

// add reads a member of a set.
func (l *values) add(c *component, member string) (complaint string) {
	text, _ := valueOf(member, false)
	switch {
	case text == "": // a comment
		return ""
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case len(text) > bounds.Text:
		return fmt.Sprintf("a value of 1 to %d bytes is needed", bounds.Text)
	}
	p, complaint := parsePatternOf(c, text)
	if complaint == "" {
		l.take(p)
	}
	return complaint
}
