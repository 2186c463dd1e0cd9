package ledger

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Promote makes the candidate of a rule its limit, with the candidate's algorithm and key if
// it has its own. A rule that is disabled stays so. The error wraps ErrNoRule where the
// ledger does not have the rule, and is a *weir.InputError where that has no candidate.
func (l *Ledger) Promote(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	list, _, err := l.List(ctx)
	if err != nil {
		return 0, err
	}
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // what is promoted is the candidate that was seen
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	text, err := Promoted(name, d.YAML)
	if err == nil {
		err = fits(list, name, text)
	}
	if err != nil {
		return 0, err
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by, payload: payload{YAML: text, Enabled: d.Enabled, What: "promote"}})
}

// Promoted is the YAML of a rule with its candidate in the place of its limit. All else is as
// its author wrote it, comments too; spaces may be others.
func Promoted(name, text string) (string, error) {
	spec, err := ParseDocument(name, text)
	if err != nil {
		return "", err
	}
	if len(spec.Candidate.Limit) == 0 {
		return "", &weir.InputError{Field: "rule", Given: name, Allowed: "one that has a candidate, which becomes its limit"}
	}
	var document yaml.Node
	if err := yaml.Load([]byte(text), &document); err != nil {
		return "", unfitting(name)
	}
	root := &document
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return "", unfitting(name)
	}
	candidate := take(root, "candidate")
	for i := 0; candidate != nil && i+1 < len(candidate.Content); i += 2 {
		put(root, candidate.Content[i], candidate.Content[i+1])
	}
	var out bytes.Buffer
	dumper, err := yaml.NewDumper(&out, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err == nil {
		err = dumper.Dump(&document)
	}
	if err == nil {
		err = dumper.Close()
	}
	if err != nil || !becomes(name, &spec, out.String()) {
		return "", unfitting(name)
	}
	return out.String(), nil
}

// becomes reports whether a text says of a rule what its candidate makes it. What was
// written back is read again: a limit must not depend on a YAML library's round trip.
func becomes(name string, spec *rules.Spec, text string) bool {
	want, c := *spec, spec.Candidate
	want.Limit, want.Candidate = c.Limit, rules.Candidate{}
	if c.Algorithm != "" {
		want.Algorithm = c.Algorithm
	}
	if len(c.Key) > 0 {
		want.Key = c.Key
	}
	got, err := ParseDocument(name, text)
	return err == nil && reflect.DeepEqual(got, want)
}

func unfitting(name string) error {
	return &weir.InputError{Field: "the YAML of rule " + name, Given: "a form in which its candidate cannot be moved by itself",
		Allowed: fmt.Sprintf("plain YAML; or write the rule anew, with the candidate's fields: weir rules set %s", name)}
}

// take takes a field out of a mapping; nil: it has none.
func take(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			value := mapping.Content[i+1]
			mapping.Content = append(mapping.Content[:i:i], mapping.Content[i+2:]...)
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
