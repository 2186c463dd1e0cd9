package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// excepted compiles rules with exceptions laid over them.
func excepted(t testing.TB, text string, list ...rules.Exception) *rules.Set {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	file.Exceptions = list
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const standing = `
allow: {client.ip: 192.0.2.0/24}
deny: {client.ip: 198.51.100.0/24}
rules:
  - name: per-user
    key: [user lower]
    limit: 100/1m
    overrides: [{key: ann, limit: 200/1m}, {key: team-*, limit: 300/1m}]
    deny: {user: mallory}
  - name: both
    match: {path: "/jobs/{id}"}
    key: [client.ip, path.id]
    limit: [10/1m, 100/1h]
  - {name: all, limit: 1000/1m}
`

func address(text string) rules.Request { return rules.Request{Client: netip.MustParseAddr(text)} }

func TestExceptionsAreLaidOverLists(t *testing.T) {
	set := excepted(t, standing,
		rules.Exception{ID: "1", Kind: rules.Blocked, Values: []string{"192.0.2.7"}},
		rules.Exception{ID: "2", Kind: rules.Blocked, Values: []string{"203.0.113.0/24"}},
		rules.Exception{ID: "3", Kind: rules.LetPass, Values: []string{"198.51.100.7"}},
		rules.Exception{ID: "4", Kind: rules.LetPass, Values: []string{"203.0.113.9"}},
		rules.Exception{ID: "5", Kind: rules.Blocked, Component: "header.X-Key", Values: []string{"stolen-*"}},
		rules.Exception{ID: "6", Kind: rules.Blocked, Rule: "per-user", Values: []string{"eve"}},
		rules.Exception{ID: "7", Kind: rules.LetPass, Rule: "per-user", Values: []string{"mallory"}},
		rules.Exception{ID: "8", Kind: rules.Blocked, Rule: "both", Component: "path.id", Values: []string{"7"}})
	for _, test := range []struct {
		name         string
		request      rules.Request
		file, a, two rules.Listing
	}{
		{"blocked, although its network is let pass", address("192.0.2.7"), rules.Denied, 0, 0},
		{"its neighbour", address("192.0.2.8"), rules.Allowed, 0, 0},
		{"let pass, although its network is denied", address("198.51.100.7"), rules.Allowed, 0, 0},
		{"its neighbour", address("198.51.100.8"), rules.Denied, 0, 0},
		{"a block goes before an allow", address("203.0.113.9"), rules.Denied, 0, 0},
		{"by a header", rules.Request{Attributes: attributes{"header X-Key": "stolen-1"}}, rules.Denied, 0, 0},
		{"of a rule", rules.Request{User: "Eve"}, 0, rules.Denied, 0},
		{"of a rule that denies", rules.Request{User: "mallory"}, 0, rules.Allowed, 0},
		{"by a path's name", rules.Request{Path: "/jobs/7"}, 0, 0, rules.Denied},
	} {
		file, a, two := set.Listed(&test.request), set.Rules()[0].Listed(&test.request), set.Rules()[1].Listed(&test.request)
		if file != test.file || a != test.a || two != test.two {
			t.Errorf("%s: %v %v %v, want %v %v %v", test.name, file, a, two, test.file, test.a, test.two)
		}
	}
	if len(set.Unfit()) > 0 {
		t.Errorf("%v do not fit", set.Unfit())
	}
}

func TestExceptionsAreLaidOverOverrides(t *testing.T) {
	override := func(rule, limit string, values ...string) rules.Exception {
		return rules.Exception{ID: rule + limit, Kind: rules.Overridden, Rule: rule, Values: values, Limit: []string{limit}}
	}
	set := excepted(t, standing, override("per-user", "1/1m", "ann"), override("per-user", "2/1m", "bob"),
		override("per-user", "3/1m", "team-red-*"), override("both", "4/1m", "10.0.0.0/8", "*"), override("both", "5/1m", "10.0.0.1", "7"))
	for _, test := range []struct {
		rule    int
		request rules.Request
		values  []string
		want    string
	}{
		{0, rules.Request{User: "Ann"}, []string{"Ann"}, "[1/1m]"},
		{0, rules.Request{User: "bob"}, []string{"bob"}, "[2/1m]"},
		{0, rules.Request{User: "team-red-1"}, []string{"team-red-1"}, "[3/1m]"},
		{0, rules.Request{User: "team-blue"}, []string{"team-blue"}, "[300/1m]"},
		{0, rules.Request{User: "carol"}, []string{"carol"}, "[100/1m]"},
		{1, rules.Request{Path: "/jobs/1", Client: netip.MustParseAddr("10.1.2.3")}, []string{"10.1.2.3", "1"}, "[4/1m]"},
		{1, rules.Request{Path: "/jobs/7", Client: netip.MustParseAddr("10.0.0.1")}, []string{"10.0.0.1", "7"}, "[5/1m]"},
		{1, rules.Request{Path: "/jobs/7", Client: netip.MustParseAddr("2001:db8::1")}, []string{"2001:db8::2", "7"}, "[10/1m 100/1h]"},
		{2, rules.Request{}, nil, "[1000/1m]"},
	} {
		rule := set.Rules()[test.rule]
		key, ok := rule.AppendKey(nil, &test.request)
		if got := fmt.Sprint(rule.LimitsFor(&test.request, key)); !ok || got != test.want {
			t.Errorf("%v: %s, want %s", test.values, got, test.want)
		}
		looked, limits, err := rule.Lookup(test.values) // finds the same without a request
		if err != nil || string(looked) != string(key) || fmt.Sprint(limits) != test.want {
			t.Errorf("%v: %q %v %v; want %q %s", test.values, looked, limits, err, key, test.want)
		}
	}
	if len(set.Unfit()) > 0 {
		t.Errorf("%v do not fit", set.Unfit())
	}
}

func TestLookupMistakes(t *testing.T) {
	set := excepted(t, standing)
	for _, test := range []struct {
		rule   int
		values []string
		want   string
	}{
		{0, nil, "one for each component of the rule per-user: 1 (user lower)"},
		{0, []string{""}, "a value of 1 to 1024 bytes"},
		{1, []string{"10.0.0.0/8", "1"}, "one client, which is a network of /32 or an address in it"},
		{1, []string{"nobody", "1"}, "an address such as 192.0.2.7"},
	} {
		if _, _, err := set.Rules()[test.rule].Lookup(test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.values, err, test.want)
		}
	}
}

