package ratelimitconf

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// Options say how Compile makes rules.
type Options struct {
	// Merge allows several configurations of a domain, whose descriptors are then one list.
	Merge bool

	// Algorithm, if non-nil, returns the algorithm that counts a limit, as the first word of weir.ParseLimit, or "" for
	// fixed windows that begin at multiples of the unit since the Unix epoch, as the service counts. The path is the
	// descriptor's, such as key1_value1.key2; the unit is in lower case.
	Algorithm func(domain, path, unit string) string

	// Adjust, if non-nil, is called with each rule before it is added, and may change everything but its name, group
	// and match. An error is a mistake of the configuration.
	Adjust func(domain, path string, rule *rules.Spec) error
}

// Compile makes rules of configurations: one of each limit, in one group. A rule is named by its domain and its path.
// The error is a *rules.Error that lists every mistake. The rules are valid, but may exceed the bounds of a rule set,
// which rules.Compile reports.
func Compile(configs []*Config, o Options) (*rules.File, error) {
	c := &compiler{Options: o, report: new(report), file: new(rules.File), names: make(map[string]bool)}
	domains := make(map[string]*node)
	var order []string
	for _, config := range configs {
		c.check(config)
		root := domains[config.Domain]
		switch {
		case root == nil:
			root = new(node)
			domains[config.Domain] = root
			order = append(order, config.Domain)
		case !o.Merge:
			c.add(config.start(), "domain", "domain %.80q occurs twice; allowed: one configuration of a domain, "+
				"unless domains are merged", config.Domain)
		}
		root.grow(c, config, config.Descriptors)
	}
	if len(c.problems) == 0 {
		for _, domain := range order {
			c.emit(domain, nil, domains[domain].children)
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.file, nil
}

// A compiler makes rules.
type compiler struct {
	Options
	*report
	file  *rules.File
	names map[string]bool
}

// A node is a descriptor of the merged tree.
type node struct {
	*Descriptor
	config   *Config
	kind     kind
	children []*node // in the order of trial
	ruled    bool
}

// A kind is how a node matches, the most specific first.
type kind uint8

const (
	byValue kind = iota
	byPattern
	byKey
)

// grow adds descriptors.
func (n *node) grow(c *compiler, config *Config, list []Descriptor) {
	for i := range list {
		child := &node{Descriptor: &list[i], config: config, kind: byKey}
		if strings.Contains(child.Value, "*") {
			child.kind = byPattern
		} else if child.Value != "" {
			child.kind = byValue
		}
		for _, other := range n.children {
			if other.config != config && other.text() == child.text() {
				c.config = config
				c.add(child.Mark, "descriptors", "descriptor %.80q is in %s too; allowed: once in a domain",
					child.text(), other.config.Name)
			}
		}
		n.children = append(n.children, child)
		child.grow(c, config, child.Descriptors)
	}
	slices.SortStableFunc(n.children, func(a, b *node) int { return int(a.kind) - int(b.kind) })
}

// A level is a node of a path, with the nodes beside it.
type level struct {
	*node
	beside []*node
}

// emit writes the rules of nodes below a path, in the order of their trial.
func (c *compiler) emit(domain string, path []level, nodes []*node) {
	for _, n := range nodes {
		here := append(slices.Clone(path), level{n, nodes})
		if n.Limit != nil && !n.Limit.Unlimited {
			n.ruled = c.rule(domain, here)
		}
		c.emit(domain, here, n.children)
	}
}

// rule writes the rule of the last node of a path.
func (c *compiler) rule(domain string, path []level) bool {
	n := path[len(path)-1]
	c.config = n.config
	var texts []string
	spec := rules.Spec{Group: "envoy", Label: n.Limit.Name, Key: []string{"service"}}
	spec.Match = rules.Match{Service: []string{domain}, Descriptor: make(map[string][]string)}
	if n.Mark.Line > 0 {
		spec.Description = fmt.Sprintf("%.900s:%d", n.config.Name, n.Mark.Line)
	}
	for i := range path {
		at := &path[i]
		texts = append(texts, at.text())
		spec.Match.DescriptorKeys = append(spec.Match.DescriptorKeys, at.Key)
		if !at.ShareThreshold {
			spec.Key = append(spec.Key, "descriptor."+at.Key)
		}
		switch at.kind {
		case byValue:
			spec.Match.Descriptor[at.Key] = []string{at.Value}
		case byPattern:
			if spec.Match.Regex.Descriptor == nil {
				spec.Match.Regex.Descriptor = make(map[string][]string)
			}
			spec.Match.Regex.Descriptor[at.Key] = []string{wildcard(at.Value)}
		}
		spec.Match.Not = append(spec.Match.Not, at.excluded(i == len(path)-1)...)
	}
	if len(spec.Match.Descriptor) == 0 {
		spec.Match.Descriptor = nil
	}
	where := strings.Join(texts, ".")
	spec.Name = c.name(domain + "." + where)
	spec.Limit = []string{c.limit(domain, where, n.Limit)}
	if n.Limit.RequestsPerUnit == 0 {
		spec.Limit = []string{"none"}
	}
	if n.ShadowMode {
		spec.Mode = rules.Shadow
	}
	if c.Adjust != nil {
		if err := c.Adjust(domain, where, &spec); err != nil {
			c.add(n.Mark, where, "%v", err)
		}
	}
	if _, err := rules.Compile(&rules.File{Rules: []rules.Spec{spec}}); err != nil {
		c.add(n.Mark, where, "rule %s: %v", spec.Name, err)
		return false
	}
	c.file.Rules = append(c.file.Rules, spec)
	return true
}

// limit is the text of a limit.
func (c *compiler) limit(domain, path string, l *Limit) string {
	unit := strings.ToLower(l.Unit)
	algorithm := ""
	if c.Algorithm != nil {
		algorithm = c.Algorithm(domain, path, unit)
	}
	text := fmt.Sprintf("%s %d/%s", cmp.Or(algorithm, "fixed_window"), l.RequestsPerUnit,
		period(seconds[unit]*int64(max(1, l.UnitMultiplier))))
	if algorithm == "" || algorithm == "fixed_window" {
		text += " epoch"
	}
	return text
}

// period is a number of seconds in the longest unit that divides it.
func period(s int64) string {
	for _, unit := range []struct {
		letter  string
		seconds int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}} {
		if s%unit.seconds == 0 {
			return fmt.Sprint(s/unit.seconds, unit.letter)
		}
	}
	return fmt.Sprint(s, "s")
}

// maxName leaves room for a number after it.
const maxName = 120

// name is a name for a rule: letters, digits and . _ - as they are, and a number after one that is taken.
func (c *compiler) name(text string) string {
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, text)
	text = text[:min(len(text), maxName)]
	for n, name := 2, text; ; n++ {
		if !c.names[name] {
			c.names[name] = true
			return name
		}
		name = fmt.Sprintf("%s-%d", text, n)
	}
}

