package ruleset

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestDiff(t *testing.T) {
	with := func(s rules.Spec, change func(*rules.Spec)) rules.Spec {
		change(&s)
		return s
	}
	login := rules.Spec{Name: "login", Key: []string{"client.ip"}, Limit: []string{"5/1m", "20/1h"}}
	tests := []struct {
		name     string
		old, new *rules.File
		want     string
	}{
		{"nothing", file(login), file(login), ""},
		{"no rules at all", nil, nil, ""},
		{"the first rules", nil, file(login), "login: added"},
		{"no rules any more", file(login), nil, "login: removed"},
		{"the order", file(login, spec("x", "1/1s")), file(spec("x", "1/1s"), login), ""},
		{"numbers", file(login), file(with(login, func(s *rules.Spec) { s.Limit = []string{"6/1m", "20/1h"} })),
			"login: limit 5/1m, 20/1h -> 6/1m, 20/1h; counts are kept"},
		{"words for the same algorithm", file(login), file(with(login, func(s *rules.Spec) { s.Algorithm = "gcra" })),
			"login: algorithm changed; counts are kept"},
		{"the algorithm", file(login), file(with(login, func(s *rules.Spec) { s.Algorithm = "sliding_log" })),
			"login: algorithm changed; counts start anew: limit 1 counts by sliding_log, no longer by token_bucket; limit 2 counts by sliding_log, no longer by token_bucket"},
		{"the second limit's algorithm", file(login), file(with(login, func(s *rules.Spec) { s.Limit = []string{"5/1m", "fixed_window 20/1h"} })),
			"login: limit 5/1m, 20/1h -> 5/1m, fixed_window 20/1h; counts start anew: limit 2 counts by fixed_window, no longer by token_bucket"},
		{"one limit more", file(login), file(with(login, func(s *rules.Spec) { s.Limit = []string{"5/1m", "20/1h", "50/1d"} })),
			"login: limit 5/1m, 20/1h -> 5/1m, 20/1h, 50/1d; counts are kept"},
		{"the key", file(login), file(with(login, func(s *rules.Spec) { s.Key = []string{"client.ip", "user"} })),
			"login: key changed; counts start anew: its key is another"},
		{"the key's spaces", file(login), file(with(login, func(s *rules.Spec) { s.Key = []string{" client.ip "} })),
			"login: key changed; counts are kept"},
		{"match and cost", file(login), file(with(login, func(s *rules.Spec) { s.Match.Path = "/login"; s.Cost.Units = 2 })),
			"login: match, cost changed; counts are kept"},
		{"an override's numbers", file(overriding(login, "50/1m")), file(overriding(login, "60/1m")),
			"login: overrides changed; counts are kept"},
		{"an override of the same algorithm", file(login), file(overriding(login, "gcra 50/1m")),
			"login: overrides changed; counts are kept"},
		{"an override of another algorithm", file(login), file(overriding(login, "sliding_log 50/1m")),
			"login: overrides changed; counts start anew: 1 of its overrides have or had limits of another algorithm"},
		{"no such override any more", file(overriding(login, "sliding_log 50/1m")), file(login),
			"login: overrides changed; counts start anew: 1 of its overrides have or had limits of another algorithm"},
		{"fields of the file", &rules.File{Server: rules.Server{Store: "memory"}}, &rules.File{Response: rules.Response{Status: 503}, Server: rules.Server{Store: "memory"}}, "file: response changed"},
		{"from shadow", file(with(login, func(s *rules.Spec) { s.Mode = rules.Shadow })), file(login),
			"login: mode shadow -> enforce; counts start anew: a rule in shadow counts by itself"},
		{"a percentage", file(with(login, func(s *rules.Spec) { s.EnforcePercent = share(10) })), file(with(login, func(s *rules.Spec) { s.EnforcePercent = share(20) })),
			"login: enforce_percent 10 -> 20; counts start anew: keys are counted in shadow that are not among its percentage, which was 10 and is 20"},
		{"all of a percentage", file(with(login, func(s *rules.Spec) { s.EnforcePercent = share(100) })), file(login),
			"login: enforce_percent changed; counts are kept"},
		{"a percentage in shadow", file(with(login, func(s *rules.Spec) { s.Mode, s.EnforcePercent = rules.Shadow, share(10) })), file(with(login, func(s *rules.Spec) { s.Mode = rules.Shadow })),
			"login: enforce_percent 10 -> 100; counts are kept"},
		{"a list without values", file(login), file(with(login, func(s *rules.Spec) { s.Match.Method = []string{} })),
			"login: match changed; counts are kept"},
		{"renamed", file(login, spec("x", "1/1s")), file(with(login, func(s *rules.Spec) { s.Name = "signin" }), spec("x", "1/1s")),
			"signin: renamed from login; counts start anew: its name is another"},
		{"one of two alike renamed", file(spec("a", "1/1s"), spec("b", "1/1s")), file(spec("c", "1/1s")),
			"c: renamed from a; counts start anew: its name is another\nb: removed"},
		{"one made two", file(spec("a", "1/1s")), file(spec("b", "1/1s"), spec("c", "1/1s")), "b: renamed from a; counts start anew: its name is another\nc: added"},
		{"another instead", file(spec("a", "1/1s")), file(spec("b", "2/1s")), "b: added\na: removed"},
		{"no limit at all", file(spec("a", "nonsense")), file(spec("a", "1/60")),
			"a: limit nonsense -> 1/60; counts start anew: limit 1 counts by 1/60, no longer by nonsense"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := lines(Diff(test.old, test.new)); got != test.want {
				t.Errorf("it says\n%s\nnot\n%s", got, test.want)
			}
		})
	}
}