// TestUnfitExceptionsAreReported; the others, and the rules, are in force.
func TestUnfitExceptionsAreReported(t *testing.T) {
	list := []rules.Exception{
		{ID: "a rule that is gone", Kind: rules.Overridden, Rule: "gone", Values: []string{"x"}, Limit: []string{"1/1m"}},
		{ID: "two values", Kind: rules.Overridden, Rule: "per-user", Values: []string{"x", "y"}, Limit: []string{"1/1m"}},
		{ID: "no limit", Kind: rules.Overridden, Rule: "per-user", Values: []string{"x"}, Limit: []string{"often"}},
		{ID: "no key", Kind: rules.Overridden, Rule: "all", Values: []string{"x"}, Limit: []string{"1/1m"}},
		{ID: "no rule", Kind: rules.Overridden, Values: []string{"x"}, Limit: []string{"1/1m"}},
		{ID: "everybody", Kind: rules.Blocked, Component: "user", Values: []string{"*"}},
		{ID: "no address", Kind: rules.Blocked, Values: []string{"user-42"}},
		{ID: "by what", Kind: rules.Blocked, Rule: "both", Values: []string{"10.0.0.1"}},
		{ID: "a path of no rule", Kind: rules.LetPass, Component: "path.id", Values: []string{"1"}},
		{ID: "what", Kind: "hide", Values: []string{"10.0.0.1"}},
		{ID: "nobody", Kind: rules.Blocked},
		{ID: "good", Kind: rules.Overridden, Rule: "per-user", Values: []string{"x"}, Limit: []string{"7/1m"}},
	}
	set := excepted(t, standing, list...)
	var got []string
	for _, u := range set.Unfit() {
		got = append(got, u.Field+": "+u.Message)
	}
	for _, want := range []string{"a rule that is gone: there is no rule of this name", "two values: overrides[0].key has 2 values, and the rule's key 1",
		`no limit: limit is "often"`, "no key: the rule has no key", "no rule: its kind", "everybody: block by \"user\" of \"*\": it is for everybody",
		`no address: block by "client.ip" of "user-42": allowed: an address`, "by what: block by \"\"", "a path of no rule:", `what: its kind is "hide"`, "nobody: block needs one value"} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("nothing is said like %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(list)-1 {
		t.Errorf("%d do not fit:\n%s", len(got), strings.Join(got, "\n"))
	}
	if _, limits, err := set.Rules()[0].Lookup([]string{"x"}); err != nil || fmt.Sprint(limits) != "[7/1m]" {
		t.Errorf("%v %v", limits, err)
	}
	file := &rules.File{Exceptions: make([]rules.Exception, bounds.Exceptions+1)}
	if _, err := rules.Compile(file); err == nil || !strings.Contains(err.Error(), "1001 values; at most 1000") {
		t.Error(err)
	}
}

