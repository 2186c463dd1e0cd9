package ruleimport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/weirproject/weir/internal/bounds"
)

// Bounds of YAML.
const (
	maxDepth   = 64   // nesting
	maxAliases = 1000 // which may nest without end, if one stands within its anchor
)

// A document is one document of a YAML or JSON file.
type document struct {
	*job
	file string
	root *yaml.Node
}

// documents are those of a file.
func (j *job) documents(t Text) (list []document) {
	nodes := 0
	for _, sign := range []string{",", ":", "[", "{", "- ", "\n"} {
		nodes += bytes.Count(t.Data, []byte(sign))
	}
	if nodes > bounds.Nodes {
		j.wrong(t.Name, 1, "the file has %d commas, colons, brackets, dashes and lines; at most %d", nodes,
			bounds.Nodes)
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(t.Data),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	for err == nil {
		root := new(yaml.Node)
		if err = loader.Load(root); err == nil && len(root.Content) > 0 {
			list = append(list, document{j, t.Name, root.Content[0]})
		}
	}
	var load *yaml.LoadError
	switch {
	case errors.As(err, &load):
		j.wrong(t.Name, load.Mark.Line, "not YAML: %s", load.Message)
	case err != io.EOF:
		j.wrong(t.Name, 1, "not YAML: %v", err)
	case len(list) == 0:
		j.wrong(t.Name, 1, "the file is empty")
	}
	return list
}

// wrong reports a mistake at a node.
func (d *document) wrong(n *yaml.Node, format string, args ...any) {
	d.job.wrongAt(d.file, n.Line, n.Column, format, args...)
}

// lacks lists what has no equal at a node.
func (d *document) lacks(n *yaml.Node, instead, format string, args ...any) {
	d.job.lacks(d.file, n.Line, instead, format, args...)
}

// is follows an alias.
func (d *document) is(n *yaml.Node) *yaml.Node {
	if d.visited++; n.Kind == yaml.AliasNode {
		d.aliases++
		n = n.Alias
	}
	if d.visited < bounds.Nodes && d.aliases <= maxAliases {
		return n
	}
	if !d.over {
		d.over = true
		d.wrong(n, "the file has over %d aliases, or with them over %d values: write values out", maxAliases,
			bounds.Nodes)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Line: n.Line, Tag: "!!null"}
}

// fields are the readers of the fields of a mapping.
type fields map[string]func(n *yaml.Node)

// with adds fields that are read elsewhere, or that say nothing about limits.
func (f fields) with(names ...string) fields {
	for _, name := range names {
		f[name] = func(*yaml.Node) {}
	}
	return f
}

// read reads a mapping. Others is called with fields that are not in the table; nil lists them.
func (d *document) read(n *yaml.Node, what string, table fields, others func(key, value *yaml.Node)) {
	n = d.is(n)
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "%s must be fields with values, such as name: value", what)
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], d.is(n.Content[i+1])
		set, known := table[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.wrong(key, "a field's name must be a word")
		case seen[key.Value]:
			d.wrong(key, "%.80q occurs twice", key.Value)
		case known:
			set(value)
		case others != nil:
			others(key, value)
		default:
			d.lacks(key, "see whether limits depend on it", "%s has the field %.80q, which is not imported", what,
				key.Value)
		}
		seen[key.Value] = true
	}
}

// child is the value of a field; nil if there is none.
func (d *document) child(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return d.is(n.Content[i+1])
		}
	}
	return nil
}

// items are the elements of a list.
func (d *document) items(n *yaml.Node, what string) (list []*yaml.Node) {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, "%s must be a list: each begins with a dash", what)
		return nil
	}
	for _, item := range n.Content {
		list = append(list, d.is(item))
	}
	return list
}

// texts are the elements of a list of texts; one text alone is a list of one.
func (d *document) texts(n *yaml.Node, what string) (list []string) {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		return []string{n.Value}
	}
	for _, item := range d.items(n, what) {
		list = append(list, d.text(item, what))
	}
	return list
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// text is a value as it is written.
func (d *document) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		d.wrong(n, "%s must be one value", what)
		return ""
	}
	if isNull(n) {
		return ""
	}
	return n.Value
}

// number is a whole number between two.
func (d *document) number(n *yaml.Node, what string, least, most int64) int64 {
	value, err := strconv.ParseInt(d.text(n, what), 10, 64)
	if err != nil || value < least || value > most {
		d.wrong(n, "%s is %.80q; allowed: a whole number from %d to %d", what, n.Value, least, most)
		return least
	}
	return value
}

// flag is true or false, in the words of YAML 1.1, which these programs read.
func (d *document) flag(n *yaml.Node, what string) bool {
	word := strings.ToLower(d.text(n, what))
	if slices.Contains([]string{"true", "yes", "on", "y"}, word) {
		return true
	}
	if !slices.Contains([]string{"false", "no", "off", "n", ""}, word) {
		d.wrong(n, "%s is %.80q; allowed: true, false", what, n.Value)
	}
	return false
}

// origin is the description of a rule: where it comes from.
func (d *document) origin(n *yaml.Node) string { return origin(d.file, n.Line) }

func origin(file string, line int) string {
	return comment(fmt.Sprintf("%.900s:%d", file, line))
}
