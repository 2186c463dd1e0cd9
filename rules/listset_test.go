package rules_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// withSets are the rules of a text, with sets that were read.
func withSets(t testing.TB, text string, sets map[string][]string) *rules.Set {
	t.Helper()
	file, err := rules.Parse("f", []byte(text), rules.WithSets())
	if err != nil {
		t.Fatal(err)
	}
	file.Sets = sets
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const guarded = `
deny: {client.ip: {redis: [weir:blocked, weir:feed], values: 198.51.100.7}}
allow: {user lower: {redis: friends}}
rules:
- {name: a, limit: 5/1m, deny: {user: {redis: friends}, client.ip: {redis: weir:blocked}}, allow: {host: {redis: weir:feed}}}
`

func TestListsInSets(t *testing.T) {
	set := withSets(t, guarded, map[string][]string{
		"weir:blocked": {"192.0.2.1", "10.0.0.0/8 # a network", "# nobody", "192.0.2.1/32", "2001:db8::/32\n", ""},
		"weir:feed":    {"203.0.113.0/24"},
		"friends":      {"ann", "bot-*", `\*`, "#x"},
	})
	for address, want := range map[string]rules.Listing{"192.0.2.1": rules.Denied, "10.1.2.3": rules.Denied, "2001:db8::1": rules.Denied,
		"203.0.113.9": rules.Denied, "198.51.100.7": rules.Denied, "192.0.2.2": rules.Unlisted, "::ffff:10.0.0.1": rules.Denied} {
		request := &rules.Request{Client: netip.MustParseAddr(address)}
		if got := set.Listed(request); got != want {
			t.Errorf("%s: %v", address, got)
		}
		ofRule := rules.Unlisted
		if want == rules.Denied && address != "203.0.113.9" && address != "198.51.100.7" {
			ofRule = rules.Denied
		}
		if got := set.Rules()[0].Listed(request); got != ofRule {
			t.Errorf("%s of the rule: %v", address, got)
		}
	}
	for user, want := range map[string]rules.Listing{"ann": rules.Denied, "bot-7": rules.Denied, "*": rules.Denied, "#x": rules.Unlisted, "bob": rules.Unlisted} {
		if got := set.Rules()[0].Listed(&rules.Request{User: user}); got != want {
			t.Errorf("%s: %v", user, got)
		}
	}
	if got := set.Listed(&rules.Request{User: "ann"}); got != rules.Allowed {
		t.Error(got)
	}
	if got := set.SetNames(); !slices.Equal(got, []string{"friends", "weir:blocked", "weir:feed"}) {
		t.Error(got)
	}
	// Of weir:feed, taken for hosts, the network is a text like any other.
	if got := set.Rules()[0].Listed(&rules.Request{Host: "203.0.113.0/24"}); got != rules.Allowed {
		t.Error(got)
	}
	if err := set.LeftOut(); err != nil {
		t.Error(err)
	}
}

// TestInvalidMembersAreLeftOut, and all others are in force.
func TestInvalidMembersAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", bounds.Text+1)
	set := withSets(t, guarded, map[string][]string{
		"weir:blocked": {"192.0.2.300", "10.0.0.1/8", "192.0.2.1", "redis://user:pass@host", "192.0.2.7\n192.0.2.8", "-1"},
		"friends":      {"a*b", "b\xe9a", long, "ann"},
	})
	if got := set.Listed(&rules.Request{Client: netip.MustParseAddr("192.0.2.1")}); got != rules.Denied {
		t.Error(got)
	}
	for _, address := range []string{"10.0.0.1", "192.0.2.7", "192.0.2.8"} {
		if got := set.Listed(&rules.Request{Client: netip.MustParseAddr(address)}); got != rules.Unlisted {
			t.Errorf("%s: %v", address, got)
		}
	}
	if got := set.Listed(&rules.Request{User: "ann"}); got != rules.Allowed {
		t.Error(got)
	}
	err := set.LeftOut()
	var list *rules.Error
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	for _, want := range []string{`deny.client.ip: the set "weir:blocked" has "192.0.2.300", which is left out: allowed: an address`, `allowed: 10.0.0.0/8 for that network`,
		`the set "weir:feed" was not read, and has no members`, `the set "friends" has "a*b"`, "it is not UTF-8", "1 to 1024 bytes", "f: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("without %s:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), ":pass@") || strings.Contains(err.Error(), long) {
		t.Errorf("a password is shown, or all of a long member:\n%v", err)
	}
	// Taken for addresses weir:blocked stands in two lists, and for users friends does in two: by
	// lower and without. Each is told of once.
	for _, once := range []string{`"192.0.2.300"`, `"a*b"`} {
		if n := strings.Count(err.Error(), once); n != 1 {
			t.Errorf("%s is told %d times:\n%v", once, n, err)
		}
	}
}

