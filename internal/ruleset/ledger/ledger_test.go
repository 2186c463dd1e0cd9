package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
	"github.com/weirproject/weir/rules"
)

var ann = ledger.Author{Who: "ann", Why: "brute force"}

func open(t testing.TB, path string) (*ledger.Ledger, *ledger.Memory) {
	t.Helper()
	backend, err := ledger.NewMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close() })
	return ledger.New(backend), backend
}

func yaml(name, limit string) string { return fmt.Sprintf("name: %s\nlimit: %s\n", name, limit) }

func block(value string) rules.Exception {
	return rules.Exception{Kind: rules.Blocked, Values: []string{value}}
}

// TestMemory is the life of a rule, with a file and without; what the file has is there
// again in the next process.
func TestMemory(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "ledger")} {
		l, backend := open(t, path)
		ctx := t.Context()
		rulesettest.Done(t, 1)(l.Set(ctx, "login", yaml("login", "5/1m"), 0, ann))
		rulesettest.Conflict(t, 1)(l.Set(ctx, "login", yaml("login", "6/1m"), 0, ann))
		rulesettest.Done(t, 2)(l.Set(ctx, "login", yaml("login", "6/1m"), 1, ledger.Author{Who: "bob"}))
		rulesettest.Conflict(t, 2)(l.Disable(ctx, "login", 1, ann))
		rulesettest.Done(t, 3)(l.Disable(ctx, "login", 2, ann))
		rulesettest.Done(t, 4)(l.Enable(ctx, "login", 3, ann))
		rulesettest.Done(t, 5)(l.Rollback(ctx, "login", 1, 4, ann))
		rulesettest.Conflict(t, 5)(l.Delete(ctx, "login", 0, ann))
		rulesettest.Done(t, 6)(l.Delete(ctx, "login", 5, ann))
		rulesettest.Conflict(t, 0)(l.Delete(ctx, "login", 5, ann))
		rulesettest.Done(t, 7)(l.Rollback(ctx, "login", 2, 0, ann))
		id, revision, err := l.Except(ctx, block("10.0.0.1"), time.Hour, 0, ann)
		rulesettest.Done(t, 8)(revision, err)
		if path != "" {
			backend.Close()
			l, _ = open(t, path)
		}
		if d, err := l.Get(ctx, "login"); err != nil || d.YAML != yaml("login", "6/1m") || d.Revision != 7 || d.Author != ann {
			t.Errorf("%+v %v", d, err)
		}
		e, left, err := l.Exception(ctx, id)
		if err != nil || e.Values[0] != "10.0.0.1" || left <= 0 || left > time.Hour || e.Author != ann {
			t.Errorf("%+v %v %v", e, left, err)
		}
		history, err := l.History(ctx, "login", 100)
		if err != nil || len(history) != 7 || history[6].Diff[0].String() != "login: added" || history[5].Author.Who != "bob" {
			t.Errorf("%+v %v", history, err)
		}
		rulesettest.Done(t, 9)(l.Delete(ctx, "login", 7, ann))
		if list, at, err := l.List(ctx); err != nil || len(list) != 0 || at != 9 {
			t.Errorf("%v %d %v", list, at, err)
		}
	}
}

// TestAnExceptionIsNoRule: neither is taken for the other.
func TestAnExceptionIsNoRule(t *testing.T) {
	l, _ := open(t, "")
	ctx := t.Context()
	id, _, err := l.Except(ctx, block("10.0.0.1"), time.Hour, 0, ann)
	if err != nil {
		t.Fatal(err)
	}
	name := "exception:" + id
	if _, err := l.Get(ctx, name); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	if _, err := l.Delete(ctx, name, 1, ann); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	if _, err := l.Enable(ctx, name, 1, ann); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	if _, err := l.Rollback(ctx, name, 1, 1, ann); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	if _, err := l.Set(ctx, name, yaml("x", "1/1s"), 1, ann); err == nil {
		t.Error("no error")
	}
	if _, err := l.Lift(ctx, "login", 1, ann); !errors.Is(err, ledger.ErrNoException) {
		t.Error(err)
	}
}

