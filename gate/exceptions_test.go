package gate_test

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestWhichExceptionsDecided: those that had a part in the verdict, and none that would have
// had one if something else had not decided before.
func TestWhichExceptionsDecided(t *testing.T) {
	file, err := rules.Parse("rules.yaml", []byte(`
allow: {user: root}
rules:
  - {name: first, key: [user], limit: 5/1m, deny: {user: [mallory, eve]}, allow: {user: ann}}
  - {name: second, key: [user], limit: 5/1m}
  - {name: tried, key: [user], limit: 5/1m, mode: shadow}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		kind        rules.ExceptionKind
		rule, value string
	}{
		{rules.Blocked, "", "carl"}, {rules.LetPass, "", "dora"}, {rules.Overridden, "second", "carl"},
		{rules.Overridden, "first", "ann"}, {rules.Overridden, "second", "ann"}, {rules.Overridden, "first", "mallory"},
		{rules.Blocked, "first", "fred"}, {rules.LetPass, "first", "eve"}, {rules.Blocked, "second", "fred"}, {rules.LetPass, "second", "mallory"},
		{rules.Blocked, "tried", "gina"},
	} {
		one := rules.Exception{ID: fmt.Sprint(e.kind, " ", e.rule), Kind: e.kind, Rule: e.rule, Values: []string{e.value}}
		if one.Component = "user"; e.kind == rules.Overridden {
			one.Component, one.Limit = "", []string{"9/1m"}
		}
		file.Exceptions = append(file.Exceptions, one)
	}
	set, err := rules.Compile(file)
	if err != nil || len(set.Unfit()) > 0 {
		t.Fatal(err, set.Unfit())
	}
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()))
	if err != nil {
		t.Fatal(err)
	}
	var v gate.Verdict // the same for all, as in front ends
	for _, test := range []struct{ user, outcome, want string }{
		{"carl", "denied", "[block ]"}, {"dora", "passed", "[allow ]"},
		{"root", "passed", "[]"},               // by the file's own list
		{"ann", "passed", "[override second]"}, // the first rule's own list exempts her
		{"mallory", "denied", "[]"},            // by the rule's own list, whatever the limit
		{"fred", "denied", "[block first]"},    // the second rule was not asked
		{"eve", "passed", "[allow first]"},
		{"gina", "passed", "[block tried]"}, // it would be
		{"hugo", "passed", "[]"},
	} {
		r := &rules.Request{User: test.user}
		if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, e := range v.Exceptions(r) {
			names = append(names, e.ID)
		}
		if got := fmt.Sprint(names); got != test.want || v.Outcome.String() != test.outcome {
			t.Errorf("%s: %v by %s, want %s by %s", test.user, v.Outcome, got, test.outcome, test.want)
		}
	}
}
