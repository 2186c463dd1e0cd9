package ruleimport

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/yamltree"
)

// A Document is one document of a YAML or JSON file.
type Document struct {
	*Job
	yamltree.Reader
	File string
	Root *yaml.Node
}

// Fields are the readers of the fields of a mapping.
type Fields = yamltree.Fields

// Documents are the documents of a file.
func (j *Job) Documents(t Text) (list []Document) {
	roots, line, message := yamltree.Load(t.Data)
	if message != "" {
		j.Wrong(t.Name, line, "%s", message)
	}
	for _, root := range roots {
		list = append(list, j.document(t.Name, root))
	}
	return list
}

func (j *Job) document(file string, root *yaml.Node) Document {
	wrong := func(n *yaml.Node, format string, args ...any) { j.wrongAt(file, n.Line, n.Column, format, args...) }
	return Document{j, yamltree.Reader{Budget: &j.budget, Wrong: wrong}, file, root}
}

// Wrong reports a mistake at a node.
func (d *Document) Wrong(n *yaml.Node, format string, args ...any) {
	d.Reader.Wrong(n, format, args...)
}

// Lacks lists a setting without an equal, at a node.
func (d *Document) Lacks(n *yaml.Node, instead, format string, args ...any) {
	d.Job.Lacks(d.File, n.Line, instead, format, args...)
}

// Read reads a mapping. Others is called with fields that are not in the table; nil lists them.
func (d *Document) Read(n *yaml.Node, what string, table Fields, others func(key, value *yaml.Node)) {
	if others == nil {
		others = func(key, _ *yaml.Node) {
			d.Lacks(key, "see whether limits depend on it", "%s has the field %.80q, which is not imported", what,
				key.Value)
		}
	}
	d.Reader.Read(n, what, table, others)
}

// IsNull reports whether a node is a null or an empty value.
func IsNull(n *yaml.Node) bool { return yamltree.IsNull(n) }

// Origin is the description of a rule: where it comes from.
func (d *Document) Origin(n *yaml.Node) string { return Origin(d.File, n.Line) }

// Origin is the description of a rule: where it comes from.
func Origin(file string, line int) string {
	return comment(fmt.Sprintf("%.900s:%d", file, line))
}
