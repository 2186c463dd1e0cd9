package rules

import (
	"bytes"
	"slices"

	"go.yaml.in/yaml/v4"
)

// PromoteText returns the YAML of one rule in which the fields of its candidate replace the rule's. Comments
// stay, except those of removed fields. Only the YAML is checked, as Parse does, not the rule; the error is an
// *Error, in which name is the text's name.
func PromoteText(name string, text []byte) ([]byte, error) {
	r := &report{file: name, marks: make(map[place]mark)}
	if !r.readable(text) {
		return nil, r.err()
	}
	d := &decoder{report: r}
	root := d.document(text, nil)
	if root != nil {
		d.refuse(root)
		if root.Kind != yaml.MappingNode {
			d.wrong(root, "this is no rule; allowed: fields, such as name: login")
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if candidate := take(root, "candidate"); candidate != nil {
		for i := 0; i+1 < len(candidate.Content); i += 2 {
			put(root, candidate.Content[i], candidate.Content[i+1])
		}
	}
	var out bytes.Buffer
	dumper, err := yaml.NewDumper(&out, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err == nil {
		err = dumper.Dump(root)
	}
	if err == nil {
		err = dumper.Close()
	}
	if err != nil {
		d.wrong(root, "it cannot be written as YAML again: %v", err)
	}
	return out.Bytes(), r.err()
}

// take removes a field from a mapping; nil if there is none.
func take(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			value := mapping.Content[i+1]
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return value
		}
	}
	return nil
}

// put sets a field of a mapping.
func put(mapping, name, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name.Value {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, name, value)
}