func TestExceptionsAreChecked(t *testing.T) {
	l, _ := open(t, "")
	override := rules.Exception{Kind: rules.Overridden, Rule: "a", Values: []string{"x"}, Limit: []string{"1/1m"}}
	with := func(change func(*rules.Exception)) rules.Exception {
		e := override
		change(&e)
		return e
	}
	for _, test := range []struct {
		e    rules.Exception
		last time.Duration
		by   ledger.Author
		want string
	}{
		{with(func(e *rules.Exception) { e.Kind = "hide" }), time.Hour, ann, `kind is "hide"; allowed: override, block or allow`},
		{with(func(e *rules.Exception) { e.Rule = "" }), time.Hour, ann, "rule is"},
		{with(func(e *rules.Exception) { e.Values = nil }), time.Hour, ann, "values is 0; allowed: 1 to 8"},
		{with(func(e *rules.Exception) { e.Values = []string{""} }), time.Hour, ann, "1 to 1024 bytes"},
		{with(func(e *rules.Exception) { e.Values = []string{strings.Repeat("x", 1025)} }), time.Hour, ann, "1 to 1024 bytes"},
		{with(func(e *rules.Exception) { e.Limit = nil }), time.Hour, ann, "limit is []"},
		{with(func(e *rules.Exception) { e.Component = "user" }), time.Hour, ann, "by is"},
		{override, time.Millisecond, ann, "an exception ends by itself"},
		{override, 10_000 * time.Hour, ann, "an exception ends by itself"},
		{override, time.Hour, ledger.Author{}, `who is ""`},
	} {
		var input *weir.InputError
		if _, _, err := l.Except(t.Context(), test.e, test.last, 0, test.by); !errors.As(err, &input) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %s", test.e, err, test.want)
		}
	}
}

// TestExceptionsAreBounded. Ended ones make room, and the history records it.
func TestExceptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, "")
		ctx := t.Context()
		for i := range ledger.MaxExceptions {
			last := time.Hour
			if i == 0 {
				last = time.Minute
			}
			if _, _, err := l.Except(ctx, block(fmt.Sprintf("10.0.%d.%d", i/256, i%256)), last, 0, ann); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := l.Except(ctx, block("192.0.2.1"), time.Hour, 0, ann); err == nil || !strings.Contains(err.Error(), "exceptions is 501; allowed: at most 500 at one time") {
			t.Error(err)
		}
		if _, _, err := l.Except(ctx, block("10.0.0.7"), time.Hour, 8, ann); err != nil { // it replaces one
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if _, _, err := l.Except(ctx, block("192.0.2.1"), time.Hour, 0, ann); err != nil {
			t.Error(err)
		}
		history, err := l.History(ctx, "", 2)
		if err != nil || history[1].What != "delete" || history[1].Author != (ledger.Author{Who: "weir", Why: "its time was over"}) || history[1].Exception.Values[0] != "10.0.0.0" {
			t.Errorf("%+v %v", history, err)
		}
	})
}

// TestCreateReplacesAnEndedException: for everybody but the backend it is not there.
func TestCreateReplacesAnEndedException(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open(t, "")
		id, _, err := l.Except(t.Context(), block("10.0.0.1"), time.Minute, 0, ann)
		if err != nil {
			t.Fatal(err)
		}
		_, revision, err := l.Except(t.Context(), block("10.0.0.1"), time.Hour, 0, ann)
		rulesettest.Conflict(t, 1)(revision, err)
		time.Sleep(time.Minute)
		if _, _, err := l.Exception(t.Context(), id); !errors.Is(err, ledger.ErrNoException) {
			t.Error(err)
		}
		if revision, err := l.Lift(t.Context(), id, 1, ann); revision != 0 || !errors.Is(err, ledger.ErrNoException) {
			t.Error(err)
		}
		if _, _, err := l.Except(t.Context(), block("10.0.0.1"), time.Hour, 0, ann); err != nil {
			t.Error(err)
		}
	})
}

// listen puts what a source says in force, until the test is over.
func listen(t *testing.T, s ruleset.Source) (blocked func() int) {
	t.Helper()
	swap := func(*rules.Set) error { return nil }
	keeper, err := ruleset.NewManager([]ruleset.Layer{{Name: "ledger", Source: s, AllowEmpty: true}}, swap)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := keeper.Wait(ctx); err != nil && keeper.Status().RuleSet == nil { // it may be down by now
		t.Fatal(err)
	}
	return func() int {
		time.Sleep(100 * time.Millisecond) // of the driven clock: what is told at once is in force by then
		return len(keeper.Status().RuleSet.File.Exceptions)
	}
}

// TestExceptionsEndAtTheirTime, one after the other, without a change of the ledger.
func TestExceptionsEndAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, backend := open(t, "")
		for i, last := range []time.Duration{time.Minute, time.Hour, 3 * time.Hour} {
			if _, _, err := l.Except(t.Context(), block(fmt.Sprint("10.0.0.", i)), last, 0, ann); err != nil {
				t.Fatal(err)
			}
		}
		in := listen(t, backend.Source())
		synctest.Wait()
		for _, test := range []struct {
			wait time.Duration
			want int
		}{{0, 3}, {time.Minute - time.Second, 3}, {2 * time.Second, 2}, {time.Hour, 1}, {time.Hour, 1}, {time.Hour, 0}} {
			time.Sleep(test.wait)
			synctest.Wait()
			if got := in(); got != test.want {
				t.Errorf("after %v: %d are in force, want %d", test.wait, got, test.want)
			}
		}
	})
}

