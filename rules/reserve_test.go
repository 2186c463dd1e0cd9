package rules_test

import (
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestClassOf(t *testing.T) {
	for name, test := range map[string]struct {
		reserve string
		want    map[string]string // class by user
	}{
		"the least important class has all others": {"by: user, classes: {a: 0%, b: 20%, c: 50%}",
			map[string]string{"a": "a", "b": "b", "c": "c", "d": "c", "": "c"}},
		"or the named one": {"by: user, classes: {a: 0%, b: 20%, c: 50%}, otherwise: b",
			map[string]string{"a": "a", "b": "b", "c": "c", "d": "b", "": "b"}},
		"normalised": {"by: user trim lower, classes: {a: 0%, b: 20%}", map[string]string{" A ": "a", "B": "b", "C": "b"}},
	} {
		set := compiled(t, "rules: [{name: r, limit: 10/1m, reserve: {"+test.reserve+"}}]")
		for user, want := range test.want {
			if got := set.Rules()[0].ClassOf(&rules.Request{User: user}); got == nil || got.Name != want {
				t.Errorf("%s: user %q is of class %v, want %s", name, user, got, want)
			}
		}
	}
	if class := compiled(t, "rules: [{name: r, limit: 10/1m}]").Rules()[0].ClassOf(&rules.Request{}); class != nil {
		t.Errorf("without reserve: class %v", class)
	}
}

// TestFloor: a share is of all that a limit may grant at once, rounded up.
func TestFloor(t *testing.T) {
	for limit, want := range map[string]int64{
		"fixed_window 10/1m": 2, "sliding_log 11/1m": 3, "7/1m": 2, "5/1m overdraft 6": 3, "leaky_queue 1/1s queue 49": 10,
		"concurrency 1 ttl 1s": 1, "fixed_window 4503599627370496/1h": 900719925474100,
	} {
		rule := compiled(t, "rules: [{name: r, limit: "+limit+", reserve: {by: user, classes: {a: 0%, b: 20%}}}]").Rules()[0]
		classes := rule.Classes()
		if got := classes[1].Floor(rule.Limits()[0]); got != want || classes[0].Floor(rule.Limits()[0]) != 0 {
			t.Errorf("20%% of %s is %d, want %d", limit, got, want)
		}
	}
	if floor := (*rules.Class)(nil).Floor(nil); floor != 0 {
		t.Errorf("no class leaves %d", floor)
	}
}

// TestClassOfMatch: the most important class whose conditions a request meets, else the one by value, else otherwise.
func TestClassOfMatch(t *testing.T) {
	set := compiled(t, `rules:
  - name: shop
    limit: 10/1m
    reserve:
      by: user
      classes: {pay: 0%, vip: 10%, browse: 20%, export: 50%}
      match:
        pay: [{path: "/pay/**", method: [POST, GET]}, {host: pay.example.com}]
        export: {path: "/**", header: {X-Job: "*"}, regex: {path: ".*/export"}}
      otherwise: browse
`)
	rule := set.Rules()[0]
	for _, test := range []struct {
		request rules.Request
		want    string
	}{
		{rules.Request{Method: "POST", Path: "/pay/x"}, "pay"},
		{rules.Request{Method: "HEAD", Path: "/pay"}, "pay"},
		{rules.Request{Method: "PUT", Path: "/pay/x"}, "browse"},
		{rules.Request{Method: "PUT", Path: "/", Host: "pay.example.com", User: "export"}, "pay"},
		{rules.Request{Path: "/x", User: "vip"}, "vip"},
		{rules.Request{Path: "/x", User: "export"}, "export"},
		{rules.Request{Path: "/x/export", Attributes: attributes{"header X-Job": "1"}, User: "vip"}, "export"},
		{rules.Request{Path: "/x/export"}, "browse"},
		{rules.Request{}, "browse"},
	} {
		if class := rule.ClassOf(&test.request); class.Name != test.want {
			t.Errorf("%+v is of class %s, want %s", test.request, class.Name, test.want)
		}
	}
	post := rules.Request{Method: "POST", Path: "/pay/x"}
	if n := testing.AllocsPerRun(100, func() { rule.ClassOf(&post) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestClassesReadAsRulesDo: conditions of classes need what those of rules need of a request.
func TestClassesReadAsRulesDo(t *testing.T) {
	set := compiled(t, `rules:
  - name: shop
    limit: 10/1m
    reserve: {classes: {a: 0%, b: 9%}, match: {a: [{json: {model: large}}, {country: CH}, {descriptor: {d: e}}]}}
`)
	rule := set.Rules()[0]
	if country, _ := set.Located(); !country || !rule.Described() {
		t.Errorf("country %t, described %t", country, rule.Described())
	}
	request := rules.Request{Attributes: posted{attributes{}, set, `{"model": "large"}`}}
	if class := rule.ClassOf(&request); class.Name != "a" || rule.Doubt(&request) != nil {
		t.Errorf("by its body the request is of class %s, in doubt: %v", class.Name, rule.Doubt(&request))
	}
	for _, body := range []string{`{"model": "large", "Model": "small"}`, `{"model": ["large"]}`, "(unread)"} {
		if err := rule.Doubt(&rules.Request{Attributes: posted{attributes{}, set, body}}); err == nil {
			t.Errorf("%s: a client chooses its class", body)
		}
	}
}
