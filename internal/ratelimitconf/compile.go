package ratelimitconf

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// Options say how Compile makes rules.
type Options struct {
	// Merge allows several configurations of a domain. Their descriptors are one list then.
	Merge bool

	// Algorithm, if non-nil, returns the algorithm that counts a limit, as the first word of weir.ParseLimit, or "" for
	// fixed windows that begin at multiples of the unit since the Unix epoch, as the service counts. The path is the
	// descriptor's, such as key1_value1.key2; the unit is in lower case.
	Algorithm func(domain, path, unit string) string

	// Adjust, if non-nil, is called with each rule of a limit before it is added, and may change everything but its
	// name and match. An error is a mistake of the configuration.
	Adjust func(domain, path string, rule *rules.Spec) error
}

// Compile makes rules of configurations, in their order. Each descriptor with a limit becomes a rule. So does each
// descriptor with neither a limit nor descriptors below: it exempts requests. A rule is named by its domain and its
// path. The error is a *rules.Error that lists every mistake; rules.Compile accepts the file.
func Compile(configs []*Config, o Options) (*rules.File, error) {
	c := &compiler{Options: o, report: new(report)}
	domains := make(map[string]map[string]bool) // the texts at their first levels
	for _, config := range configs {
		taken := domains[config.Domain]
		if taken == nil || !o.Merge {
			taken = make(map[string]bool)
		}
		c.check(config, taken)
		if domains[config.Domain] != nil && !o.Merge {
			c.add(config.start(), "domain", "domain %.80q occurs twice; allowed: one configuration of a domain, "+
				"unless domains are merged", config.Domain)
		}
		domains[config.Domain] = taken
		c.collect(config, nil, config.Descriptors)
	}
	if len(c.problems) > 0 {
		return nil, c.err()
	}
	file := &rules.File{Rules: make([]rules.Spec, len(c.nodes))}
	for i, name := range c.names() {
		file.Rules[i] = c.rule(c.nodes[i], name)
	}
	c.verify(file)
	if err := c.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// A compiler makes rules.
type compiler struct {
	Options
	*report
	nodes []*node // one for each rule
}

// A node is a descriptor with its place in the tree.
type node struct {
	*Descriptor
	config *Config
	path   []*Descriptor // from the first level to the descriptor itself
}

// collect finds the descriptors that become rules.
func (c *compiler) collect(config *Config, above []*Descriptor, list []Descriptor) {
	for i := range list {
		d := &list[i]
		path := append(above[:len(above):len(above)], d)
		if d.Limit != nil || len(d.Descriptors) == 0 {
			c.nodes = append(c.nodes, &node{d, config, path})
		}
		c.collect(config, path, d.Descriptors)
	}
}

// text is the path of a node, as the service names it in counts.
func (n *node) text() string {
	texts := make([]string, len(n.path))
	for i, d := range n.path {
		texts[i] = d.Text()
	}
	return strings.Join(texts, ".")
}

// hashLength is the length of a hash in a name, with the sign before it.
const hashLength = 13

// names are the names of the rules. A name is the domain and the path, with _ for each character that is not allowed in
// names. A name that is too long, or that another path has too, ends with a hash of the domain and the path: so changes
// of other descriptors rarely change it.
func (c *compiler) names() []string {
	names, count := make([]string, len(c.nodes)), make(map[string]int)
	for i, n := range c.nodes {
		names[i] = strings.Map(plain, n.config.Domain+"."+n.text())
		count[names[i]]++
	}
	for i, n := range c.nodes {
		if len(names[i]) <= weir.MaxName && count[names[i]] == 1 {
			continue
		}
		hash := sha256.New()
		fmt.Fprintf(hash, "%q", n.config.Domain)
		for _, d := range n.path {
			fmt.Fprintf(hash, "%q=%q", d.Key, d.Value)
		}
		begin := names[i][:min(len(names[i]), weir.MaxName-hashLength)]
		names[i] = fmt.Sprintf("%s-%x", begin, hash.Sum(nil)[:hashLength/2])
	}
	return names
}

// plain returns letters, digits and . _ - as they are, and _ for any other character.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
		return r
	}
	return '_'
}

