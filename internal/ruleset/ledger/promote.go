package ledger

import (
	"context"
	"reflect"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Promote makes the candidate of a rule its limit, with the candidate's algorithm and key if it has
// its own. A disabled rule stays disabled. The error wraps ErrNoRule if the ledger does not have the
// rule, and is a *weir.InputError if the rule has no candidate.
func (l *Ledger) Promote(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	list, _, err := l.List(ctx)
	if err != nil {
		return 0, err
	}
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // the author has read another candidate
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	text, err := Promoted(name, d.YAML)
	if err == nil {
		err = fits(list, name, text)
	}
	if err != nil {
		return 0, err
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by,
		payload: payload{YAML: text, Enabled: d.Enabled, What: "promote"}})
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
	promoted, err := rules.PromoteText(name, []byte(text))
	if err != nil || !becomes(name, &spec, string(promoted)) {
		return "", &weir.InputError{Field: "the YAML of rule " + name,
			Given:   "a form in which its candidate cannot be moved by itself",
			Allowed: "plain YAML; or write the rule anew, with the candidate's fields: weir rules set " + name}
	}
	return string(promoted), nil
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
