package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Maxima of a Ledger.
const (
	MaxDocument   = 64 << 10 // bytes of a rule's YAML
	MaxWho        = 256      // bytes of Author.Who
	MaxWhy        = 1024     // bytes of Author.Why
	MaxKept       = 10_000   // minimum length of the history before old changes are dropped
	MaxBytes      = 64 << 20 // of all rules
	MaxExceptions = 500      // at one time
	MaxHistory    = 1000     // changes that History returns
	HistoryPage   = 200      // changes that Backend.Page returns
)

// An Author is the author of a change, and the reason. Both are recorded without a check.
type Author struct {
	Who string `json:"who"` // required
	Why string `json:"why,omitempty"`
}

func (a *Author) check() error {
	switch {
	case a.Who == "" || len(a.Who) > MaxWho:
		return &weir.InputError{Field: "who", Given: a.Who[:min(len(a.Who), 80)],
			Allowed: fmt.Sprintf("1 to %d bytes", MaxWho)}
	case len(a.Why) > MaxWhy:
		return &weir.InputError{Field: "bytes of why", Given: len(a.Why), Allowed: fmt.Sprintf("at most %d", MaxWhy)}
	}
	return nil
}

// A Document is the YAML of a rule.
type Document struct {
	Name     string `json:"-"`
	YAML     string `json:"yaml"`    // one rule, as in the list of a file of rules; "": see Mask
	Enabled  bool   `json:"enabled"` // otherwise no rule of this name is in force, from any source
	Revision int64  `json:"-"`       // of the last change
	Author
	When    time.Time `json:"-"` // by the ledger's clock
	Reverts time.Time `json:"-"` // by the ledger's clock, unless the change is confirmed; zero: it stays
}

// A Change is a change of a rule or an exception, or an operation on a key. It is stored as JSON, after its revision
// and the microseconds since 1970 of its time, with a space after each.
type Change struct {
	Document
	What      string           `json:"what"` // such as set, or rollback to REVISION; of a key Note's
	Deleted   bool             `json:"deleted,omitempty"`
	Exception *Exception       `json:"exception,omitempty"` // non-nil: of this exception, and not of a rule
	Key       *Key             `json:"key,omitempty"`       // non-nil: on this key; it changed no rule
	Over      *Original        `json:"over,omitempty"`      // non-nil: the rule was put before this one
	Trial     *Trial           `json:"trial,omitempty"`     // non-nil: it reverts unless it is confirmed
	Diff      []ruleset.Change `json:"-"`                   // to the rule before, if the history still has it
}

// changeOf is a change of an entry to be made.
func changeOf(name, what string, by Author, yaml string, enabled bool) Change {
	return Change{What: what, Document: Document{Name: name, Author: by, YAML: yaml, Enabled: enabled}}
}

// An Original is a rule of another source, such as a file, that a rule of the ledger goes before. The history has it as
// revision 0 of the rule.
type Original struct {
	From string `json:"from"` // the name of the source
	YAML string `json:"yaml"`
}

// Text returns the text that a Backend stores of a change after its revision and its time.
func (c *Change) Text() string {
	text, err := json.Marshal(c)
	if err != nil { // plain data always marshals
		panic(err)
	}
	return string(text)
}

var errForeign = errors.New("it is not what a Ledger writes; a newer weir may have written it")

// Decode parses a stored entry.
func Decode(name, value string) (c Change, err error) {
	revision, rest, _ := strings.Cut(value, " ")
	micros, text, _ := strings.Cut(rest, " ")
	number, errNumber := strconv.ParseInt(revision, 10, 64)
	at, errAt := strconv.ParseInt(micros, 10, 64)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if errNumber != nil || errAt != nil || number < 1 || d.Decode(&c) != nil || d.More() ||
		isException(name) != (c.Exception != nil) || isKey(name) != (c.Key != nil) {
		return Change{}, fmt.Errorf("rule %.80q: %w", name, errForeign)
	}
	c.Name, c.Revision, c.When = name, number, time.UnixMicro(at).UTC()
	if c.Exception != nil && !c.Exception.decoded(&c.Document) || c.Trial != nil && !c.Trial.decoded(&c.Document) {
		return Change{}, fmt.Errorf("rule %.80q: %w", name, errForeign)
	}
	return c, nil
}

// RevisionOf returns the revision of a stored entry; 0 if there is no entry.
func RevisionOf(value string) int64 {
	text, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Again is the text that a Backend stores of an entry, as a new change that an author makes to restore it. An exception
// lasts as long as it had left at now, by the ledger's clock. It is not ok where that is over, or where no ledger wrote
// the value.
func Again(name, value string, now time.Time, by Author) (text string, ok bool) {
	c, err := Decode(name, value)
	if err != nil || c.Deleted || c.Key != nil {
		return "", false
	}
	c.What, c.Who, c.Why, c.Over = "restore", by.Who, cmp.Or(by.Why, c.Why), nil
	if t := c.Trial; t != nil && t.End.Sub(now) >= LeastFor {
		t.For = min(t.End.Sub(now), t.For)
	} else if t != nil { // its time is over
		c.revert()
	}
	if e := c.Exception; e != nil {
		e.For = min(e.Until.Sub(now), e.For)
	}
	if c.Deleted || c.Exception != nil && c.Exception.For < LeastFor {
		return "", false
	}
	return c.Text(), true
}

// ParseDocument parses the YAML of one rule, which must have this name. The error is a *rules.Error
// or a *weir.InputError.
func ParseDocument(name, text string) (rules.Spec, error) {
	if len(text) > MaxDocument {
		return rules.Spec{}, &weir.InputError{Field: "bytes of YAML", Given: len(text),
			Allowed: fmt.Sprint("at most ", MaxDocument)}
	}
	const before = "rules:\n- "
	file, err := rules.Parse(name, []byte(before+strings.ReplaceAll(text, "\n", "\n  ")))
	if err != nil {
		return rules.Spec{}, asWritten(err)
	}
	// Text that escapes from the list item has more than one rule.
	alone := rules.File{Name: file.Name, Rules: file.Rules}
	if len(file.Rules) != 1 || !reflect.DeepEqual(*file, alone) {
		return rules.Spec{}, &weir.InputError{Field: "what the YAML says", Given: "more than a rule",
			Allowed: "the fields of one rule, such as name: login"}
	}
	if spec := file.Rules[0]; spec.Name == name {
		return spec, nil
	}
	return rules.Spec{}, &weir.InputError{Field: "name", Given: file.Rules[0].Name,
		Allowed: "the name under which it is kept, " + name}
}

// asWritten corrects positions of problems: the author did not write the list.
func asWritten(err error) error {
	var list *rules.Error
	if !errors.As(err, &list) {
		return err
	}
	for i := range list.Problems {
		p := &list.Problems[i]
		if p.Line > 0 {
			p.Line, p.Column = max(1, p.Line-1), max(1, p.Column-2)
			p.Source = strings.TrimPrefix(strings.TrimPrefix(p.Source, "- "), "  ")
		}
		p.Field = strings.TrimPrefix(p.Field, "rules[0].")
	}
	return list
}