// rule is the rule of a node.
func (c *compiler) rule(n *node, name string) rules.Spec {
	c.config = n.config
	spec := rules.Spec{Name: name, Description: n.origin(), Key: n.key()}
	spec.Match.Service = []string{n.config.Domain}
	for _, d := range n.path {
		spec.Match.DescriptorKeys = append(spec.Match.DescriptorKeys, rules.DescriptorEntry(d.Key, d.Value))
	}
	if n.Limit == nil { // answers do not show it
		spec.Mode, spec.Limit = rules.Shadow, []string{unlimited}
		return spec
	}
	path := n.text()
	spec.Limit = []string{c.limit(n, path)}
	spec.Replaces, spec.Quota, spec.Metadata = n.Limit.Replaces, n.QuotaMode, n.Metadata
	if !n.Limit.Unlimited && n.Limit.RequestsPerUnit == 0 {
		spec.Deny = map[string][]string{"service": {n.config.Domain}}
	}
	if !n.Limit.Unlimited { // the service neither replaces nor shadows an unlimited limit
		spec.Alias = n.Limit.Name
		if n.ShadowMode {
			spec.Mode = rules.Shadow
		}
	}
	if c.Adjust != nil {
		if err := c.Adjust(n.config.Domain, path, &spec); err != nil {
			c.add(n.Mark, path, "%v", err)
		}
	}
	return spec
}

// maxOrigin leaves room for a line in a description.
const maxOrigin = bounds.Description - 24

// origin says where the node is.
func (n *node) origin() string {
	name := strings.ToValidUTF8(n.config.Name[:min(len(n.config.Name), maxOrigin)], "")
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, name)
	if n.Mark.Line == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, n.Mark.Line)
}

// key has a component for each entry with values that are counted apart. The number of components is limited: in a
// longer path, entries with a single value have no component, since it would not change the count.
func (n *node) key() []string {
	key := []string{"service"}
	for i, d := range n.path {
		same := d.Value != "" && !strings.Contains(d.Text(), "*")
		if !d.ShareThreshold && (len(n.path) < bounds.Components || !same) {
			key = append(key, fmt.Sprint("entry.", i+1))
		}
	}
	return key
}

const (
	unlimited   = "unlimited"
	fixedWindow = "fixed_window"
)

// limit is the text of a node's limit. A limit of 0 has a text too, since answers show its window.
func (c *compiler) limit(n *node, path string) string {
	if n.Limit.Unlimited {
		return unlimited
	}
	unit, algorithm := strings.ToLower(n.Limit.Unit), fixedWindow
	if c.Algorithm != nil && n.Limit.RequestsPerUnit > 0 {
		algorithm = cmp.Or(c.Algorithm(n.config.Domain, path, unit), fixedWindow)
	}
	text := fmt.Sprintf("%s %d/%s", algorithm, max(1, n.Limit.RequestsPerUnit),
		period(seconds[unit]*int64(max(1, n.Limit.UnitMultiplier))))
	if algorithm == fixedWindow {
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

// verify compiles the rules, and reports each mistake at the descriptor of its rule.
func (c *compiler) verify(file *rules.File) {
	_, err := rules.Compile(file)
	var list *rules.Error
	if !errors.As(err, &list) {
		return
	}
	for _, p := range list.Problems {
		var i int
		if n, _ := fmt.Sscanf(p.Field, "rules[%d]", &i); n == 0 {
			c.problems = append(c.problems, p)
			continue
		}
		c.config = c.nodes[i].config
		c.add(c.nodes[i].Mark, c.nodes[i].text(), "rule %s: %s", file.Rules[i].Name, p.Message)
	}
	c.omitted += list.Omitted
}
