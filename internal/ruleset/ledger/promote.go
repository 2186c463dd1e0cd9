package ledger

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Promote makes the candidate of a rule its limit, with the candidate's algorithm and key if it has
// its own. A disabled rule stays disabled. The error wraps ErrNoRule if the ledger does not have the
// rule, and is a *weir.InputError if the rule has no candidate.
func (l *Ledger) Promote(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // the author has read another candidate
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	text, err := Promoted(name, d.YAML)
	if err == nil {
		err = l.fits(ctx, name, text)
	}
	if err != nil {
		return 0, err
	}
	return l.commit(ctx, changeOf(name, "promote", by, text, d.Enabled), seen)
}

// Promoted returns the YAML of a rule with its candidate in place of its limit. Everything else,
// comments too, stays as it is; blanks may change.
func Promoted(name, text string) (string, error) {
	spec, err := ParseDocument(name, text)
	if err != nil {
		return "", err
	}
	if len(spec.Candidate.Limit) == 0 {
		return "", &weir.InputError{Field: "rule", Given: name,
			Allowed: "one that has a candidate, which becomes its limit"}
	}
	promoted, err := withCandidate(text)
	if err != nil || !becomes(name, &spec, promoted) {
		return "", &weir.InputError{Field: "the YAML of rule " + name,
			Given:   "a form in which its candidate cannot be moved by itself",
			Allowed: "plain YAML; or write the rule anew, with the candidate's fields: weir rules set " + name}
	}
	return promoted, nil
}

// becomes reports whether a text is the rule with its candidate promoted. It parses the result,
// because a limit must not depend on a YAML library's round trip.
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

// withCandidate is the YAML of a rule after the fields of its candidate replaced the rule's. Comments stay, except the
// comments of removed fields.
func withCandidate(text string) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return "", err
	}
	if len(document.Content) == 0 {
		return "", errors.New("no document")
	}
	rule := document.Content[0]
	at := indexOf(rule, "candidate")
	if rule.Kind != yaml.MappingNode || at < 0 {
		return "", errors.New("no mapping with a candidate")
	}
	fields := rule.Content[at+1].Content
	rule.Content = slices.Delete(rule.Content, at, at+2)
	for i := 0; i+1 < len(fields); i += 2 {
		if at := indexOf(rule, fields[i].Value); at >= 0 {
			rule.Content[at+1] = fields[i+1]
		} else {
			rule.Content = append(rule.Content, fields[i], fields[i+1])
		}
	}
	return dump(rule)
}

// indexOf is the index of a field's name in a mapping, or −1.
func indexOf(mapping *yaml.Node, name string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return i
		}
	}
	return -1
}
