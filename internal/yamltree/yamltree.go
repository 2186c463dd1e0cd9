// Package yamltree reads YAML files of other programs as trees of nodes, whose size is bounded however aliases nest.
package yamltree

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

// Load returns the roots of the documents of a text. The text is wrong at the line, unless the message is "".
func Load(text []byte) (roots []*yaml.Node, line int, message string) {
	nodes := 0
	for _, sign := range []string{",", ":", "[", "{", "- ", "\n"} {
		nodes += bytes.Count(text, []byte(sign))
	}
	if nodes > bounds.Nodes {
		return nil, 1, fmt.Sprintf("the file has %d commas, colons, brackets, dashes and lines; at most %d", nodes,
			bounds.Nodes)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	for err == nil {
		root := new(yaml.Node)
		if err = loader.Load(root); err == nil && len(root.Content) > 0 {
			roots = append(roots, root.Content[0])
		}
	}
	var load *yaml.LoadError
	switch {
	case errors.As(err, &load):
		return nil, load.Mark.Line, "not YAML: " + load.Message
	case err != io.EOF:
		return nil, 1, fmt.Sprintf("not YAML: %v", err)
	case len(roots) == 0:
		return nil, 1, "the file is empty"
	}
	return roots, 0, ""
}

// A Budget counts the nodes and aliases that readers visit. Readers of several documents share one.
type Budget struct {
	visited int
	aliases int
	over    bool // there were too many
}

// A Reader reads nodes. Mistakes are reported, and reading goes on.
type Reader struct {
	Budget *Budget
	Wrong  func(n *yaml.Node, format string, args ...any) // reports a mistake at a node
}

// Is follows an alias.
func (r *Reader) Is(n *yaml.Node) *yaml.Node {
	b := r.Budget
	if b.visited++; n.Kind == yaml.AliasNode {
		b.aliases++
		n = n.Alias
	}
	if b.visited < bounds.Nodes && b.aliases <= maxAliases {
		return n
	}
	if !b.over {
		b.over = true
		r.Wrong(n, "the file has over %d aliases, or with them over %d values: write values out", maxAliases,
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

// Read reads a mapping. Others is called with fields that are not in the table.
func (r *Reader) Read(n *yaml.Node, what string, table Fields, others func(key, value *yaml.Node)) {
	n = r.Is(n)
	if n.Kind != yaml.MappingNode {
		r.Wrong(n, "%s must be fields with values, such as name: value", what)
		return
	}
	own, merged := r.pairs(n)
	seen := make(map[string]bool)
	for i, p := range append(own, merged...) {
		set, known := table[p.key.Value]
		switch {
		case p.key.Kind != yaml.ScalarNode:
			r.Wrong(p.key, "a field's name must be a word")
		case seen[p.key.Value]:
			if i < len(own) {
				r.Wrong(p.key, "%.80q occurs twice", p.key.Value)
			}
		case known:
			set(p.value)
		default:
			others(p.key, p.value)
		}
		seen[p.key.Value] = true
	}
}

type pair struct{ key, value *yaml.Node }

// pairs are the fields of a mapping, and those of the mappings that it merges by <<, the first of equal ones first.
func (r *Reader) pairs(n *yaml.Node) (own, merged []pair) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := pair{n.Content[i], r.Is(n.Content[i+1])}
		if p.key.Tag != "!!merge" {
			own = append(own, p)
			continue
		}
		sources := []*yaml.Node{p.value}
		if p.value.Kind == yaml.SequenceNode {
			sources = p.value.Content
		}
		for _, s := range sources {
			if s = r.Is(s); s.Kind != yaml.MappingNode {
				r.Wrong(p.key, "<< must be followed by fields, or a list of them")
				continue
			}
			first, rest := r.pairs(s)
			merged = append(append(merged, first...), rest...)
		}
	}
	return own, merged
}

// Child is the value of a field; nil without such a field.
func (r *Reader) Child(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return r.Is(n.Content[i+1])
		}
	}
	return nil
}

// Items are the elements of a list.
func (r *Reader) Items(n *yaml.Node, what string) (list []*yaml.Node) {
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.Wrong(n, "%s must be a list: each begins with a dash", what)
		return nil
	}
	for _, item := range n.Content {
		list = append(list, r.Is(item))
	}
	return list
}

// Texts are the elements of a list of texts; one text alone is a list of one.
func (r *Reader) Texts(n *yaml.Node, what string) (list []string) {
	if n.Kind == yaml.ScalarNode && !IsNull(n) {
		return []string{n.Value}
	}
	for _, item := range r.Items(n, what) {
		list = append(list, r.Text(item, what))
	}
	return list
}

// IsNull reports whether a node is a null or an empty value.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Text is a value as it is written.
func (r *Reader) Text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		r.Wrong(n, "%s must be one value", what)
		return ""
	}
	if IsNull(n) {
		return ""
	}
	return n.Value
}

// Number is a whole number between two.
func (r *Reader) Number(n *yaml.Node, what string, least, most int64) int64 {
	value, err := strconv.ParseInt(r.Text(n, what), 10, 64)
	if err != nil || value < least || value > most {
		r.Wrong(n, "%s is %.80q; allowed: a whole number from %d to %d", what, n.Value, least, most)
		return least
	}
	return value
}

// Flag is true or false, in the words of YAML 1.1, which these programs read.
func (r *Reader) Flag(n *yaml.Node, what string) bool {
	word := strings.ToLower(r.Text(n, what))
	if slices.Contains([]string{"true", "yes", "on", "y"}, word) {
		return true
	}
	if !slices.Contains([]string{"false", "no", "off", "n", ""}, word) {
		r.Wrong(n, "%s is %.80q; allowed: true, false", what, n.Value)
	}
	return false
}
