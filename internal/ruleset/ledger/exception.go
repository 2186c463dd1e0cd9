package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// Limits of the duration of an exception.
const (
	LeastFor = time.Second
	MostFor  = 366 * 24 * time.Hour
)

// exceptionName is the prefix of names of exceptions in a Backend, which no rule's name has.
const exceptionName = "exception:"

func isException(name string) bool { return strings.HasPrefix(name, exceptionName) }

// An Exception is a rules.Exception in a ledger. It ends when its time is over. Its ID is derived from its kind, rule
// and values, so that there is one for each of these. Its duration is stored, so that only the ledger's clock matters.
type Exception struct {
	rules.Exception               // Until is by the ledger's clock
	For             time.Duration `json:"for"`
	Revision        int64         `json:"-"`
	Author          Author        `json:"-"`
	When            time.Time     `json:"-"` // by the ledger's clock
}

// decoded completes a stored exception, and reports whether it is valid.
func (e *Exception) decoded(d *Document) bool {
	e.ID, e.Revision, e.Author, e.When = strings.TrimPrefix(d.Name, exceptionName), d.Revision, d.Author, d.When
	e.Until = e.When.Add(e.For)
	return e.For >= LeastFor && e.For <= MostFor
}

// IDOf returns the ID of an exception.
func IDOf(e *rules.Exception) string {
	about := fmt.Sprintf("%q %q %q %q", e.Kind, e.Rule, e.Component, e.Values)
	sum := sha256.Sum256([]byte(about))
	return string(e.Kind) + "-" + hex.EncodeToString(sum[:5])
}

// checkException checks everything that does not depend on the rules.
func checkException(e *rules.Exception, last time.Duration) error {
	switch {
	case e.Kind != rules.Overridden && e.Kind != rules.Blocked && e.Kind != rules.LetPass:
		return &weir.InputError{Field: "kind", Given: string(e.Kind), Allowed: "override, block or allow"}
	case e.Kind == rules.Overridden && e.Rule == "":
		return &weir.InputError{Field: "rule", Given: "", Allowed: "the name of the rule whose limits are others"}
	case len(e.Values) < 1 || len(e.Values) > bounds.Components:
		return &weir.InputError{Field: "values", Given: len(e.Values),
			Allowed: fmt.Sprint("1 to ", bounds.Components)}
	case last < LeastFor || last > MostFor:
		return &weir.InputError{Field: "for", Given: last,
			Allowed: fmt.Sprintf("1s to %v: an exception ends by itself", MostFor)}
	case (e.Kind == rules.Overridden) != (len(e.Limit) > 0) || len(e.Limit) > bounds.Limits:
		return &weir.InputError{Field: "limit", Given: e.Limit,
			Allowed: fmt.Sprintf("1 to %d for an override, such as 500/1m, and none for others", bounds.Limits)}
	case e.Kind == rules.Overridden && e.Component != "":
		return &weir.InputError{Field: "by", Given: e.Component,
			Allowed: "none for an override: its values are those of the rule's key"}
	}
	for _, text := range slices.Concat(e.Values, e.Limit, []string{e.Rule + " ", e.Component + " "}) {
		if text == "" || len(text) > bounds.Text {
			return &weir.InputError{Field: "text", Given: text[:min(len(text), 80)],
				Allowed: fmt.Sprintf("1 to %d bytes", bounds.Text)}
		}
	}
	return nil
}

// Except puts an exception in force, or replaces the one with the same ID if it is at the revision seen (0: there is no
// such exception). It does not check the rules: an exception that fits no rule has no effect. It returns the ID and the
// new revision.
func (l *Ledger) Except(ctx context.Context, e rules.Exception, last time.Duration, seen int64, by Author) (
	id string, revision int64, err error) {
	if err := checkException(&e, last); err != nil {
		return "", 0, err
	}
	id = IDOf(&e)
	seen, err = l.room(ctx, id, seen)
	if err != nil {
		return id, 0, err
	}
	c := changeOf(exceptionName+id, "set", by, "", true)
	c.Exception = &Exception{Exception: e, For: last}
	revision, err = l.commit(ctx, c, seen)
	return id, revision, err
}

// room deletes ended exceptions, and enforces the maximum. An ended exception with the same ID
// counts as absent: room then returns its revision as seen.
func (l *Ledger) room(ctx context.Context, id string, seen int64) (int64, error) {
	snapshot, entries, err := l.read(ctx)
	if err != nil {
		return 0, err
	}
	live, replaces := 0, false
	for _, c := range entries {
		e := c.Exception
		switch {
		case e == nil:
		case e.Until.After(snapshot.Now):
			live++
			replaces = replaces || e.ID == id
		case e.ID == id && seen == 0:
			seen = e.Revision
		default: // a conflict does not matter: another process deleted it
			over := changeOf(c.Name, "delete", Author{Who: "weir", Why: "its time was over"}, "", false)
			over.Deleted, over.Exception = true, e
			_, _ = l.backend.Commit(ctx, over, c.Revision)
		}
	}
	if live >= MaxExceptions && !replaces {
		return 0, &weir.InputError{Field: "exceptions", Given: live + 1,
			Allowed: fmt.Sprintf("at most %d at one time; write a rule or a list instead", MaxExceptions)}
	}
	return seen, nil
}

// ErrNoException is (wrapped) the error for an exception that does not exist, or has ended.
var ErrNoException = errors.New("there is no such exception, or its time is over")

// Exception returns the one with this ID, and its remaining time.
func (l *Ledger) Exception(ctx context.Context, id string) (e Exception, left time.Duration, err error) {
	list, now, err := l.Exceptions(ctx)
	if err != nil {
		return e, 0, err
	}
	for _, e := range list {
		if e.ID == id {
			return e, e.Until.Sub(now), nil
		}
	}
	return e, 0, fmt.Errorf("ledger: exception %.80q: %w", id, ErrNoException)
}

// Lift ends an exception early, if it is at the revision seen.
func (l *Ledger) Lift(ctx context.Context, id string, seen int64, by Author) (revision int64, err error) {
	e, _, err := l.Exception(ctx, id)
	if err != nil {
		return 0, err
	}
	c := changeOf(exceptionName+id, "delete", by, "", false)
	c.Deleted, c.Exception = true, &e
	return l.commit(ctx, c, seen)
}

// Exceptions returns the exceptions in force, the first to end first, and the ledger's time.
func (l *Ledger) Exceptions(ctx context.Context) (list []Exception, now time.Time, err error) {
	snapshot, entries, err := l.read(ctx)
	if err != nil {
		return nil, now, err
	}
	for _, c := range entries {
		if c.Exception != nil && c.Exception.Until.After(snapshot.Now) {
			list = append(list, *c.Exception)
		}
	}
	slices.SortFunc(list, func(a, b Exception) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.ID, b.ID))
	})
	return list, snapshot.Now, nil
}
