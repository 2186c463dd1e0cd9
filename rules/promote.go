package rules

import (
	"bytes"
	"slices"

	"go.yaml.in/yaml/v4"
)

// PromoteText is the YAML of one rule with the fields of its candidate in the place of the
// rule's, and without candidate. Comments stay, but for those of what is gone. Only that the
// text is YAML is checked, as Parse does, and not what the rule says; the error is an *Error,
// and name is what it calls the text.
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

// take takes a field out of a mapping; nil: it has none.
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

// put gives a mapping a field, in the place of the one that it has.
func put(mapping, name, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name.Value {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, name, value)
}
