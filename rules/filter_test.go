package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestExpressionsMatchTheWholeText: the path is that of patterns, a client cannot evade by its spelling, and the rule
// applies to a text that is too long to be matched.
func TestExpressionsMatchTheWholeText(t *testing.T) {
	long := "/" + strings.Repeat("x", bounds.Text)
	for _, test := range []struct {
		form, match, path string
		want              bool
	}{
		{"", `{regex: {path: "/v[0-9]+/a"}}`, "/v12/a", true},
		{"", `{regex: {path: "/v[0-9]+/a"}}`, "/v12/a/b", false},
		{"", `{regex: {path: "/v[0-9]+/a"}}`, "/x/v12/a", false},
		{"", "{regex: {path: /a|/b}}", "/a/x", false},
		{"", "{regex: {path: /a|/b}}", "/b", true},
		{"", "{regex: {path: '^/a$'}}", "/a", true},
		{"", "{regex: {path: /login.*}}", "/%6cogin;x=1", true},
		{"", "{regex: {path: /login.*}}", "/login/%0Ax", true},
		{"", "{regex: {path: /a/b}}", "/a%2Fb", false},
		{"", "{regex: {path: /a%2Fb}}", "/a%2fb", true},
		{"", "{regex: {path: '\\Q/a.b'}}", "/a.b", true},
		{"", "{regex: {path: '\\Q/a.b'}}", "/axb", false},
		{"server: {path_form: ignore-case}\n", "{regex: {path: /Login}}", "/login", true},
		{"server: {path_form: drop-trailing-slash}\n", "{regex: {path: /login}}", "/login/;x", true},
		{"", "{regex: {path: /login}}", long, true},
		{"", "{not: {regex: {path: /.*}}}", long, true},
		{"", "{not: {regex: {path: /.*}}}", "/x", false},
		{"", "{regex: {path: .*}}", "", false},
		{"", "{path: /api/**, not: [{path: /api/health}, {method: OPTIONS}]}", "/api/health", false},
		{"", "{path: /api/**, not: [{path: /api/health}, {method: OPTIONS}]}", "/api/x", true},
		{"", "{any: [{path: /a}, {path: /b, method: POST}]}", "/a", true},
		{"", "{any: [{path: /a}, {path: /b, method: POST}]}", "/b", false},
		{"", "{path: /a, any: {path: /b}}", "/a", false},
	} {
		set := compiled(t, test.form+"rules: [{name: a, limit: 1/1s, match: "+test.match+"}]")
		if got := len(set.Match(&rules.Request{Method: "GET", Path: test.path}, nil)) == 1; got != test.want {
			t.Errorf("%s%s matches %.40s: %v", test.form, test.match, test.path, got)
		}
	}
}

// TestFilteredRulesCannotNeedTooManyClaims: whether two expressions match one text is not known, so both count; of a
// group one does, the one with the most limits.
func TestFilteredRulesCannotNeedTooManyClaims(t *testing.T) {
	const five = "[1/1s, 2/1m, 3/1h, 4/1d, 5/1d, 6/1d, 7/1d, 8/1d]"
	rule := func(name, group string) string {
		return "  - {name: " + name + ", " + group + "limit: " + five + ", match: {regex: {path: /" + name + "}}}\n"
	}
	var alone, grouped strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		alone.WriteString(rule(name, ""))
		grouped.WriteString(rule(name, "group: g, "))
	}
	_, err := rules.Load("f", []byte("rules:\n"+alone.String()))
	if err == nil || !strings.Contains(err.Error(), "may meet, if regex, any and not are met, rules with 40 limits") {
		t.Errorf("five expressions with eight limits each: %v", err)
	}
	if _, err := rules.Load("f", []byte("rules:\n"+grouped.String())); err != nil {
		t.Error(err)
	}
}

