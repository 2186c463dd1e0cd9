package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

// TestPromoted: the candidate's fields are the rule's, and nothing else is another.
func TestPromoted(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a limit", "name: login\nkey: [client.ip]\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n", "name: login\nkey: [client.ip]\nlimit: 3/1m\n"},
		{"a comment stays", "# of Ann\nname: login # the form\nlimit: 5/1m\ncandidate:\n  limit:\n    - 3/1m\n    - 9/1h\nmode: enforce\n",
			"# of Ann\nname: login # the form\nlimit:\n  - 3/1m\n  - 9/1h\nmode: enforce\n"},
		{"the candidate first", "candidate: {limit: 3/1m}\nname: login\nlimit: [5/1m, 9/1h]\n", "name: login\nlimit: 3/1m\n"},
		{"an algorithm and a key", "name: login\nlimit: 5/1m\ncandidate: {limit: 3/1m, algorithm: sliding_log, key: [user]}\n",
			"name: login\nlimit: 3/1m\nalgorithm: sliding_log\nkey: [user]\n"},
		{"the rule's algorithm", "name: login\nalgorithm: sliding_log\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n", "name: login\nalgorithm: sliding_log\nlimit: 3/1m\n"},
		{"JSON", `{"name": "login", "limit": "5/1m", "candidate": {"limit": ["3/1m"]}}`, `{"name": "login", "limit": ["3/1m"]}` + "\n"},
		{"texts that look like others", "name: login\nmatch: {header: {x-a: [\"yes\", '007', \"a: b # c\"]}}\nlimit: 5/1m\ncandidate: {limit: 3/1m}",
			"name: login\nmatch: {header: {x-a: [\"yes\", '007', \"a: b # c\"]}}\nlimit: 3/1m\n"},
		{"a long line", "name: login\nmatch: {header: {x-a: \"" + strings.Repeat("long ", 40) + "\"}}\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n",
			"name: login\nmatch: {header: {x-a: \"" + strings.Repeat("long ", 40) + "\"}}\nlimit: 3/1m\n"},
	} {
		got, err := ledger.Promoted("login", test.text)
		if err != nil || got != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", test.name, err, got, test.want)
		}
	}
	for _, text := range []string{"name: login\nlimit: 5/1m\n", "name: login\nlimt: 5/1m\n", "name: other\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n", ""} {
		if got, err := ledger.Promoted("login", text); err == nil {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// FuzzPromoted: what can be promoted is a rule without a candidate, and cannot be again.
func FuzzPromoted(f *testing.F) {
	f.Add("name: a\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n")
	f.Add("{name: a, limit: [5/1m], candidate: {limit: 3/1m, key: [user]}} # x")
	f.Add("? name\n: a\n? candidate\n: limit: |-\n    3/1m\nlimit: >-\n  5/1m\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ledger.Promoted("a", text)
		if err != nil {
			return
		}
		before, errBefore := ledger.ParseDocument("a", text)
		after, err := ledger.ParseDocument("a", got)
		if err != nil || errBefore != nil || len(after.Candidate.Limit) > 0 || len(after.Limit) != len(before.Candidate.Limit) {
			t.Errorf("%q becomes %q: %v, %v", text, got, errBefore, err)
		}
	})
}

// TestPromoteIsAChange like any other: it needs the revision that was read, and is in the history.
func TestPromoteIsAChange(t *testing.T) {
	l, _ := open(t, "")
	ctx := t.Context()
	text := "name: a\nlimit: 5/1m\ncandidate: {limit: sliding_log 3/1m}\n"
	if _, err := l.Promote(ctx, "a", 1, ann); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	rulesettest.Done(t, 1)(l.Set(ctx, "a", text, 0, ann))
	rulesettest.Done(t, 2)(l.Disable(ctx, "a", 1, ann))
	rulesettest.Conflict(t, 2)(l.Promote(ctx, "a", 1, ann))
	rulesettest.Conflict(t, 2)(l.Promote(ctx, "a", 0, ann))
	rulesettest.Done(t, 3)(l.Promote(ctx, "a", 2, ann))
	var input *weir.InputError
	if _, err := l.Promote(ctx, "a", 3, ann); !errors.As(err, &input) {
		t.Error(err)
	}
	d, err := l.Get(ctx, "a")
	if err != nil || d.Enabled || d.YAML != "name: a\nlimit: sliding_log 3/1m\n" {
		t.Errorf("%+v %v", d, err)
	}
	list, err := l.History(ctx, "a", 1)
	if err != nil || list[0].What != "promote" || list[0].Author != ann || len(list[0].Diff) != 1 || list[0].Diff[0].Anew == "" {
		t.Errorf("%+v %v", list, err)
	}
	rulesettest.Done(t, 4)(l.Rollback(ctx, "a", 1, 3, ann))
	if d, err := l.Get(ctx, "a"); err != nil || d.YAML != text {
		t.Errorf("%+v %v", d, err)
	}
}

// A stale backend tells what an entry was before the last change.
type stale struct {
	ledger.Backend
	was ledger.Change
}

func (s *stale) Get(context.Context, string) (ledger.Change, error) { return s.was, nil }

// TestPromoteOfAnUnreadCandidate: what was read must be what the caller has seen, also where
// the change would be of the right revision.
func TestPromoteOfAnUnreadCandidate(t *testing.T) {
	l, backend := open(t, "")
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", "name: a\nlimit: 5/1m\ncandidate: {limit: 3/1m}\n", 0, ann))
	was, err := backend.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	rulesettest.Done(t, 2)(l.Set(t.Context(), "a", "name: a\nlimit: 5/1m\ncandidate: {limit: 4/1m}\n", 1, ann))
	rulesettest.Conflict(t, 1)(ledger.New(&stale{backend, was}).Promote(t.Context(), "a", 2, ann))
	rulesettest.Done(t, 3)(l.Promote(t.Context(), "a", 2, ann))
}
