// Package ledger keeps rules as the YAML that somebody wrote, each with the revision that
// made it what it is, exceptions that end by themselves, and the history of them all: who
// changed what, when and why. What is done to keys stands in that history too.
//
// Whoever changes something names the revision that he has seen. If it is another by now,
// nothing is changed: two people never overwrite each other unawares.
//
// A [Ledger] is the rules of this; where its entries lie is a [Backend]: [Memory] is the one of
// a process, with or without a file, and package redissource has the one in Redis.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// A Backend is where the entries of a ledger lie. It is safe for concurrent use.
type Backend interface {
	// Read is all entries at one moment.
	Read(ctx context.Context) (*Snapshot, error)
	// Get is the entry of a name; the error wraps ErrNoRule where there is none.
	Get(ctx context.Context, name string) (Change, error)
	// Commit makes a change if the entry is at the revision that was seen, and writes it into
	// the history. The error is a *ConflictError if it is at another.
	Commit(ctx context.Context, d Draft) (revision int64, err error)
	// Page is some of the changes of the history from a revision (0: the last) downwards to
	// another, the newest first. more says that the oldest of them was not reached yet.
	Page(ctx context.Context, from, to int64) (list []Change, more bool, err error)
}

// A Restorer is a Backend that can lose changes, such as one in a Redis that evicts keys or fails over
// to a replica without the newest.
type Restorer interface {
	// Restore writes back what this process has read before the loss, each entry as a change of
	// its own, and has the book take changes again.
	Restore(ctx context.Context, how Restoration) (*Restored, error)
}

// A Restoration says how to restore a ledger.
type Restoration struct {
	By     Author
	Forget bool // write nothing back: what the book has now is all there is
	DryRun bool // only tell
}

// Restored is what was written back.
type Restored struct {
	Names    []string // of rules, and of exceptions with exception: before their IDs
	Revision int64    // of the ledger afterwards
	Lost     int64    // the last revision that was lost
}

// Snapshot are what a ledger holds at one moment.
type Snapshot struct {
	Revision int64     // 0: nothing was ever written
	Now      time.Time // by the ledger's clock
	Entries  []Change  // in no order
}

// ErrNoRule is (wrapped) the answer to who asks for what the ledger does not have.
var ErrNoRule = errors.New("the ledger does not have it")

// ErrForeign is (wrapped) why a ledger is not used that nobody has asked for by name.
var ErrForeign = errors.New("there is no ledger that this server may use")

// A ConflictError says that a rule is not at the revision that its author has seen: somebody
// else has changed it since. Nothing was changed.
type ConflictError struct {
	Name string
	Seen int64 // 0: there was none
	Is   int64 // 0: there is none
}

// Error says what to do.
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

// A LostError says that a ledger has lost changes that were read before: its keys were deleted or
// evicted, or a replica without the newest took over. Nothing was changed. The rules that were
// read before stay in force.
type LostError struct {
	Ledger string
	Seen   int64 // the last revision that is known to be lost
	Is     int64 // what the ledger is at; 0: nothing is there, or that was not read
}

// Error says what to do.
func (e *LostError) Error() string {
	is := ""
	if e.Is > 0 {
		is = fmt.Sprintf(" (it is at %d)", e.Is)
	}
	return fmt.Sprintf("ledger: %s has lost changes up to revision %d%s; servers that have read them keep them in force. "+
		"Write them back from such a server with weir rules restore, or give them up with weir rules restore --forget", e.Ledger, e.Seen, is)
}

// Restore writes back what a ledger has lost, or gives it up.
func (l *Ledger) Restore(ctx context.Context, how Restoration) (*Restored, error) {
	if err := how.By.check(); err != nil {
		return nil, err
	}
	backend, ok := l.backend.(Restorer)
	if !ok {
		return nil, &weir.InputError{Field: "ledger", Given: "of this process", Allowed: "one in Redis: no other loses changes"}
	}
	return backend.Restore(ctx, how)
}

// A Ledger is rules and exceptions that people change while a server runs. Methods are safe
// for concurrent use, by many processes too.
//
// A change whose error leaves open whether it was made (the connection was lost) can be
// repeated as it is: if it was made, the repeat is a *ConflictError.
type Ledger struct{ backend Backend }

// New makes a ledger of a book.
func New(backend Backend) *Ledger { return &Ledger{backend} }

