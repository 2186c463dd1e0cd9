package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// A Trial is the end of a change that its author makes for a while: unless the change is confirmed, it is reverted.
// That takes the ledger's clock alone, so that it happens on all nodes and over restarts.
type Trial struct {
	For time.Duration `json:"for"`
	End time.Time     `json:"-"` // by the ledger's clock

	// The rule before.
	Absent  bool   `json:"absent,omitempty"`
	YAML    string `json:"yaml,omitempty"`
	Enabled bool   `json:"enabled,omitempty"`
}

// decoded completes a stored trial, and reports whether it is valid.
func (t *Trial) decoded(d *Document) bool {
	t.End = d.When.Add(t.For)
	d.Reverts = t.End
	return t.For >= LeastFor && t.For <= MostFor
}

// revertWord is the word for a change that takes an unconfirmed one back.
const revertWord = "revert"

// revert turns a change into the state of the rule after the trial.
func (c *Change) revert() {
	c.YAML, c.Enabled, c.Deleted, c.Trial = c.Trial.YAML, c.Trial.Enabled, c.Trial.Absent, nil
}

// revertsTo lets a change revert to the version that its author has read. If that is a change not confirmed yet, it
// reverts to the rule before that one.
func (c *Change) revertsTo(held *Change, seen int64, last time.Duration) error {
	if last < LeastFor || last > MostFor {
		return &weir.InputError{Field: "time after which the change reverts", Given: last,
			Allowed: fmt.Sprintf("1s to %v", MostFor)}
	}
	c.Trial = &Trial{For: last, Absent: true}
	if held == nil {
		return nil
	}
	if held.Revision != seen {
		return &ConflictError{Name: c.Name, Seen: seen, Is: held.Revision}
	}
	c.Trial.Absent, c.Trial.YAML, c.Trial.Enabled = false, held.YAML, held.Enabled
	if t := held.Trial; t != nil {
		c.Trial.Absent, c.Trial.YAML, c.Trial.Enabled = t.Absent, t.YAML, t.Enabled
	}
	return nil
}

// A RevertedError means that a change can no longer be confirmed. The confirmation has no effect.
type RevertedError struct {
	Name string
	When time.Time // its time was over then, by the ledger's clock
}

// Error returns a sentence that says what to do.
func (e *RevertedError) Error() string {
	return fmt.Sprintf("ledger: nobody confirmed the change of rule %q until %s, and it was taken back: make it "+
		"again, such as by a rollback to its revision", e.Name, e.When.UTC().Format(time.RFC3339))
}

// Confirm keeps a change for good that would revert.
func (l *Ledger) Confirm(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	snapshot, err := l.backend.Read(ctx)
	if err != nil {
		return 0, err
	}
	c, err := l.last(ctx, name)
	switch {
	case err != nil:
		return 0, err
	case c.What == revertWord:
		return 0, &RevertedError{name, c.When}
	case c.Deleted:
		return 0, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	case c.Revision != seen:
		return 0, &ConflictError{Name: name, Seen: seen, Is: c.Revision}
	case c.Trial == nil:
		return 0, &weir.InputError{Field: "rule", Given: name,
			Allowed: "one whose last change reverts unless it is confirmed; this one stays as it is"}
	case !snapshot.Now.Before(c.Trial.End):
		return 0, &RevertedError{name, c.Trial.End}
	}
	return l.commit(ctx, changeOf(name, "confirm", by, c.YAML, c.Enabled), seen)
}

// last returns the last change of a rule, which may be its deletion.
func (l *Ledger) last(ctx context.Context, name string) (Change, error) {
	if isException(name) || isKey(name) {
		return Change{}, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	c, missing := l.backend.Get(ctx, name)
	if !errors.Is(missing, ErrNoRule) {
		return c, missing
	}
	list, err := l.History(ctx, name, MaxHistory)
	if err != nil {
		return c, err
	}
	at := slices.IndexFunc(list, func(c Change) bool { return c.Name == name && c.Revision > 0 })
	if at < 0 {
		return c, missing
	}
	return list[at], nil
}

// Settle writes reverted changes into the ledger, so that the history has them. It returns the first error; it is no
// error if another process does the same at this moment.
func (l *Ledger) Settle(ctx context.Context) error {
	snapshot, entries, err := l.read(ctx)
	if err != nil {
		return err
	}
	for _, c := range entries {
		if c.Trial == nil || snapshot.Now.Before(c.Trial.End) {
			continue
		}
		why := fmt.Sprintf("nobody confirmed revision %d by %s within %v", c.Revision, c.Author.Who, c.Trial.For)
		by := Author{Who: "weir", Why: why[:min(len(why), MaxWhy)]}
		c.revert()
		back := changeOf(c.Name, revertWord, by, c.YAML, c.Enabled)
		back.Deleted = c.Deleted
		revision, err := l.commit(ctx, back, c.Revision)
		var other *ConflictError
		switch {
		case err == nil && l.Reverted != nil:
			l.Reverted(c.Name, revision, by)
		case err != nil && !errors.As(err, &other):
			return err
		}
	}
	return nil
}
