// Package ledger stores rules as YAML, each with a revision, temporary exceptions, and the history
// of both: author, time and reason of each change. Operations on keys, such as resets, are in the
// history too.
//
// A change names the revision that its author has read. If the current one differs, the change is refused, so that two
// people never overwrite each other's changes.
//
// A [Ledger] has the logic, a [Backend] the storage: [Memory] for one process, with or without a
// file, or Redis in package redissource.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A Backend stores the entries of a ledger. It is safe for concurrent use.
type Backend interface {
	// Read returns all entries at one moment.
	Read(ctx context.Context) (*Snapshot, error)
	// Get returns the entry of a name. The error wraps ErrNoRule if there is no entry.
	Get(ctx context.Context, name string) (Change, error)
	// Commit makes a change if the entry is at the revision seen (0: there is no entry), and appends it to the history.
	// The error is a *ConflictError if it is at another.
	Commit(ctx context.Context, c Change, seen int64) (revision int64, err error)
	// Page returns some changes of the history from a revision (0: the last) down to another, the
	// newest first. more means that the oldest of them was not reached yet.
	Page(ctx context.Context, from, to int64) (list []Change, more bool, err error)
}

// A Restorer is a Backend that can lose changes, such as one in a Redis that evicts keys or fails
// over to a replica without the newest.
type Restorer interface {
	// Restore writes back the entries that this process read before the loss, each as a new change,
	// and makes the backend accept changes again.
	Restore(ctx context.Context, how Restoration) (*Restored, error)
}

// A Restoration says how to restore a ledger.
type Restoration struct {
	By     Author
	Forget bool // write nothing back: the backend's current entries are all there are
	DryRun bool // only report
}

// Restored lists the entries that were written back.
type Restored struct {
	Names    []string // of rules, and of exceptions: exception: and the ID
	Revision int64    // of the ledger afterwards
	Lost     int64    // the last revision that was lost
}

// A Snapshot has all entries of a ledger at one moment.
type Snapshot struct {
	Revision int64             // 0: nothing was ever written
	Now      time.Time         // by the ledger's clock
	Read     time.Time         // by this process' clock
	Values   map[string]string // by name, as Decode reads them
}