// TestAnExceptionTakesNoRulesName: with two limits it would have a state that is another
// rule's. That is the exception's mistake, wherever the rule stands, and not the file's: or
// one override would keep out whatever comes after it.
func TestAnExceptionTakesNoRulesName(t *testing.T) {
	e := rules.Exception{ID: "two limits", Kind: rules.Overridden, Rule: "login", Values: []string{"ann"}, Limit: []string{"1/1m", "9/1h"}}
	for _, text := range []string{
		"rules: [{name: login, key: [user], limit: 5/1m}, {name: login.2, limit: 7/1m}]",
		"rules: [{name: login.2, limit: 7/1m}, {name: login, key: [user], limit: 5/1m}]",
	} {
		set := excepted(t, text, e)
		if got := set.Unfit(); len(got) != 1 || got[0].Field != e.ID || !strings.Contains(got[0].Message, `the limit would be called "login.2"`) {
			t.Errorf("%s: %+v", text, got)
		}
		for _, rule := range set.Rules() {
			if rule.Name() != "login" {
				continue
			}
			if _, limits, err := rule.Lookup([]string{"ann"}); err != nil || fmt.Sprint(limits) != "[5/1m]" {
				t.Errorf("%s: %v %v", text, limits, err)
			}
		}
	}
}

func FuzzException(f *testing.F) {
	f.Add("override", "per-user", "", "ann", "5/1m")
	f.Add("override", "both", "", "10.0.0.0/8", "5/1m")
	f.Add("block", "", "client.ip", "::ffff:10.0.0.1", "")
	f.Add("allow", "both", "path.id", "7*", "")
	f.Add("block", "all", "header.X-Key trim lower", "\xff", "")
	f.Fuzz(func(t *testing.T, kind, rule, component, value, limit string) {
		e := rules.Exception{ID: "x", Kind: rules.ExceptionKind(kind), Rule: rule, Component: component, Values: []string{value}}
		if limit != "" {
			e.Limit = []string{limit}
		}
		with, without := excepted(t, standing, e), excepted(t, standing)
		for i, rule := range with.Rules() {
			if fmt.Sprint(rule.Limits()) != fmt.Sprint(without.Rules()[i].Limits()) {
				t.Fatalf("%+v changes the rule itself", e)
			}
		}
		nobody := rules.Request{Path: "/"}
		if with.Listed(&nobody) != without.Listed(&nobody) && value != "/" && value != "*" {
			t.Fatalf("%+v names a request that has nothing", e)
		}
	})
}