func share(percent int) *int { return &percent }

func lines(changes []Change) string {
	var list []string
	for _, c := range changes {
		list = append(list, c.String())
	}
	return strings.Join(list, "\n")
}

// overriding is a rule with other limits for one client.
func overriding(s rules.Spec, limit string) rules.Spec {
	s.Overrides = []rules.Override{{Key: []string{"203.0.113.7"}, Limit: []string{limit}}}
	return s
}

// A summary is short, however much changed.
func TestSummary(t *testing.T) {
	var old, new rules.File
	for i := range 26 {
		name := string(rune('a' + i))
		old.Rules = append(old.Rules, spec(name, "1/1s"))
		new.Rules = append(new.Rules, spec(name, "fixed_window 1/1s"))
	}
	new.Rules = append(new.Rules[1:], spec("new", "2/1s"))
	want := "25 changed, 1 added, 1 removed, counts start anew: b, c, d, e, f and 20 more"
	if got := Summary(Diff(&old, &new)); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}

func TestChangesThatAreKept(t *testing.T) {
	old, new := file(spec("a", "1/1s")), file(spec("a", "9/1s"))
	if slices.ContainsFunc(Diff(old, new), func(c Change) bool { return c.Anew != "" || c.Kind != Changed }) {
		t.Error("new numbers start counts anew")
	}
}

// TestDiffOfMany: a rule that was added, removed or moved among many leaves the others alone,
// whether they were read again or lie where they lay.
func TestDiffOfMany(t *testing.T) {
	many := func() []rules.Spec {
		var list []rules.Spec
		for i := range 100 {
			s := spec("r"+strconv.Itoa(i), "5/1m")
			s.Key, s.Match.Header, s.EnforcePercent = []string{"user"}, map[string][]string{"X": {"a", "b"}}, new(int)
			list = append(list, s)
		}
		return list
	}
	old := many()
	for _, again := range [][]rules.Spec{old, many()} {
		for _, test := range []struct {
			what string
			list []rules.Spec
			want string
		}{
			{"the same", again, ""},
			{"the last", slices.Concat(again[:99], []rules.Spec{spec("r99", "6/1m")}), "r99: limit 5/1m -> 6/1m; enforce_percent 0 -> 100; match, key changed; counts start anew: its key is another; keys are counted in shadow that are not among its percentage, which was 0 and is 100"},
			{"one more", slices.Concat(again, []rules.Spec{spec("more", "1/1s")}), "more: added"},
			{"one before", slices.Concat([]rules.Spec{spec("more", "1/1s")}, again), "more: added"},
			{"one less", again[:99], "r99: removed"},
			{"without the first", again[1:], "r0: removed"},
			{"another order", slices.Concat(again[50:], again[:50]), ""},
		} {
			if got := lines(Diff(file(old...), file(test.list...))); got != test.want {
				t.Errorf("%s: got %s, want %s", test.what, got, test.want)
			}
		}
	}
}