// entries returns all entries by name.
func (s *Snapshot) entries() (list []Change, err error) {
	for _, name := range sortedNames(s.Values) {
		c, err := Decode(name, s.Values[name])
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

func sortedNames(values map[string]string) []string { return slices.Sorted(maps.Keys(values)) }

// read returns all entries by name.
func (l *Ledger) read(ctx context.Context) (*Snapshot, []Change, error) {
	snapshot, err := l.backend.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := snapshot.entries()
	return snapshot, list, err
}

// ErrNoRule is (wrapped) the error for a name or revision that is not in the ledger.
var ErrNoRule = errors.New("the ledger does not have it")

// ErrForeign is (wrapped) the reason for not using a ledger that no option names.
var ErrForeign = errors.New("there is no ledger that this server may use")

// A ConflictError means that a rule is not at the revision that the author has read: another author changed it since.
// The refused change has no effect.
type ConflictError struct {
	Name string
	Seen int64 // 0: there was none
	Is   int64 // 0: there is none
}

// Error returns a sentence that says what to do.
func (e *ConflictError) Error() string {
	is := fmt.Sprintf("is at revision %d", e.Is)
	if e.Is == 0 {
		is = "is not there"
	}
	seen := fmt.Sprintf("not at %d", e.Seen)
	if e.Seen == 0 {
		seen = "but was to be a new one"
	}
	what, name := "rule", e.Name
	if isException(name) {
		what, name = "exception", strings.TrimPrefix(name, exceptionName)
	}
	return fmt.Sprintf("ledger: %s %q %s, %s: read it again, and decide anew", what, name, is, seen)
}

// A LostError means that a ledger has lost changes that were read before: its keys were deleted or evicted, or a
// replica without the newest took over. The change that met the loss had no effect. The rules that were read before
// stay in force.
type LostError struct {
	Ledger string
	Seen   int64 // the last revision that is known to be lost
	Is     int64 // the current revision; 0: there is none, or it was not read
}

// Error returns a sentence that says what to do.
func (e *LostError) Error() string {
	is := ""
	if e.Is > 0 {
		is = fmt.Sprintf(" (it is at %d)", e.Is)
	}
	return fmt.Sprintf("ledger: %s has lost changes up to revision %d%s; "+
		"servers that have read them keep them in force. Write them back from such a server "+
		"with weir rules restore, or give them up with weir rules restore --forget", e.Ledger, e.Seen, is)
}

// Restore writes back lost entries, or gives them up.
func (l *Ledger) Restore(ctx context.Context, how Restoration) (*Restored, error) {
	if err := how.By.check(); err != nil {
		return nil, err
	}
	backend, ok := l.backend.(Restorer)
	if !ok {
		return nil, &weir.InputError{Field: "ledger", Given: "of this process",
			Allowed: "one in Redis: no other loses changes"}
	}
	return backend.Restore(ctx, how)
}

// A Ledger has rules and exceptions that operators change while a server runs. Its methods are safe
// for concurrent use, by several processes too.
//
// After an error that leaves the outcome open (the connection was lost), repeat the change: if it
// was made, the repetition returns a *ConflictError.
type Ledger struct {
	backend Backend

	// Reverted is called, if it is set before the first use, with each change that this process takes back because it
	// was not confirmed: on one of the processes that have the ledger.
	Reverted func(rule string, revision int64, by Author)
}

// New makes a ledger with a backend.
func New(backend Backend) *Ledger {
	l := &Ledger{backend: backend}
	if m, ok := backend.(*Memory); ok {
		m.ledger = l
	}
	return l
}

// Get returns a rule. The error wraps ErrNoRule if there is no such rule.
func (l *Ledger) Get(ctx context.Context, name string) (Document, error) {
	if isException(name) {
		return Document{}, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	c, err := l.backend.Get(ctx, name)
	return c.Document, err
}

// List returns all rules by name, and the revision of the ledger.
func (l *Ledger) List(ctx context.Context) (list []Document, revision int64, err error) {
	snapshot, entries, err := l.read(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range entries {
		if c.Exception == nil {
			list = append(list, c.Document)
		}
	}
	return list, snapshot.Revision, nil
}

// Set creates or replaces a rule. It is checked first, alone and together with the other enabled rules: the error is
// then a *rules.Error or a *weir.InputError. A new rule (seen is 0) is enabled; a disabled one stays disabled. Set
// returns the new revision.
func (l *Ledger) Set(ctx context.Context, name, yaml string, seen int64, by Author) (revision int64, err error) {
	return l.SetWith(ctx, name, yaml, seen, by, Extra{})
}

// An Extra is what only some changes have.
type Extra struct {
	Over    *Original     // what the rule goes before, if it is new; nil: nothing
	Reverts time.Duration // unless it is confirmed, the rule is then what it was; 0: it stays
}

// SetWith is Set with an Extra.
func (l *Ledger) SetWith(ctx context.Context, name, yaml string, seen int64, by Author, with Extra) (
	revision int64, err error) {
	over := with.Over
	if seen != 0 || over != nil && len(over.YAML) > MaxDocument {
		over = nil
	}
	if i := strings.IndexFunc(yaml, isControl); i >= 0 {
		return 0, &weir.InputError{Field: "YAML", Given: fmt.Sprintf("a text with %+.4q in it", yaml[i:]),
			Allowed: `no control characters but tabs and ends of lines; in double quotes write \u009b`}
	}
	if err := l.fits(ctx, name, yaml); err != nil {
		return 0, err
	}
	var held *Change
	switch c, err := l.backend.Get(ctx, name); {
	case err == nil:
		held = &c
	case !errors.Is(err, ErrNoRule):
		return 0, err
	}
	c := changeOf(name, "set", by, yaml, held == nil || held.Enabled)
	c.Over = over
	if with.Reverts != 0 {
		if err := c.revertsTo(held, seen, with.Reverts); err != nil {
			return 0, err
		}
	}
	return l.commit(ctx, c, seen)
}

// isControl reports characters that could control a terminal.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }

// fits checks a rule, alone and together with the other enabled rules. If these do not compile without it either, the
// rule is accepted.
func (l *Ledger) fits(ctx context.Context, name, yaml string) error {
	spec, err := ParseDocument(name, yaml)
	if err != nil {
		return err
	}
	list, _, err := l.List(ctx)
	if err != nil {
		return err
	}
	var others rules.File
	for _, d := range list {
		if d.Name == name || !d.Enabled {
			continue
		}
		if other, err := ParseDocument(d.Name, d.YAML); err == nil {
			others.Rules = append(others.Rules, other)
		}
	}
	all := rules.File{Name: name, Rules: append(slices.Clip(others.Rules), spec)}
	if _, err := rules.Compile(&all); err != nil {
		if _, before := rules.Compile(&others); before == nil {
			return err
		}
	}
	return nil
}

// Delete deletes a rule. Its history stays, and Rollback restores it.
func (l *Ledger) Delete(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	if isException(name) {
		return 0, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	c := changeOf(name, "delete", by, "", false)
	c.Deleted = true
	return l.commit(ctx, c, seen)
}

// Enable enables a rule of the ledger. It is checked as by Set, because other rules may have changed
// since.
func (l *Ledger) Enable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.setEnabled(ctx, name, seen, "enable", by)
}

// Mask disables a rule that is not in the ledger, but in a file, URL or hash. It leaves an entry
// without YAML, which Enable deletes.
func (l *Ledger) Mask(ctx context.Context, name string, by Author) (revision int64, err error) {
	if _, err := weir.NewLimit(name, weir.PerSecond(1)); err != nil {
		return 0, err
	}
	return l.commit(ctx, changeOf(name, "disable", by, "", false), 0)
}

// Disable disables a rule, and leaves it in the ledger. A rule of the same name from elsewhere is
// disabled as well.
func (l *Ledger) Disable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.setEnabled(ctx, name, seen, "disable", by)
}

func (l *Ledger) setEnabled(ctx context.Context, name string, seen int64, what string, by Author) (int64, error) {
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // the text to write back is the one that the author has read
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	c := changeOf(name, what, by, d.YAML, what == "enable")
	if c.Enabled && d.YAML == "" { // the rule is in another source
		c.Deleted = true
	} else if c.Enabled {
		if err := l.fits(ctx, name, d.YAML); err != nil {
			return 0, err
		}
	}
	return l.commit(ctx, c, seen)
}

// Rollback restores a rule as of a revision, which may be deleted or disabled.
func (l *Ledger) Rollback(ctx context.Context, name string, to, seen int64, by Author) (revision int64, err error) {
	then, err := l.At(ctx, name, to)
	if err == nil && !then.Deleted && then.YAML != "" {
		err = l.fits(ctx, name, then.YAML)
	}
	if err != nil {
		return 0, err
	}
	c := changeOf(name, fmt.Sprint("rollback to ", to), by, then.YAML, then.Enabled)
	c.Deleted = then.Deleted
	return l.commit(ctx, c, seen)
}

// At returns a rule as of a revision.
func (l *Ledger) At(ctx context.Context, name string, revision int64) (Change, error) {
	if revision > 0 && !isException(name) && !isKey(name) {
		page, _, err := l.backend.Page(ctx, revision, revision)
		if err != nil {
			return Change{}, err
		}
		if len(page) == 1 && page[0].Name == name {
			return page[0], nil
		}
	}
	return Change{}, fmt.Errorf("ledger: rule %.80q at revision %d: %w, or no longer: "+
		"that was a change of another rule, or is forgotten", name, revision, ErrNoRule)
}

// commit makes a change if the entry is at the revision seen.
func (l *Ledger) commit(ctx context.Context, c Change, seen int64) (revision int64, err error) {
	if err := c.Author.check(); err != nil {
		return 0, err
	}
	if seen < 0 {
		return 0, &weir.InputError{Field: "revision seen", Given: seen,
			Allowed: "that of the rule, or 0 for a new one"}
	}
	if c.Deleted && seen == 0 { // there is nothing to delete, or the author has not read it
		held, err := l.backend.Get(ctx, c.Name)
		if err != nil {
			return 0, err
		}
		return 0, &ConflictError{Name: c.Name, Is: held.Revision}
	}
	return l.backend.Commit(ctx, c, seen)
}

// History returns the last changes of a rule and operations on its keys, or of an exception, or with
// "" of all, the newest first: at most most, from 1 to 1000.
func (l *Ledger) History(ctx context.Context, name string, most int) (list []Change, err error) {
	if most < 1 || most > MaxHistory {
		return nil, &weir.InputError{Field: "most changes", Given: most, Allowed: fmt.Sprint("1 to ", MaxHistory)}
	}
	oldest, from := int64(0), int64(0)
	for more := true; more && len(list) <= most; { // one more, to compare with
		var page []Change
		if page, more, err = l.backend.Page(ctx, from, 0); err != nil {
			return nil, err
		}
		for _, c := range page {
			oldest, from = c.Revision, c.Revision-1
			if name == "" || c.Name == name || c.Name == exceptionName+name || c.Name == keyName+name {
				list = append(list, c)
				if c.Over != nil {
					list = append(list, original(&c))
				}
			}
		}
	}
	addDiffs(list, oldest == 1)
	return list[:min(len(list), most)], nil
}

// original is the rule that a change put another one before, as revision 0.
func original(c *Change) Change {
	return Change{What: "before", Document: Document{Name: c.Name, YAML: c.Over.YAML, Enabled: true,
		Author: Author{Who: c.Over.From}, When: c.When}}
}

// addDiffs adds the difference that each change made. ever means that the history is complete: a
// first change then created its rule. After a deletion the original is in force again.
func addDiffs(list []Change, ever bool) {
	before, originals := make(map[string]*Change), make(map[string]*Change)
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		now := c
		switch {
		case c.Revision == 0:
			originals[c.Name] = c
		case c.Exception == nil && c.Key == nil:
			if c.Deleted && originals[c.Name] != nil {
				now = originals[c.Name]
			}
			if old := before[c.Name]; old != nil || ever {
				c.Diff = ruleset.Diff(fileOf(old), fileOf(now))
			}
		}
		before[c.Name] = now
	}
}

// fileOf returns a file with the rule of a change, or without one.
func fileOf(c *Change) *rules.File {
	var file rules.File
	if c == nil || c.Deleted {
		return &file
	}
	if spec, err := ParseDocument(c.Name, c.YAML); err == nil {
		file.Rules = []rules.Spec{spec}
	}
	return &file
}