// wildcard is an expression for the texts that fit a value; a star stands for any text.
func wildcard(value string) string { return strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, ".*") }

// fits reports whether a text fits a value with stars.
func fits(value, text string) bool {
	return regexp.MustCompile("(?s)^" + wildcard(value) + "$").MatchString(text)
}

// excluded are the entries that a node before this one takes. At the last level of a path no exclusion is needed for
// an entry with a rule of the same group and more specific, or as specific and earlier.
func (l *level) excluded(last bool) (list []rules.Match) {
	var values, expressions []string
	for _, other := range l.beside {
		if other == l.node {
			break
		}
		resolved := last && other.ruled && other.ShadowMode == l.ShadowMode
		switch {
		case other.Key != l.Key || l.kind == byValue || resolved:
		case other.kind == byValue && (l.kind == byKey || fits(l.Value, other.Value)):
			values = append(values, other.Value)
		case other.kind == byPattern:
			expressions = append(expressions, wildcard(other.Value))
		}
	}
	for chunk := range slices.Chunk(values, bounds.Values) {
		list = append(list, rules.Match{Descriptor: map[string][]string{l.Key: chunk}})
	}
	for chunk := range slices.Chunk(expressions, bounds.Values) {
		list = append(list, rules.Match{Regex: rules.Expressions{Descriptor: map[string][]string{l.Key: chunk}}})
	}
	return list
}