// Get is a rule. The error wraps ErrNoRule where there is none.
func (l *Ledger) Get(ctx context.Context, name string) (Document, error) {
	if isException(name) {
		return Document{}, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	c, err := l.backend.Get(ctx, name)
	return c.Document, err
}

// List is all rules by their names, and the revision of the ledger.
func (l *Ledger) List(ctx context.Context) (list []Document, revision int64, err error) {
	snapshot, err := l.backend.Read(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range snapshot.Entries {
		if c.Exception == nil {
			list = append(list, c.Document)
		}
	}
	slices.SortFunc(list, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	return list, snapshot.Revision, nil
}

// Set makes a rule what the YAML says. It is checked first, by itself and beside the others
// that are enabled: the error is then a *rules.Error or a *weir.InputError. A new rule
// (seen is 0) is enabled; one that was disabled stays so. It returns the new revision.
func (l *Ledger) Set(ctx context.Context, name, yaml string, seen int64, by Author) (revision int64, err error) {
	if i := strings.IndexFunc(yaml, isControl); i >= 0 {
		return 0, &weir.InputError{Field: "YAML", Given: fmt.Sprintf("a text with %+.4q in it", yaml[i:]),
			Allowed: `no control characters but tabs and ends of lines; in double quotes write \u009b`}
	}
	list, _, err := l.List(ctx)
	if err != nil {
		return 0, err
	}
	enabled := true
	if i := slices.IndexFunc(list, func(d Document) bool { return d.Name == name }); i >= 0 {
		enabled = list[i].Enabled
	}
	if err := fits(list, name, yaml); err != nil {
		return 0, err
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by, payload: payload{YAML: yaml, Enabled: enabled, What: "set"}})
}

// isControl reports what would do something to a terminal that shows it.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }

// fits checks a rule, and whether all can stand together. Where they could not without it,
// either, that is not its fault.
func fits(list []Document, name, yaml string) error {
	spec, err := ParseDocument(name, yaml)
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

// Delete takes a rule out. Its history stays, and Rollback brings it back.
func (l *Ledger) Delete(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	if isException(name) {
		return 0, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by, payload: payload{Deleted: true, What: "delete"}})
}

// Enable puts a rule in force that is in the ledger. It is checked as by Set: others may
// have been set since that it cannot stand beside.
func (l *Ledger) Enable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.setEnabled(ctx, name, seen, payload{Enabled: true, What: "enable"}, by)
}

// Mask takes a rule out of force that the ledger does not have: a file's, a URL's or a hash's. What
// it leaves in the ledger has no YAML; Enable takes that away again.
func (l *Ledger) Mask(ctx context.Context, name string, by Author) (revision int64, err error) {
	if _, err := weir.NewLimit(name, weir.PerSecond(1)); err != nil {
		return 0, err
	}
	return l.commit(ctx, Draft{Name: name, by: by, payload: payload{What: "disable"}})
}

// Disable takes a rule out of force, and leaves it in the ledger. One of the same name from
// elsewhere is not in force either.
func (l *Ledger) Disable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.setEnabled(ctx, name, seen, payload{What: "disable"}, by)
}

func (l *Ledger) setEnabled(ctx context.Context, name string, seen int64, p payload, by Author) (revision int64, err error) {
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // what is written back is what was seen
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	if p.Enabled && d.YAML == "" { // the rule is elsewhere
		p.Deleted = true
		return l.commit(ctx, Draft{Name: name, Seen: seen, by: by, payload: p})
	}
	if p.YAML = d.YAML; p.Enabled {
		list, _, err := l.List(ctx)
		if err == nil {
			err = fits(list, name, d.YAML)
		}
		if err != nil {
			return 0, err
		}
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by, payload: p})
}

// Rollback makes a rule what it was at a revision of its history, also deleted or disabled.
func (l *Ledger) Rollback(ctx context.Context, name string, to, seen int64, by Author) (revision int64, err error) {
	then, err := l.at(ctx, name, to)
	if err != nil {
		return 0, err
	}
	if !then.Deleted && then.YAML != "" {
		list, _, err := l.List(ctx)
		if err == nil {
			err = fits(list, name, then.YAML)
		}
		if err != nil {
			return 0, err
		}
	}
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by,
		payload: payload{YAML: then.YAML, Enabled: then.Enabled, Deleted: then.Deleted, What: fmt.Sprint("rollback to ", to)}})
}

// At is what a rule was at a revision of its history.
func (l *Ledger) At(ctx context.Context, name string, revision int64) (Change, error) {
	return l.at(ctx, name, revision)
}

func (l *Ledger) at(ctx context.Context, name string, revision int64) (Change, error) {
	if revision > 0 && !isException(name) && !isKey(name) {
		page, _, err := l.backend.Page(ctx, revision, revision)
		if err != nil {
			return Change{}, err
		}
		if len(page) == 1 && page[0].Name == name {
			return page[0], nil
		}
	}
	return Change{}, fmt.Errorf("ledger: rule %.80q at revision %d: %w, or no longer: that was a change of another rule, or is forgotten", name, revision, ErrNoRule)
}

// commit makes a change, if the entry is at the revision that was seen.
func (l *Ledger) commit(ctx context.Context, d Draft) (revision int64, err error) {
	if err := d.by.check(); err != nil {
		return 0, err
	}
	if d.Seen < 0 {
		return 0, &weir.InputError{Field: "revision seen", Given: d.Seen, Allowed: "that of the rule, or 0 for a new one"}
	}
	if d.Deleted && d.Seen == 0 { // there is nothing to delete, or it was not seen
		c, err := l.backend.Get(ctx, d.Name)
		if err != nil {
			return 0, err
		}
		return 0, &ConflictError{Name: d.Name, Is: c.Revision}
	}
	return l.backend.Commit(ctx, d)
}

// History is the last changes of a rule and what was done to its keys, those of an exception,
// or with "" all, the newest first: at most most, from 1 to 1000.
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
			}
		}
	}
	addDiffs(list, oldest == 1)
	return list[:min(len(list), most)], nil
}

// compare says what each change did to its rule. Of all that ever was, the first change of
// a rule made it.
func addDiffs(list []Change, ever bool) {
	before := make(map[string]*Change)
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if old := before[c.Name]; c.Exception == nil && c.Key == nil && (old != nil || ever) {
			c.Diff = source.Diff(fileOf(old), fileOf(c))
		}
		before[c.Name] = c
	}
}

// fileOf is the rule of a change, or none.
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
