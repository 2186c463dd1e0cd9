package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// compared returns what the candidate of a rule would change, as a text.
func compared(t *testing.T, g *gate.Gate, rule string) string {
	t.Helper()
	c, ok := g.Compare(rule)
	if !ok {
		return "nothing"
	}
	text := fmt.Sprintf("both %d, newly refused %d, newly granted %d, neither %d;", c.BothGrant, c.NewlyRefused, c.NewlyGranted, c.BothRefuse)
	for _, list := range [][]gate.Changed{c.Refused, c.Granted} {
		for _, changed := range list {
			text += fmt.Sprintf(" %s %d", changed.Key, changed.Count)
		}
		text += ";"
	}
	return text
}

func ask(t *testing.T, g *gate.Gate, user string, times int64) *gate.Verdict {
	t.Helper()
	v := new(gate.Verdict)
	if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Ask{Times: times}, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCandidatesAffectNoAnswer, and are decided as if they were in the place of their rules.
func TestCandidatesAffectNoAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		rules, asks, want string // asks are users, each with what becomes of the request
	}{
		"stricter": {`{name: a, key: [user], limit: fixed_window 3/1h, candidate: {limit: fixed_window 2/1h}}`,
			"ann+ ann+ ann+ ann- bob+", "both 3, newly refused 1, newly granted 0, neither 1; user=3:ann 1;;"},
		"wider": {`{name: a, key: [user], limit: fixed_window 2/1h, candidate: {limit: fixed_window 3/1h}}`,
			"ann+ ann+ ann- ann- bob+", "both 3, newly refused 0, newly granted 1, neither 1;; user=3:ann 1;"},
		"by another key": {`{name: a, key: [user], limit: fixed_window 2/1h, candidate: {limit: fixed_window 3/1h, key: [constant.all]}}`,
			"ann+ bob+ eve+ ann+ ann- bob+", "both 3, newly refused 2, newly granted 0, neither 1; user=3:ann 1 user=3:bob 1;;"},
		"by another algorithm": {`{name: a, key: [user], algorithm: fixed_window, limit: 2/1h, candidate: {limit: [1/1m, 9/1h], algorithm: sliding_log}}`,
			"ann+ ann+ ann-", "both 1, newly refused 1, newly granted 0, neither 1; user=3:ann 1;;"},
		"another rule refuses": {`{name: a, limit: fixed_window 3/1h, candidate: {limit: fixed_window 2/1h}}, {name: b, key: [user], limit: fixed_window 1/1h}`,
			"ann+ ann- ann- bob+ eve+ gus- ann-", "both 2, newly refused 1, newly granted 0, neither 1; all 1;;"},
		"an override": {`{name: a, key: [user], limit: fixed_window 2/1h, overrides: [{key: ann, limit: fixed_window 1/1h}], candidate: {limit: fixed_window 1/1h}}`,
			"ann+ ann- bob+ bob+", "both 1, newly refused 1, newly granted 0, neither 0; user=3:bob 1;;"},
		"a ban": {`{name: a, key: [user], limit: fixed_window 1/1h, ban: {after: 1 refusal within 1h, for: 1h}, candidate: {limit: fixed_window 9/1h}}`,
			"ann+ ann- ann- ann-", "both 1, newly refused 0, newly granted 1, neither 0;; user=3:ann 1;"},
		"in shadow": {`{name: a, mode: shadow, key: [user], limit: fixed_window 1/1h, candidate: {limit: fixed_window 9/1h}}`,
			"ann+ ann+", "both 0, newly refused 0, newly granted 0, neither 0;;;"},
		"together without its key": {`{name: a, key: [user], limit: fixed_window 2/1h, candidate: {limit: fixed_window 1/1h, key: [header.X]}}`,
			"ann+ bob+", "both 1, newly refused 1, newly granted 0, neither 0; user=3:bob 1;;"},
		"skipped without its key": {`{name: a, limit: fixed_window 1/1h, on_missing: skip, candidate: {limit: fixed_window 1/1h, key: [header.X]}}`,
			"ann+ ann-", "both 1, newly refused 0, newly granted 1, neither 0;; all 1;"},
		"denied without its key": {`{name: a, limit: fixed_window 1/1h, on_missing: deny, candidate: {limit: fixed_window 1/1h, key: [header.X]}}`,
			"ann+ ann-", "both 0, newly refused 1, newly granted 0, neither 1; all 1;;"},
		"none": {`{name: a, limit: fixed_window 1/1h}`, "ann+ ann-", "nothing"},
	} {
		g := open(t, memstore.New(), "rules: ["+test.rules+"]")
		for i, one := range strings.Fields(test.asks) {
			user, passes := strings.CutSuffix(one, "+")
			if v := ask(t, g, strings.TrimSuffix(user, "-"), 1); (v.Outcome == gate.Passed) != passes {
				t.Errorf("%s, request %d: %s is %v", name, i, one, v.Outcome)
			}
			if v := ask(t, g, strings.TrimRight(one, "+-"), 0); len(v.Differences()) > 0 {
				t.Errorf("%s: a look counts %+v", name, v.Differences())
			}
		}
		if got := compared(t, g, "a"); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
	}
}