// A scripted source returns these updates, one after each value of again; then the last one.
type scripted struct {
	updates []ruleset.Update
	again   chan struct{}
}

func (s *scripted) Load(context.Context, bool) ruleset.Update {
	n := s.updates[0]
	if len(s.updates) > 1 {
		s.updates = s.updates[1:]
	}
	return n
}

func (s *scripted) Wait(ctx context.Context) {
	select {
	case <-s.again:
	case <-ctx.Done():
	}
}

func (s *scripted) Close() {}

// TestExceptionsEndWhileTheLedgerCannotBeRead: at that time nobody can end them by hand.
func TestExceptionsEndWhileTheLedgerCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := &rules.File{Exceptions: []rules.Exception{{Kind: rules.Blocked, Values: []string{"10.0.0.1"}, Until: time.Now().Add(time.Minute)}}}
		again := make(chan struct{})
		in := listen(t, &scripted{[]ruleset.Update{{File: file, Revision: "7"}, {Err: errors.New("the connection is lost")}}, again})
		again <- struct{}{}
		synctest.Wait()
		before := in()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if after := in(); before != 1 || after != 0 {
			t.Errorf("%d before, %d after", before, after)
		}
	})
}

// TestClocksThatDiffer: what is left counts, by the ledger's clock.
func TestClocksThatDiffer(t *testing.T) {
	l, backend := open(t, "")
	id, _, err := l.Except(t.Context(), block("10.0.0.1"), time.Hour, 0, ann)
	if err != nil {
		t.Fatal(err)
	}
	held, err := backend.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := l.Exception(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	here := held.Now.Add(-1000 * time.Hour) // this process' clock
	entry := ledger.Change{Exception: &e}
	list := ledger.ExceptionsOf([]ledger.Change{entry}, held.Now, here)
	if len(list) != 1 || list[0].Until.Sub(here) > time.Hour || list[0].Until.Sub(here) < 59*time.Minute {
		t.Errorf("%+v at %v", list, here)
	}
	if list := ledger.ExceptionsOf([]ledger.Change{entry}, held.Now.Add(time.Hour), here); len(list) != 1 || list[0].Until.After(here) {
		t.Errorf("%+v", list)
	}
}

// TestAClockThatIsSet: what was to end in an hour, and by the ledger's clock is over all of a
// sudden, ends now. The ledger's revision is what it was: nobody changed anything.
func TestAClockThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{again: make(chan struct{})}
		for _, left := range []time.Duration{time.Hour, -time.Minute, time.Hour} {
			list := []rules.Exception{{Kind: rules.Blocked, Values: []string{"10.0.0.1"}, Until: time.Now().Add(left)},
				{Kind: rules.Blocked, Values: []string{"10.0.0.2"}, Until: time.Now().Add(9 * time.Hour)}}
			s.updates = append(s.updates, ruleset.Update{File: &rules.File{Exceptions: list}, Revision: "7"})
		}
		in := listen(t, s)
		for _, want := range []int{2, 1, 2} {
			time.Sleep(time.Second)
			synctest.Wait()
			if got := in(); got != want {
				t.Errorf("%d are in force, want %d", got, want)
			}
			s.again <- struct{}{}
		}
	})
}

// TestRuleOfANewerVersionIsLeftOut, alone, and reported.
func TestRuleOfANewerVersionIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, backend := open(t, path)
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", yaml("a", "1/1s"), 0, ann))
	rulesettest.Done(t, 2)(l.Set(t.Context(), "b", yaml("b", "2/1s"), 0, ann))
	if _, _, err := l.Except(t.Context(), block("10.0.0.1"), time.Hour, 0, ann); err != nil {
		t.Fatal(err)
	}
	backend.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "1/1s", "1/1y", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, backend = open(t, path)
	n := backend.Source().Load(t.Context(), false)
	if n.File == nil || len(n.File.Rules) != 1 || n.File.Rules[0].Name != "b" || len(n.File.Exceptions) != 1 ||
		n.Warning == nil || !strings.Contains(n.Warning.Error(), `a: a:2:8: limit is "1/1y"`) {
		t.Errorf("%+v", n)
	}
}

