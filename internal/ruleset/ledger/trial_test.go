package ledger_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

func revertsIn(d time.Duration) ledger.Extra { return ledger.Extra{Reverts: d} }

// inForce are the limits of the rules of a source, and its revision.
func inForce(t *testing.T, backend *ledger.Memory) string {
	t.Helper()
	var list []string
	n := backend.Source().Load(t.Context(), false)
	for _, spec := range n.File.Rules {
		list = append(list, spec.Name+" "+spec.Limit[0])
	}
	return strings.Join(append(list, "at "+n.Revision), ", ")
}

// TestUnconfirmedChangesRevert at their time, also over a restart, to what was confirmed last; a rule that was not there
// is gone. The history says so.
func TestUnconfirmedChangesRevert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := filepath.Join(t.TempDir(), "ledger"), t.Context()
		l, backend := open(t, path)
		rulesettest.Done(t, 1)(l.Set(ctx, "a", yaml("a", "10/1m"), 0, ann))
		rulesettest.Done(t, 2)(l.SetWith(ctx, "a", yaml("a", "20/1m"), 1, ann, revertsIn(time.Hour)))
		rulesettest.Done(t, 3)(l.SetWith(ctx, "a", yaml("a", "30/1m"), 2, ann, revertsIn(30*time.Minute)))
		rulesettest.Done(t, 4)(l.SetWith(ctx, "new", yaml("new", "1/1m"), 0, ann, revertsIn(time.Hour)))
		rulesettest.Conflict(t, 3)(l.SetWith(ctx, "a", yaml("a", "40/1m"), 2, ann, revertsIn(time.Hour)))
		if d, err := l.Get(ctx, "a"); err != nil || d.Reverts != d.When.Add(30*time.Minute) {
			t.Errorf("%+v %v", d, err)
		}
		time.Sleep(30*time.Minute - time.Millisecond)
		if got := inForce(t, backend); got != "a 30/1m, new 1/1m, at 4" {
			t.Error(got)
		}
		backend.Close()
		time.Sleep(time.Millisecond)
		l, backend = open(t, path)
		var told []int64
		l.Reverted = func(_ string, revision int64, _ ledger.Author) { told = append(told, revision) }
		if got := inForce(t, backend); got != "a 10/1m, new 1/1m, at 4, 1 reverted" {
			t.Error(got)
		}
		if got := inForce(t, backend); got != "a 10/1m, new 1/1m, at 5" { // it is written now
			t.Error(got)
		}
		history, err := l.History(ctx, "a", 1)
		if err != nil || history[0].What != "revert" || history[0].Author != (ledger.Author{Who: "weir",
			Why: "nobody confirmed revision 3 by ann within 30m0s"}) || history[0].Diff[0].String() != "a: limit 30/1m -> 10/1m; counts are kept" {
			t.Errorf("%+v %v", history, err)
		}
		time.Sleep(30 * time.Minute)
		inForce(t, backend)
		if got := inForce(t, backend); got != "a 10/1m, at 6" {
			t.Error(got)
		}
		if !slices.Equal(told, []int64{5, 6}) {
			t.Errorf("told of revisions %v", told)
		}
	})
}

// TestSourceSendsWhatReverted without a change of the ledger by anybody.
func TestSourceSendsWhatReverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, backend := open(t, "")
		rulesettest.Done(t, 1)(l.Set(t.Context(), "a", yaml("a", "10/1m"), 0, ann))
		rulesettest.Done(t, 2)(l.SetWith(t.Context(), "a", yaml("a", "20/1m"), 1, ann, revertsIn(2*time.Hour)))
		f := rulesettest.Follow(t, backend.Source())
		defer f.End()
		f.Sent("20/1m")
		time.Sleep(2*time.Hour - time.Millisecond)
		f.Sent()
		time.Sleep(time.Millisecond)
		f.Sent("10/1m", "10/1m") // and the change of the ledger that says so
	})
}

// TestConfirmedChangesStay, and what cannot be confirmed says why.
func TestConfirmedChangesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, backend := open(t, "")
		ctx := t.Context()
		var input *weir.InputError
		var late *ledger.RevertedError
		for _, last := range []time.Duration{time.Millisecond, ledger.MostFor + 1, -1} {
			if _, err := l.SetWith(ctx, "a", yaml("a", "10/1m"), 0, ann, revertsIn(last)); !errors.As(err, &input) {
				t.Errorf("%v: %v", last, err)
			}
		}
		rulesettest.Done(t, 1)(l.SetWith(ctx, "a", yaml("a", "10/1m"), 0, ann, revertsIn(time.Minute)))
		rulesettest.Conflict(t, 1)(l.Confirm(ctx, "a", 7, ann))
		rulesettest.Done(t, 2)(l.Confirm(ctx, "a", 1, ann))
		if _, err := l.Confirm(ctx, "a", 2, ann); !errors.As(err, &input) {
			t.Error(err)
		}
		if _, err := l.Confirm(ctx, "b", 0, ann); !errors.Is(err, ledger.ErrNoRule) {
			t.Error(err)
		}
		rulesettest.Done(t, 3)(l.SetWith(ctx, "b", yaml("b", "1/1m"), 0, ann, revertsIn(time.Minute)))
		time.Sleep(time.Minute)
		if got := inForce(t, backend); got != "a 10/1m, at 3, 1 reverted" {
			t.Error(got)
		}
		for _, seen := range []int64{3, 0} { // as it was read before, and now
			if _, err := l.Confirm(ctx, "b", seen, ann); !errors.As(err, &late) || late.When.IsZero() {
				t.Error(err)
			}
		}
		rulesettest.Done(t, 5)(l.SetWith(ctx, "a", yaml("a", "20/1m"), 2, ann, revertsIn(time.Minute)))
		time.Sleep(time.Minute) // and no source has looked
		if _, err := l.Confirm(ctx, "a", 5, ann); !errors.As(err, &late) {
			t.Error(err)
		}
	})
}

// TestRestoredChangesRevert as they would have: a ledger that lost them has what is left of their time.
func TestRestoredChangesRevert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, backend := open(t, "")
		rulesettest.Done(t, 1)(l.SetWith(t.Context(), "new", yaml("new", "1/1m"), 0, ann, revertsIn(time.Hour)))
		rulesettest.Done(t, 2)(l.Set(t.Context(), "a", yaml("a", "1/1m"), 0, ann))
		rulesettest.Done(t, 3)(l.SetWith(t.Context(), "a", yaml("a", "2/1m"), 2, ann, revertsIn(time.Hour)))
		snapshot, _ := backend.Read(t.Context())
		for _, test := range []struct {
			after   time.Duration
			a, gone string // what is written back
		}{{40 * time.Minute, "2/1m 20m0s", "1/1m 20m0s"}, {2 * time.Hour, "1/1m", ""}} {
			got := make(map[string]string)
			for name, value := range snapshot.Values {
				if text, ok := ledger.Again(name, value, snapshot.Now.Add(test.after), ann); ok {
					c, err := ledger.Decode(name, "9 0 "+text)
					if err != nil {
						t.Fatal(err)
					}
					_, got[name], _ = strings.Cut(strings.TrimSpace(c.YAML), "limit: ")
					if c.Trial != nil {
						got[name] += " " + c.Trial.For.String()
					}
				}
			}
			if got["a"] != test.a || got["new"] != test.gone {
				t.Errorf("after %v: %q", test.after, got)
			}
		}
	})
}