func TestCandidatesCountEachOfSeveralTimes(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: a, key: [user], limit: fixed_window 5/1h, candidate: {limit: fixed_window 3/1h}}, {name: site, limit: fixed_window 7/1h}]`)
	if v := ask(t, g, "ann", 6); v.Granted != 5 || fmt.Sprint(v.Differences()[0].Times, v.Differences()[0].Live, v.Differences()[0].Candidate) != "6 5 3" {
		t.Errorf("granted %d, %+v", v.Granted, v.Differences())
	}
	if v := ask(t, g, "bob", 6); v.Granted != 2 { // the site grants no more: of the others nothing is known
		t.Errorf("granted %d", v.Granted)
	}
	if got, want := compared(t, g, "a"), "both 5, newly refused 2, newly granted 0, neither 1; user=3:ann 2;;"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestACandidateIsAShadow: its checks are marked, and its errors affect no request.
func TestACandidateIsAShadow(t *testing.T) {
	store := &faltering{Store: memstore.New()}
	g := open(t, store, `rules: [{name: a, key: [user], limit: fixed_window 1/1h, candidate: {limit: fixed_window 2/1h}}]`)
	v := ask(t, g, "ann", 1)
	if c := v.At(1); v.Len() != 2 || !c.Shadow || !c.Candidate || c.Claim.Limit.Name() != "a.candidate" || c.Granted != 1 {
		t.Errorf("of %d checks the last is %+v", v.Len(), c)
	}
	v = ask(t, g, "ann", 1)
	if worst, _ := v.Worst(); v.Outcome != gate.Refused || worst.Candidate || worst.Claim.Limit.Name() != "a" || v.Rule.Name() != "a" || v.Granted != 0 {
		t.Errorf("%v by %s", v.Outcome, worst.Claim.Limit.Name())
	}
	store.n = 2
	if v := ask(t, g, "bob", 1); v.Outcome != gate.Passed || v.Err != nil || v.Len() != 1 || len(v.Differences()) != 0 {
		t.Errorf("the candidate fails: %v, %v, %d checks", v.Outcome, v.Err, v.Len())
	}
	store.n = 1
	if v := ask(t, g, "eve", 1); v.Outcome != gate.Passed || v.Err == nil || len(v.Differences()) != 0 {
		t.Errorf("the store fails: %v, %v", v.Outcome, v.Err)
	}
}

// TestComparisonOutlivesOtherChanges, and starts anew when the rule or its candidate changes.
func TestComparisonOutlivesOtherChanges(t *testing.T) {
	const text = `{name: a, key: [user], limit: fixed_window 1/1h, candidate: {limit: fixed_window 2/1h}}`
	now := time.Unix(1000, 0)
	g := open(t, memstore.New(), "rules: ["+text+"]", gate.WithClock(func() time.Time { return now }))
	ask(t, g, "ann", 1)
	for _, test := range []struct {
		rules string
		since int64
		both  int64
	}{
		{"{name: b, limit: 1000/1s}, " + text, 1000, 2},
		{strings.Replace(text, "2/1h", "3/1h", 1), 1002, 1},
		{strings.Replace(text, "1/1h", "4/1h", 1), 1003, 1},
		{text, 1004, 1},
		{strings.Replace(text, "[user]", "[user lower]", 1), 1005, 1},
		{strings.Replace(text, "2/1h", "2/1h, key: [header.X]", 1), 1006, 1},
		{strings.Replace(text, "2/1h", "2/1h, key: [header.Y]", 1), 1007, 1},
	} {
		now = now.Add(time.Second)
		if err := g.Swap(compiled(t, "rules: ["+test.rules+"]")); err != nil {
			t.Fatal(err)
		}
		ask(t, g, fmt.Sprint("user", test.since), 1)
		if c, _ := g.Compare("a"); c.Since.Unix() != test.since || c.BothGrant != test.both || c.Rule != g.Rules().Rules()[len(g.Rules().Rules())-1] {
			t.Errorf("%s: since %d %d are granted by both; want %+v", test.rules, c.Since.Unix(), c.BothGrant, test)
		}
	}
	if err := g.Swap(compiled(t, "rules: []")); err != nil {
		t.Fatal(err)
	}
	if _, ok := g.Compare("a"); ok {
		t.Error("a rule that is gone is compared")
	}
}

// TestComparedKeysAreBounded, and a frequent key is among them whatever other keys come.
func TestComparedKeysAreBounded(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: a, key: [user], limit: 1000000/1s, candidate: {limit: fixed_window 1/1h}}]`)
	for i := range 300 {
		ask(t, g, fmt.Sprint("once-", i), 2)
		ask(t, g, "often", 2)
	}
	c, _ := g.Compare("a")
	if len(c.Refused) != 100 || c.Refused[0] != (gate.Changed{Key: "user=5:often", Count: 599}) || c.NewlyRefused != 899 {
		t.Errorf("%d keys, the first is %+v; %d newly refused", len(c.Refused), c.Refused[0], c.NewlyRefused)
	}
	for _, changed := range c.Refused[1:] {
		if changed.Count-changed.Over > 1 {
			t.Errorf("%+v was refused once", changed)
		}
	}
}

func TestCandidatesOnRedisEqualThoseInMemory(t *testing.T) {
	g := open(t, onRedis(t), `rules: [{name: a, key: [user], limit: fixed_window 3/1h, candidate: {limit: fixed_window 2/1h, key: [constant.all]}}]`)
	for range 4 {
		ask(t, g, "ann", 1)
	}
	if got, want := compared(t, g, "a"), "both 2, newly refused 1, newly granted 0, neither 1; user=3:ann 1;;"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
