package ratelimitconf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/yamltree"
	"github.com/weirproject/weir/rules"
)

// Parse reads a file: one YAML document. The error is a *rules.Error that lists every mistake; name is the file's name
// in it. A file with a mistake that ends its loading in the service has one here too.
func Parse(name string, text []byte) (*Config, error) {
	c := &Config{Name: name}
	report := newReport(c)
	if len(text) > rules.MaxFile {
		report.add(Mark{1, 1}, "", "the file has over %d bytes, which is the most", rules.MaxFile)
		return nil, report.err()
	}
	c.lines = strings.Split(string(text), "\n")
	roots, line, message := yamltree.Load(text)
	switch {
	case message != "":
		report.add(Mark{max(1, line), 1}, "", "%s", message)
	case len(roots) > 1:
		report.add(markOf(roots[1]), "", "a second document; a file is one, without --- in it")
	default:
		p := &parser{report: report, config: c}
		p.Reader = yamltree.Reader{Budget: new(yamltree.Budget), Wrong: p.wrong}
		p.file(roots[0])
	}
	if len(report.problems) == 0 {
		report.check(c, make(map[string]bool))
	}
	if err := report.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// A parser reads the nodes of a file.
type parser struct {
	yamltree.Reader
	*report
	config *Config
}

func markOf(n *yaml.Node) Mark { return Mark{n.Line, n.Column} }

func (p *parser) wrong(n *yaml.Node, format string, args ...any) {
	p.add(markOf(n), "", format, args...)
}

// words are the fields that the service reads, each at one of its places. At another place the service accepts it, and
// does not read it.
var words = []string{"domain", "descriptors", "key", "value", "rate_limit", "shadow_mode", "quota_mode",
	"detailed_metric", "value_to_metric", "share_threshold", "metadata", "unit", "requests_per_unit", "unit_multiplier",
	"unlimited", "name", "replaces"}

// mapping reads the fields of a mapping.
func (p *parser) mapping(n *yaml.Node, what string, fields yamltree.Fields) {
	p.Read(n, what, fields, func(key, value *yaml.Node) {
		allowed := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
		if !slices.Contains(words, key.Value) {
			p.wrong(key, "%s has the field %.80q; allowed: %s", what, key.Value, allowed)
			return
		}
		p.config.Ignored = append(p.config.Ignored, p.problem(markOf(key), "", fmt.Sprintf(
			"%s is not read in %s, and has no effect there; read there: %s", key.Value, what, allowed)))
	})
}

func (p *parser) file(n *yaml.Node) {
	p.mapping(n, "the file", yamltree.Fields{
		"domain":      func(n *yaml.Node) { p.config.Domain = p.Text(n, "domain") },
		"descriptors": func(n *yaml.Node) { p.config.Descriptors = p.descriptors(n) },
	})
}

func (p *parser) descriptors(n *yaml.Node) (list []Descriptor) {
	for _, item := range p.Items(n, "descriptors") {
		list = append(list, p.descriptor(item))
	}
	return list
}

func (p *parser) descriptor(n *yaml.Node) (d Descriptor) {
	d.Mark = markOf(n)
	flag := func(name string, at *bool) func(*yaml.Node) {
		return func(n *yaml.Node) { *at = p.Flag(n, name) }
	}
	p.mapping(n, "a descriptor", yamltree.Fields{
		"key":             func(n *yaml.Node) { d.Key = p.Text(n, "key") },
		"value":           func(n *yaml.Node) { d.Value = p.Text(n, "value") },
		"rate_limit":      func(n *yaml.Node) { d.Limit = p.limit(n) },
		"descriptors":     func(n *yaml.Node) { d.Descriptors = p.descriptors(n) },
		"shadow_mode":     flag("shadow_mode", &d.ShadowMode),
		"quota_mode":      flag("quota_mode", &d.QuotaMode),
		"detailed_metric": flag("detailed_metric", &d.DetailedMetric),
		"value_to_metric": flag("value_to_metric", &d.ValueToMetric),
		"share_threshold": flag("share_threshold", &d.ShareThreshold),
		"metadata":        func(n *yaml.Node) { d.Metadata = p.metadata(n) },
	})
	return d
}

// limit reads a rate limit; a null is none.
func (p *parser) limit(n *yaml.Node) *Limit {
	if yamltree.IsNull(n) {
		return nil
	}
	l := &Limit{Mark: markOf(n)}
	number := func(name string, least int64, at *uint32) func(*yaml.Node) {
		return func(n *yaml.Node) { *at = uint32(p.Number(n, name, least, math.MaxUint32)) }
	}
	p.mapping(n, "rate_limit", yamltree.Fields{
		"unit":              func(n *yaml.Node) { l.Unit = p.Text(n, "unit") },
		"requests_per_unit": number("requests_per_unit", 0, &l.RequestsPerUnit),
		"unit_multiplier":   number("unit_multiplier", 1, &l.UnitMultiplier),
		"unlimited":         func(n *yaml.Node) { l.Unlimited = p.Flag(n, "unlimited") },
		"name":              func(n *yaml.Node) { l.Name = p.Text(n, "name") },
		"replaces":          func(n *yaml.Node) { l.Replaces = p.replaces(n) },
	})
	return l
}

func (p *parser) replaces(n *yaml.Node) (names []string) {
	for _, item := range p.Items(n, "replaces") {
		name := ""
		p.mapping(item, "an element of replaces", yamltree.Fields{
			"name": func(n *yaml.Node) { name = p.Text(n, "name") },
		})
		names = append(names, name)
	}
	return names
}

// metadata reads a mapping of any values.
func (p *parser) metadata(n *yaml.Node) map[string]any {
	if yamltree.IsNull(n) {
		return nil
	}
	fields := make(map[string]any)
	p.Read(n, "metadata", nil, func(key, value *yaml.Node) { fields[key.Value] = p.any(value) })
	return fields
}

// any is a value as encoding/json decodes one.
func (p *parser) any(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		return p.metadata(n)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range p.Items(n, "metadata") {
			list = append(list, p.any(item))
		}
		return list
	}
	var value any
	if err := n.Decode(&value); err != nil {
		p.wrong(n, "metadata has %.80q: %v", n.Value, err)
	}
	switch v := value.(type) {
	case nil, bool, string, float64:
		return v
	case int:
		return float64(v)
	}
	return n.Value
}
