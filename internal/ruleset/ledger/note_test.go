package ledger_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

var aKey = ledger.Key{Rule: "login", Key: "client.ip=8:10.0.0.1"}

// TestNotesAreInTheHistory of their rule, and are no revision of it.
func TestNotesAreInTheHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, backend := open(t, path)
	rulesettest.Done(t, 1)(l.Set(t.Context(), "login", yaml("login", "5/1m"), 0, ann))
	rulesettest.Done(t, 2)(l.Note(t.Context(), "reset", aKey, ann))
	rulesettest.Done(t, 3)(l.Note(t.Context(), "lift ban", aKey, ledger.Author{Who: "bob"}))
	rulesettest.Done(t, 4)(l.Note(t.Context(), "reset", ledger.Key{Rule: "other", Key: "all"}, ann)) // of a rule from elsewhere
	rulesettest.Done(t, 5)(l.Set(t.Context(), "login", yaml("login", "6/1m"), 1, ann))
	backend.Close()
	l, _ = open(t, path)
	list, err := l.History(t.Context(), "login", 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		line := fmt.Sprint(c.Revision, " ", c.What, " by ", c.Author.Who, " ", ruleset.Summary(c.Diff))
		if c.Key != nil {
			line += fmt.Sprint(" ", *c.Key)
		}
		got = append(got, line)
	}
	want := []string{"5 set by ann 1 changed", "3 lift ban by bob no rule changed {login client.ip=8:10.0.0.1}",
		"2 reset by ann no rule changed {login client.ip=8:10.0.0.1}", "1 set by ann 1 added"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{"login", "key:login"} { // going back to a note would delete the rule
		if _, err := l.Rollback(t.Context(), name, 2, 5, ann); !errors.Is(err, ledger.ErrNoRule) {
			t.Errorf("back to a note of %s: %v", name, err)
		}
		if c, err := l.At(t.Context(), name, 2); !errors.Is(err, ledger.ErrNoRule) {
			t.Errorf("a note is taken for a version of %s: %+v %v", name, c, err)
		}
	}
	if list, at, err := l.List(t.Context()); err != nil || len(list) != 1 || at != 5 {
		t.Errorf("%v at %d, %v", list, at, err)
	}
	var input *weir.InputError
	if _, err := l.Note(t.Context(), "reset", aKey, ledger.Author{}); !errors.As(err, &input) {
		t.Errorf("by nobody: %v", err)
	}
	if _, err := l.Note(t.Context(), "reset", ledger.Key{Rule: "login", Key: strings.Repeat("x", bounds.PlainKey+1)}, ann); !errors.As(err, &input) {
		t.Errorf("of a key that is no rule's: %v", err)
	}
}

// TestANoteIsNoRule, whatever name it has.
func TestANoteIsNoRule(t *testing.T) {
	for name, text := range map[string]string{
		"key:login": `1 1 {"yaml":"name: login\nlimit: 5/1m","enabled":true,"what":"set","who":"ann"}`,
		"login":     `1 1 {"yaml":"","enabled":false,"deleted":true,"what":"reset","who":"ann","key":{"rule":"login","key":"all"}}`,
	} {
		if c, err := ledger.Decode(name, text); err == nil {
			t.Errorf("%s is taken for %+v", name, c)
		}
	}
}

// TestANoteIsNoUpdate: rules need not be made again for it.
func TestANoteIsNoUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, backend := open(t, "")
		updates := make(chan ruleset.Update, 10)
		go ruleset.Follow(backend.Source(), func(n ruleset.Update, _ func(error)) { updates <- n }).Run(t.Context())
		synctest.Wait()
		rulesettest.Done(t, 1)(l.Note(t.Context(), "reset", aKey, ann))
		synctest.Wait()
		if len(updates) != 1 {
			t.Errorf("news came %d times, want once: at the start", len(updates))
		}
		rulesettest.Done(t, 2)(l.Set(t.Context(), "a", yaml("a", "1/1s"), 0, ann))
		synctest.Wait()
		if len(updates) != 2 {
			t.Errorf("news came %d times, want twice", len(updates))
		}
	})
}
