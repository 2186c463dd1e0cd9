package ledger

import (
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
	Who string // required
	Why string
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
	Name     string
	YAML     string // one rule, as in the list of a file of rules; "": see Mask
	Enabled  bool   // otherwise no rule of this name is in force, from any source
	Revision int64  // of the last change
	Author   Author
	When     time.Time // by the ledger's clock
	Reverts  time.Time // by the ledger's clock, unless the change is confirmed; zero: it stays
}

// A Change is a change of a rule or an exception, or an operation on a key.
type Change struct {
	Document
	What      string           // set, delete, enable, disable, promote, rollback to REVISION; of a key Note's
	Deleted   bool             // the rule was deleted
	Exception *Exception       // non-nil: the change is of this exception, and not of a rule
	Key       *Key             // non-nil: the operation is on this key, and changed no rule
	Diff      []ruleset.Change // to the rule before, if the history still has it
	Over      *Original        // non-nil: the rule was put before this one
	Trial     *Trial           // non-nil: it reverts unless it is confirmed
}

// An Original is a rule of another source, such as a file, that a rule of the ledger goes before. The history has it as
// revision 0 of the rule.
type Original struct {
	From string `json:"from"` // the name of the source
	YAML string `json:"yaml"`
}

// A Draft is a change to be made.
type Draft struct {
	Name string
	Seen int64 // the required current revision; 0: none
	payload
	by Author
}

// payload is a stored document, after its revision and its time in microseconds.
type payload struct {
	YAML      string         `json:"yaml"`
	Enabled   bool           `json:"enabled"`
	Deleted   bool           `json:"deleted,omitempty"`
	What      string         `json:"what"`
	Who       string         `json:"who"`
	Why       string         `json:"why,omitempty"`
	Exception *exceptionText `json:"exception,omitempty"`
	Key       *Key           `json:"key,omitempty"`
	Over      *Original      `json:"over,omitempty"`
	Trial     *trialText     `json:"trial,omitempty"`
}

// Text returns the draft as a Backend stores it: after the revision and the microseconds since 1970
// of the change, with a space after each.
func (d *Draft) Text() string {
	d.Who, d.Why = d.by.Who, d.by.Why
	text, err := json.Marshal(&d.payload)
	if err != nil { // plain data always marshals
		panic(err)
	}
	return string(text)
}

var errForeign = errors.New("it is not what a Ledger writes; a newer weir may have written it")

// Decode parses a stored entry.
func Decode(name, value string) (Change, error) {
	revision, rest, _ := strings.Cut(value, " ")
	micros, text, _ := strings.Cut(rest, " ")
	number, errNumber := strconv.ParseInt(revision, 10, 64)
	at, errAt := strconv.ParseInt(micros, 10, 64)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var p payload
	if errNumber != nil || errAt != nil || number < 1 || d.Decode(&p) != nil || d.More() ||
		isException(name) != (p.Exception != nil) || isKey(name) != (p.Key != nil) {
		return Change{}, fmt.Errorf("rule %.80q: %w", name, errForeign)
	}
	c := Change{What: p.What, Deleted: p.Deleted, Key: p.Key, Over: p.Over,
		Document: Document{Name: name, YAML: p.YAML, Enabled: p.Enabled,
			Revision: number, Author: Author{p.Who, p.Why}, When: time.UnixMicro(at).UTC()}}
	if p.Exception != nil {
		e, ok := p.Exception.exception(&c.Document)
		if !ok {
			return Change{}, fmt.Errorf("exception %.80q: %w", name, errForeign)
		}
		c.Exception = &e
	}
	if p.Trial != nil {
		t, ok := p.Trial.trial(&c.Document)
		if !ok {
			return Change{}, fmt.Errorf("rule %.80q: %w", name, errForeign)
		}
		c.Trial, c.Reverts = &t, t.End
	}
	return c, nil
}

// RevisionOf returns the revision of a stored entry; 0 if there is none.
func RevisionOf(value string) int64 {
	text, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Again is what a Backend keeps of an entry, as a new change by somebody that makes it what it was:
// after the revision and the time. An exception lasts as long as it had left at now, by the
// ledger's clock. It is not ok where that is over, or where no ledger wrote the value.
func Again(name, value string, now time.Time, by Author) (text string, ok bool) {
	c, err := Decode(name, value)
	if err != nil || c.Deleted || c.Key != nil {
		return "", false
	}
	if by.Why == "" {
		by.Why = c.Author.Why
	}
	d := Draft{Name: name, by: by, payload: payload{YAML: c.YAML, Enabled: c.Enabled}}
	if c.Trial != nil && !d.tryOn(&c, now) {
		return "", false
	}
	d.What = "restore"
	if e := c.Exception; e != nil {
		d.Exception = textOf(e)
		left := e.Until.Sub(now)
		d.Exception.For = min(left, e.For).Microseconds()
		if left < LeastFor {
			return "", false
		}
	}
	return d.Text(), true
}

// tryOn lets a draft of a change revert when the change would, or be what it reverts to. It is not ok where that is no
// rule.
func (d *Draft) tryOn(c *Change, now time.Time) (ok bool) {
	left := c.Trial.End.Sub(now)
	if left < LeastFor {
		d.payload = c.reverted()
		return !d.Deleted
	}
	before := c.Trial.before
	before.For = min(left, c.Trial.For).Microseconds()
	d.Trial = &before
	return true
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