func TestReportOfLeftOutMembersIsBounded(t *testing.T) {
	var members []string
	for i := range 1000 {
		members = append(members, fmt.Sprint("no address ", i))
	}
	set := withSets(t, "deny: {client.ip: {redis: a}}\nrules: []", map[string][]string{"a": members})
	var list *rules.Error
	if err := set.LeftOut(); !errors.As(err, &list) || len(list.Problems) != bounds.Problems || list.Omitted != 1000-bounds.Problems {
		t.Fatal(err)
	}
}

func TestMistakesOfSets(t *testing.T) {
	var names []string
	for i := range bounds.Sets + 1 {
		names = append(names, fmt.Sprint("s", i))
	}
	lists := func(names ...string) map[string]rules.List { return map[string]rules.List{"user": {Sets: names}} }
	for _, test := range []struct {
		deny, allow map[string]rules.List
		members     int
		want        string
	}{
		{deny: lists(""), want: "allowed: the key of a set, of 1 to 1024 bytes"},
		{deny: lists(strings.Repeat("k", bounds.Text+1)), want: "of 1 to 1024 bytes"},
		{deny: lists("redis://u:secret@host/0"), want: "such as weir:blocked, without the address"},
		{deny: lists("a", "a"), want: "it occurs twice"},
		{deny: lists(names...), want: "name 64 sets; at most that many"},
		{deny: lists("a"), members: bounds.AllMembers + 1, want: "the sets have over 100000 members"},
		{deny: lists("a"), allow: lists("b"), members: bounds.AllMembers/2 + 1, want: "the sets have over 100000 members"},
		{allow: lists(names[1:]...), deny: lists(names[1])},
		{deny: lists("a"), allow: lists("a"), members: bounds.AllMembers}, // of one set that two lists name
	} {
		members := strings.Split(strings.TrimSuffix(manyValues(test.members), "\n"), "\n")
		_, err := rules.Compile(&rules.File{Deny: test.deny, Allow: test.allow, Sets: map[string][]string{"a": members, "b": members}})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%.80s: %.300v", test.want, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}

// TestLintAcceptsSets: what is in them is not known, so nothing is said of it.
func TestLintAcceptsSets(t *testing.T) {
	set, warnings, err := rules.Lint("f", []byte("deny: {user: {redis: a, values: bob}}\nallow: {user: [x, bob]}\nrules: []"), rules.WithSets())
	if err != nil || len(warnings) != 1 || warnings[0].Line != 2 {
		t.Errorf("%v %v", warnings, err)
	}
	if err := set.LeftOut(); err == nil || !strings.Contains(err.Error(), `deny.user: the set "a" was not read`) {
		t.Error(err)
	}
	two := "rules:\n- {name: a, limit: 5/1m, deny: {user: {redis: a}}}\n- {name: b, limit: 5/1m, deny: {user: {redis: b}}}"
	if _, warnings, err = rules.Lint("f", []byte(two), rules.WithSets()); err != nil || len(warnings) > 0 { // they are not alike
		t.Errorf("%v %v", warnings, err)
	}
}

// TestManyNetworksInASet: 100,000 of them are in force, and asking for one costs no allocation.
func TestManyNetworksInASet(t *testing.T) {
	var members []string
	for i := range bounds.AllMembers {
		members = append(members, fmt.Sprintf("%d.%d.%d.0/28", 1+i>>16, i>>8&255, i&255))
	}
	set := withSets(t, guarded, map[string][]string{"weir:blocked": members, "weir:feed": nil, "friends": nil})
	for address, want := range map[string]rules.Listing{"1.0.0.15": rules.Denied, "1.0.0.16": rules.Unlisted, "2.134.159.1": rules.Denied, "2.134.160.1": rules.Unlisted} {
		request := &rules.Request{Client: netip.MustParseAddr(address), User: "u"}
		if n := testing.AllocsPerRun(10, func() { set.Listed(request); set.Rules()[0].Listed(request) }); n != 0 {
			t.Errorf("%s: %v allocations", address, n)
		}
		if got := set.Listed(request); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// FuzzMember: whatever is in a set, the rules are in force, with it or without.
func FuzzMember(f *testing.F) {
	for _, member := range []string{"", "# nobody", "192.0.2.1", "10.0.0.0/8 # x\r\n", "a*b", "\xff", "*", "::ffff:1.2.3.4/100", strings.Repeat("x", 2000)} {
		f.Add(member)
	}
	request := &rules.Request{User: "ann", Client: netip.MustParseAddr("192.0.2.1")}
	f.Fuzz(func(t *testing.T, member string) {
		for _, component := range []string{"user", "client.ip"} {
			file := &rules.File{Deny: map[string]rules.List{component: {Sets: []string{"a"}}}, Sets: map[string][]string{"a": {member, "ann", "192.0.2.1"}}}
			set, err := rules.Compile(file)
			if err != nil {
				t.Fatal(err)
			}
			if set.Listed(request) != rules.Denied {
				t.Fatalf("%q keeps others out of the list of %s", member, component)
			}
			if err := set.LeftOut(); err != nil {
				_ = err.Error()
			}
		}
	})
}