func TestFilteredRulesOfGroups(t *testing.T) {
	set := compiled(t, `rules:
  - {name: all, group: g, limit: 1/1s}
  - {name: text, group: g, limit: 1/1s, match: {regex: {path: "/[abc]"}}}
  - {name: worst, group: g, limit: 1/1s, match: {any: [{path: /a}, {path: /**, method: GET}]}}
  - {name: one, group: g, limit: 1/1s, match: {path: "/*", not: {path: /b}}}`)
	for path, want := range map[string]string{"/a": "one", "/b": "worst", "/x/y": "worst", "": "all"} {
		if got := names(set.Match(&rules.Request{Method: "GET", Path: path}, nil)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := names(set.Match(&rules.Request{Method: "PUT", Path: "/b"}, nil)); got != "text" {
		t.Errorf("PUT /b: %s", got)
	}
}

func TestFilteredRulesAreCounted(t *testing.T) {
	set := compiled(t, `rules:
  - {name: a, limit: 1/1s, match: {path: /a, regex: {header: {X: a}}}}
  - {name: b, limit: 1/1s, match: {not: {path: /a}}}
  - {name: c, limit: 1/1s, match: {any: [{path: /a}, {path: /b}]}}
  - {name: d, limit: 1/1s}`)
	all, everywhere, work := set.Filtered()
	if all != 3 || everywhere != 1 {
		t.Errorf("%d filtered, %d of them everywhere", all, everywhere)
	}
	if work < bounds.Text || work > 5*bounds.Text {
		t.Errorf("work of one expression of a few steps: %d", work)
	}
}

// TestExpressionsCannotCostARequestTooMuch: a client chooses the texts. The sum is of the rules that one request may
// meet, so rules of other paths, hosts and methods do not count.
func TestExpressionsCannotCostARequestTooMuch(t *testing.T) {
	const crawlers = "(?i).*(bot|crawl|spider|slurp|curl|wget|python).*"
	const agents = "regex: {header: {User-Agent: '" + crawlers + "'}}"
	var paths, headers []string
	for i := range bounds.Alternatives {
		paths = append(paths, fmt.Sprintf("{path: /p%d, %s}", i, agents))
		headers = append(headers, fmt.Sprintf("{header: {X-%d: a}, %s}", i, agents))
	}
	for _, test := range []struct {
		match string // of 30 rules, with their number for N
		line  string // of the first that is too much, of those after line 1; "": none
	}{
		{"{" + agents + "}", "24"},
		{"{path: /api/**, " + agents + "}", "24"},
		{"{not: {" + agents + "}}", "24"},
		{"{any: [{" + agents + "}, {header: {X: a}, " + agents + "}]}", "13"},
		{"{" + agents + ", not: {" + agents + "}}", "13"},
		{"{any: [" + strings.Join(headers, ", ") + "]}", "3"},
		{"{not: [" + strings.Join(headers, ", ") + "]}", "3"},
		{"{path: /N/**, " + agents + "}", ""},
		{"{host: N.example.com, " + agents + "}", ""},
		{"{header: {X-N: N}, path: /N, " + agents + "}", ""},
		{"{path: /N/*, any: [{path: /N/*, method: GET}, {method: POST}], " + agents + "}", ""},
		{"{path: /N/**, not: [" + strings.Join(paths, ", ") + "]}", ""},
	} {
		text := "rules:\n"
		for i := range 30 {
			match := strings.ReplaceAll(test.match, "N", fmt.Sprint(i))
			text += fmt.Sprintf("- {name: r%d, group: g, limit: 1/1s, match: %s}\n", i, match)
		}
		_, err := rules.Load("f", []byte(text))
		if test.line == "" && err != nil {
			t.Errorf("%.80s: %v", test.match, err)
		}
		if test.line != "" && (err == nil || !strings.Contains(err.Error(), "f:"+test.line+":") ||
			!strings.Contains(err.Error(), "steps times bytes in regular expressions, about ") ||
			!strings.Contains(err.Error(), "ms; at most 1048576:")) {
			t.Errorf("%.80s: not a mistake of line %s: %.300v", test.match, test.line, err)
		}
	}
}

// TestExpressionsOfClassesCount: as those of a match.
func TestExpressionsOfClassesCount(t *testing.T) {
	text := "rules:\n"
	for i := range 30 {
		text += fmt.Sprintf("- {name: r%d, limit: 9/1s, reserve: {classes: {a: 0%%, b: 9%%}, match: {a: {regex: {header: "+
			"{User-Agent: '(?i).*(bot|crawl|spider|slurp|curl|wget|python).*'}}}}}}\n", i)
	}
	if _, err := rules.Load("f", []byte(text)); err == nil || !strings.Contains(err.Error(), "f:24:") {
		t.Errorf("not a mistake of line 24: %.300v", err)
	}
}

func TestLintWarnsOfManyScans(t *testing.T) {
	var text strings.Builder
	for i := range 101 {
		fmt.Fprintf(&text, "  - {name: r%d, group: g, limit: 5/1m, match: {not: {header: {X: a%[1]d}}}}\n", i)
	}
	for n, want := range map[int]int{100: 0, 101: 1} {
		lines := strings.SplitAfter(text.String(), "\n")
		_, warnings, err := rules.Lint("f", []byte("rules:\n"+strings.Join(lines[:n], "")))
		if err != nil || len(warnings) != want {
			t.Errorf("%d rules: %v %v", n, warnings, err)
		}
	}
}

// FuzzExpressions: what Parse accepts is bounded, and matches without panic.
func FuzzExpressions(f *testing.F) {
	f.Add("/v[0-9]+", "/v1")
	f.Add("(a|b)*c{1,100}\\Q)", "%2F%0a;/")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		match := rules.Match{Regex: rules.Expressions{Path: []string{pattern}, Header: map[string][]string{"X": {pattern}}}}
		spec := rules.Spec{Name: "a", Limit: []string{"1/1s"}, Match: match}
		set, err := rules.Compile(&rules.File{Rules: []rules.Spec{spec}})
		if err == nil {
			set.Match(&rules.Request{Path: path, Attributes: attributes{"header X": path}}, nil)
		}
	})
}
