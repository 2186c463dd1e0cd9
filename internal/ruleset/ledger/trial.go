package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// A Trial is the end of a change that its author makes for a while: unless somebody confirms it, the rule is again what
// it was. That takes the ledger's clock alone, so that it happens on all nodes and over restarts.
type Trial struct {
	For time.Duration
	End time.Time // by the ledger's clock

	before trialText
}

// trialText is a stored trial. It has a duration, so that only the ledger's clock matters.
type trialText struct {
	For     int64  `json:"for"` // microseconds
	Absent  bool   `json:"absent,omitempty"`
	YAML    string `json:"yaml,omitempty"`
	Enabled bool   `json:"enabled,omitempty"`
}

func (x *trialText) trial(d *Document) (t Trial, ok bool) {
	t = Trial{For: time.Duration(x.For) * time.Microsecond, before: *x}
	t.End = d.When.Add(t.For)
	return t, t.For >= LeastFor && t.For <= MostFor
}

// revertWord is the word for a change that takes an unconfirmed one back.
const revertWord = "revert"

// revert makes a change what the rule is after it.
func (c *Change) revert() {
	b := c.Trial.before
	c.YAML, c.Enabled, c.Deleted = b.YAML, b.Enabled, b.Absent
}

// reverted is the change that takes an unconfirmed one back.
func (c *Change) reverted() payload {
	b := c.Trial.before
	return payload{YAML: b.YAML, Enabled: b.Enabled, Deleted: b.Absent, What: revertWord}
}

// revertsTo lets a draft revert to what its author has read. Before a change that nobody has confirmed yet that is what
// the rule was before that one.
func (d *Draft) revertsTo(held *Change, last time.Duration) error {
	if last < LeastFor || last > MostFor {
		return &weir.InputError{Field: "time after which the change reverts", Given: last,
			Allowed: fmt.Sprintf("1s to %v", MostFor)}
	}
	text := trialText{Absent: true}
	if held != nil {
		if held.Revision != d.Seen {
			return &ConflictError{Name: d.Name, Seen: d.Seen, Is: held.Revision}
		}
		text = trialText{YAML: held.YAML, Enabled: held.Enabled}
		if held.Trial != nil {
			text = held.Trial.before
		}
	}
	text.For = last.Microseconds()
	d.Trial = &text
	return nil
}

// A RevertedError means that a change can no longer be confirmed. Nothing was changed.
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
	return l.commit(ctx, Draft{Name: name, Seen: seen, by: by,
		payload: payload{YAML: c.YAML, Enabled: c.Enabled, What: "confirm"}})
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

// Settle writes what has reverted into the ledger, where the history has it then. It returns the first error; another
// process that does the same at this moment is none.
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
		revision, err := l.commit(ctx, Draft{Name: c.Name, Seen: c.Revision, payload: c.reverted(), by: by})
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