// TestEnableIsChecked like Set: the rule may no longer compile with the others.
func TestEnableIsChecked(t *testing.T) {
	l, _ := open(t, "")
	ctx := t.Context()
	rulesettest.Done(t, 1)(l.Set(ctx, "a", "{name: a, limit: [5/1m, 20/1h]}", 0, ann))
	rulesettest.Done(t, 2)(l.Disable(ctx, "a", 1, ann))
	rulesettest.Done(t, 3)(l.Set(ctx, "a.2", yaml("a.2", "1/1s"), 0, ann))
	var wrong *rules.Error
	if _, err := l.Enable(ctx, "a", 2, ann); !errors.As(err, &wrong) {
		t.Errorf("%v", err)
	}
	rulesettest.Done(t, 4)(l.Delete(ctx, "a.2", 3, ann))
	rulesettest.Done(t, 5)(l.Enable(ctx, "a", 2, ann))
}

// TestLedgerFile survives an end in the middle of a line, and is not shared.
func TestLedgerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, backend := open(t, path)
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", yaml("a", "1/1s"), 0, ann))
	backend.Close()
	append := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	append(`{"name":"b","is":"2 17`)
	l, _ = open(t, path)
	rulesettest.Done(t, 2)(l.Set(t.Context(), "b", yaml("b", "1/1s"), 0, ann))
	other, _ := open(t, path)
	rulesettest.Done(t, 3)(l.Set(t.Context(), "c", yaml("c", "1/1s"), 0, ann))
	if _, err := other.Set(t.Context(), "d", yaml("d", "1/1s"), 0, ann); err == nil || !strings.Contains(err.Error(), "one server alone may have the file") {
		t.Error(err)
	}
	if list, _, err := l.List(t.Context()); err != nil || len(list) != 3 {
		t.Errorf("%v %v", list, err)
	}
	append("nonsense\n")
	if _, err := ledger.NewMemory(path); err == nil || !strings.Contains(err.Error(), "line 4 is not what a ledger writes") {
		t.Error(err)
	}
	if _, err := ledger.NewMemory(filepath.Join(path, "x")); err == nil {
		t.Error("no error")
	}
}

// TestTheFileIsBounded: what the history forgets leaves the file at the next start, but not
// what still is.
func TestTheFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, backend := open(t, path)
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", yaml("a", "1/1s"), 0, ann))
	backend.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	all.Write(text)
	second := strings.ReplaceAll(string(text), "name: a", "name: b")
	second = strings.Replace(second, `"name":"a"`, `"name":"b"`, 1)
	for i := range 2 * ledger.MaxKept {
		all.WriteString(strings.Replace(second, `"is":"1 `, fmt.Sprintf(`"is":"%d `, i+2), 1))
	}
	if err := os.WriteFile(path, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, backend = open(t, path)
	backend.Close()
	l, _ = open(t, path)
	if text, err = os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != ledger.MaxKept+1 {
		t.Errorf("%d lines, %v", strings.Count(string(text), "\n"), err)
	}
	if list, at, err := l.List(t.Context()); err != nil || len(list) != 2 || list[0].Revision != 1 || at != 2*ledger.MaxKept+1 {
		t.Errorf("%v %d %v", list, at, err)
	}
	rulesettest.Done(t, 2*ledger.MaxKept+2)(l.Set(t.Context(), "a", yaml("a", "2/1s"), 1, ann))
}

func FuzzDecode(f *testing.F) {
	f.Add("a", `1 1700000000000000 {"yaml":"name: a\nlimit: 1/1s","enabled":true,"what":"set","who":"ann"}`)
	f.Add("exception:block-1", `1 1700000000000000 {"yaml":"","enabled":true,"what":"set","who":"ann","exception":{"kind":"block","values":["10.0.0.1"],"for":1000000000}}`)
	f.Add("exception:x", `1 1 {"exception":{"for":-1}}`)
	f.Fuzz(func(t *testing.T, name, value string) {
		c, err := ledger.Decode(name, value)
		if err != nil {
			return
		}
		now := time.Now()
		for _, e := range ledger.ExceptionsOf([]ledger.Change{c}, now, now) {
			if _, err := rules.Compile(&rules.File{Exceptions: []rules.Exception{e}}); err != nil {
				t.Fatalf("an exception is no mistake of a file: %v", err)
			}
		}
	})
}

// TestAReplacedFileTakesNoChange: what was written to the file that is open would be gone at the next start.
func TestAReplacedFileTakesNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, _ := open(t, path)
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", yaml("a", "1/1s"), 0, ann))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := l.Set(t.Context(), "b", yaml("b", "1/1s"), 0, ann); !errors.Is(err, ledger.ErrReplaced) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("the file was moved away")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a copy is there")
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	rulesettest.Done(t, 2)(l.Set(t.Context(), "b", yaml("b", "1/1s"), 0, ann))
}
