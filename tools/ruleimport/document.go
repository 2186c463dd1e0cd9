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

// A Document is one document of a YAML or JSON file.
type Document struct {
	*Job
	File string
	Root *yaml.Node
}

// Documents are the documents of a file.
func (j *Job) Documents(t Text) (list []Document) {
	nodes := 0
	for _, sign := range []string{",", ":", "[", "{", "- ", "\n"} {
		nodes += bytes.Count(t.Data, []byte(sign))
	}
	if nodes > bounds.Nodes {
		j.Wrong(t.Name, 1, "the file has %d commas, colons, brackets, dashes and lines; at most %d", nodes,
			bounds.Nodes)
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(t.Data),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	for err == nil {
		root := new(yaml.Node)
		if err = loader.Load(root); err == nil && len(root.Content) > 0 {
			list = append(list, Document{j, t.Name, root.Content[0]})
		}
	}
	var load *yaml.LoadError
	switch {
	case errors.As(err, &load):
		j.Wrong(t.Name, load.Mark.Line, "not YAML: %s", load.Message)
	case err != io.EOF:
		j.Wrong(t.Name, 1, "not YAML: %v", err)
	case len(list) == 0:
		j.Wrong(t.Name, 1, "the file is empty")
	}
	return list
}

// Wrong reports a mistake at a node.
func (d *Document) Wrong(n *yaml.Node, format string, args ...any) {
	d.Job.wrongAt(d.File, n.Line, n.Column, format, args...)
}

// Lacks lists a setting without an equal, at a node.
func (d *Document) Lacks(n *yaml.Node, instead, format string, args ...any) {
	d.Job.Lacks(d.File, n.Line, instead, format, args...)
}

// Is follows an alias.
func (d *Document) Is(n *yaml.Node) *yaml.Node {
	if d.visited++; n.Kind == yaml.AliasNode {
		d.aliases++
		n = n.Alias
	}
	if d.visited < bounds.Nodes && d.aliases <= maxAliases {
		return n
	}
	if !d.over {
		d.over = true
		d.Wrong(n, "the file has over %d aliases, or with them over %d values: write values out", maxAliases,
			bounds.Nodes)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Line: n.Line, Tag: "!!null"}
}

// Fields are the readers of the fields of a mapping.
type Fields map[string]func(n *yaml.Node)

// With adds fields that are read elsewhere, or that do not concern limits.
func (f Fields) With(names ...string) Fields {
	for _, name := range names {
		f[name] = func(*yaml.Node) {}
	}
	return f
}

// Read reads a mapping. Others is called with fields that are not in the table; nil lists them.
func (d *Document) Read(n *yaml.Node, what string, table Fields, others func(key, value *yaml.Node)) {
	n = d.Is(n)
	if n.Kind != yaml.MappingNode {
		d.Wrong(n, "%s must be fields with values, such as name: value", what)
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], d.Is(n.Content[i+1])
		set, known := table[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.Wrong(key, "a field's name must be a word")
		case seen[key.Value]:
			d.Wrong(key, "%.80q occurs twice", key.Value)
		case known:
			set(value)
		case others != nil:
			others(key, value)
		default:
			d.Lacks(key, "see whether limits depend on it", "%s has the field %.80q, which is not imported", what,
				key.Value)
		}
		seen[key.Value] = true
	}
}

// Child is the value of a field; nil without such a field.
func (d *Document) Child(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return d.Is(n.Content[i+1])
		}
	}
	return nil
}

// Items are the elements of a list.
func (d *Document) Items(n *yaml.Node, what string) (list []*yaml.Node) {
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.Wrong(n, "%s must be a list: each begins with a dash", what)
		return nil
	}
	for _, item := range n.Content {
		list = append(list, d.Is(item))
	}
	return list
}

// Texts are the elements of a list of texts; one text alone is a list of one.
func (d *Document) Texts(n *yaml.Node, what string) (list []string) {
	if n.Kind == yaml.ScalarNode && !IsNull(n) {
		return []string{n.Value}
	}
	for _, item := range d.Items(n, what) {
		list = append(list, d.Text(item, what))
	}
	return list
}

func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Text is a value as it is written.
func (d *Document) Text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		d.Wrong(n, "%s must be one value", what)
		return ""
	}
	if IsNull(n) {
		return ""
	}
	return n.Value
}

// Number is a whole number between two.
func (d *Document) Number(n *yaml.Node, what string, least, most int64) int64 {
	value, err := strconv.ParseInt(d.Text(n, what), 10, 64)
	if err != nil || value < least || value > most {
		d.Wrong(n, "%s is %.80q; allowed: a whole number from %d to %d", what, n.Value, least, most)
		return least
	}
	return value
}

// Flag is true or false, in the words of YAML 1.1, which these programs read.
func (d *Document) Flag(n *yaml.Node, what string) bool {
	word := strings.ToLower(d.Text(n, what))
	if slices.Contains([]string{"true", "yes", "on", "y"}, word) {
		return true
	}
	if !slices.Contains([]string{"false", "no", "off", "n", ""}, word) {
		d.Wrong(n, "%s is %.80q; allowed: true, false", what, n.Value)
	}
	return false
}

// Origin is the description of a rule: where it comes from.
func (d *Document) Origin(n *yaml.Node) string { return Origin(d.File, n.Line) }

// Origin is the description of a rule: where it comes from.
func Origin(file string, line int) string {
	return comment(fmt.Sprintf("%.900s:%d", file, line))
}
