package rules_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestTheBestMatchOfAGroup gives two rules of one group that both match, the better one
// last: it is found nevertheless, so that no answer stands by its place in the file.
func TestTheBestMatchOfAGroup(t *testing.T) {
	request := &rules.Request{Method: "GET", Host: "api.eu.example.com", Path: "/v1/orders/7", Service: "orders", User: "ann", Route: "GET /v1/orders/{id}",
		Client: netip.MustParseAddr("10.1.2.3"), Attributes: attributes{"header X-Plan": "free", "query q": "1"}}
	for _, test := range []struct{ why, worse, better string }{
		{"a host's name before what it is below", `host: "*.eu.example.com"`, `host: api.eu.example.com`},
		{"the longer of two", `host: "*.example.com"`, `host: "*.eu.example.com"`},
		{"any host last", `path: /v1/orders/7`, `host: "*.example.com"`},
		{"the least special of several hosts counts", `host: ["*.com", api.eu.example.com]`, `host: "*.example.com"`},
		{"a host before a service", `service: orders`, `host: "*.com"`},
		{"a service's name before any", `service: "*"`, `service: orders`},
		{"a service before a path", `path: /v1/orders/7`, `service: "*"`},
		{"more of the path written out", `path: "/v1/{what}/*"`, `path: /v1/orders/**`},
		{"then more segments", `path: /v1/**`, `path: "/v1/{what}/**"`},
		{"then an end", `path: /*/*/*/**`, `path: /*/*/*`},
		{"any path before none", ``, `path: /**`},
		{"a path before a client", `client: 10.1.2.3`, `path: /**`},
		{"the smaller network", `client: 10.0.0.0/8`, `client: 10.1.0.0/16`},
		{"the widest of several networks counts", `client: [10.1.2.3, 10.0.0.0/8]`, `client: 10.1.0.0/16`},
		{"all clients before no condition", ``, `client: 0.0.0.0/0`},
		{"a client before other conditions", `user: ann, route: "*", method: GET`, `client: 0.0.0.0/0`},
		{"more conditions", `user: ann`, `user: ann, method: GET`},
		{"a value before any value", `user: "*", route: "*"`, `header: {X-Plan: free}`},
		{"then more of those", `user: "*"`, `user: "*", query: {q: "*"}`},
	} {
		set := compiled(t, fmt.Sprintf("rules:\n  - {name: worse, limit: 1/1s, group: g, match: {%s}}\n  - {name: better, limit: 1/1s, group: g, match: {%s}}",
			test.worse, test.better))
		if got := names(set.Match(request, nil)); got != "better" {
			t.Errorf("%s: %s applies", test.why, got)
		}
	}
}

func TestGroups(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: first, limit: 1/1s, group: g}
  - {name: alone, limit: 1/1s}
  - {name: second, limit: 1/1s, group: g}
  - {name: default, limit: 1/1s, group: h}
  - {name: login, limit: 1/1s, group: h, match: {path: /login}}
  - {name: login-tried, limit: 1/1s, group: h, mode: shadow, match: {path: /login, method: POST}}
`)
	for _, test := range []struct {
		request rules.Request
		want    string
	}{
		{rules.Request{Path: "/"}, "first alone default"},
		{rules.Request{Path: "/login"}, "first alone login"},
		{rules.Request{Path: "/login", Method: "POST"}, "first alone login login-tried"}, // a shadow rule displaces no other
	} {
		kept := set.Rules()[1:2:2] // what stands in dst already is left alone
		if got := names(set.Match(&test.request, slices.Clone(kept))); got != "alone "+test.want {
			t.Errorf("%+v: got %s, want alone %s", test.request, got, test.want)
		}
	}
}

func TestConditionsOnAttributesOfTheFrontEnd(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: service, limit: 1/1s, match: {service: [orders, carts]}}
  - {name: any-service, limit: 1/1s, match: {service: "*"}}
  - {name: user, limit: 1/1s, match: {user: ann}}
  - {name: route, limit: 1/1s, match: {route: "GET /users/{id}"}}
`)
	for _, test := range []struct {
		request rules.Request
		want    string
	}{
		{rules.Request{}, ""},
		{rules.Request{Service: "orders"}, "service any-service"},
		{rules.Request{Service: "Orders"}, "any-service"},
		{rules.Request{User: "ann"}, "user"},
		{rules.Request{User: "bob", Route: "GET /users/{id}"}, "route"},
	} {
		if got := names(set.Match(&test.request, nil)); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.request, got, test.want)
		}
	}
}

// worth is how special a match is, written down as the table in docs/reference/matching.md has it.
func worth(m *rules.Match) []int {
	host, labels := 0, 0
	if len(m.Host) > 0 {
		host, labels = 3, 1000
	}
	for _, h := range m.Host {
		if strings.HasPrefix(h, "*") {
			host, labels = 1, min(labels, strings.Count(h, "."))
		}
	}
	w := []int{host, labels, sort(m.Service)}
	literal, one, end := 0, 0, 0
	for i, segment := range strings.Split(m.Path, "/") {
		switch {
		case i == 0:
			end = min(len(m.Path), 1) * 2
		case segment == "**":
			end = 1
		case segment == "*":
			one++
		default:
			literal++
		}
	}
	bits := 0
	for i, c := range m.Client {
		if b := 1 + netip.MustParsePrefix(c).Bits(); i == 0 || b < bits {
			bits = b
		}
	}
	conditions := [][]string{m.User, m.Route, m.Method, m.Country, m.ASN}
	for _, table := range []map[string][]string{m.Header, m.Query, m.Descriptor} {
		for _, values := range table {
			conditions = append(conditions, values)
		}
	}
	of := [3]int{}
	for _, values := range conditions {
		of[sort(values)]++
	}
	return append(w, literal, one, end, bits, of[2], of[1])
}

// sort is 2 for a condition with values, 1 for one on any, 0 for none.
func sort(values []string) int {
	switch {
	case len(values) == 0:
		return 0
	case values[0] == "*":
		return 1
	}
	return 2
}

// TestGroupsEqualALinearScan: of all rules that match, the first with the most worth.
func TestGroupsEqualALinearScan(t *testing.T) {
	contested := 0
	rapid.Check(t, func(t *rapid.T) {
		specs := genSpecs(t)
		for i := range specs {
			m := &specs[i].Match // see TestFilteredRulesOfGroups
			m.Any, m.Not, m.Regex = nil, nil, rules.Expressions{}
			specs[i].Group = rapid.SampledFrom([]string{"", "g", "g", "h"}).Draw(t, "group")
			specs[i].Mode = rapid.SampledFrom([]rules.Mode{"", "", rules.Shadow}).Draw(t, "mode")
			specs[i].Match.Service = seldom(t, "service", someOf("1", "2"))
		}
		set, err := rules.Compile(&rules.File{Name: "f", Rules: specs})
		if err != nil {
			t.Fatal(err)
		}
		for range 24 {
			request := genRequest(t)
			request.Service = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "service")
			best := make(map[string]int)
			for i := range specs {
				s := &specs[i]
				of := string(s.Mode) + " " + s.Group
				if !matches(s, request) || len(s.Match.Service) > 0 && !slices.Contains(s.Match.Service, request.Service) {
					continue
				}
				if s.Group == "" {
					of = s.Name
				}
				old, taken := best[of]
				if !taken || slices.Compare(worth(&s.Match), worth(&specs[old].Match)) > 0 {
					best[of] = i
				}
				if taken {
					contested++
				}
			}
			var places []int
			for _, i := range best {
				places = append(places, i)
			}
			slices.SortFunc(places, cmp.Compare)
			var want []string
			for _, i := range places {
				want = append(want, specs[i].Name)
			}
			if got := names(set.Match(request, nil)); got != strings.Join(want, " ") {
				t.Fatalf("%+v: got %s, want %s", request, got, want)
			}
		}
	})
	if contested < 5 && !testing.Short() { // -short draws a fifth
		t.Errorf("only %d matches were contested: the schedule is too thin to show anything", contested)
	}
}

func TestTooManyGroups(t *testing.T) {
	specs := make([]rules.Spec, bounds.Groups+1)
	for i := range specs {
		specs[i] = rules.Spec{Name: fmt.Sprint("r", i), Group: fmt.Sprint("g", i), Limit: []string{"1/1s"}, Match: rules.Match{User: []string{fmt.Sprint("u", i)}}}
	}
	if _, err := rules.Compile(&rules.File{Name: "f", Rules: specs[:bounds.Groups]}); err != nil {
		t.Error(err)
	}
	if _, err := rules.Compile(&rules.File{Name: "f", Rules: specs}); err == nil || !strings.Contains(err.Error(), "groups") {
		t.Errorf("got %v", err)
	}
}

// grouped are rules of one group that differ in one thing, and a request for the 7th.
func grouped(t testing.TB, n int) (*rules.Set, *rules.Request) {
	specs := make([]rules.Spec, n)
	for i := range specs {
		specs[i] = rules.Spec{Name: fmt.Sprint("r", i), Limit: []string{"1/1s"}, Group: "g", Match: rules.Match{User: []string{fmt.Sprint("u", i)}}}
	}
	specs[0].Match = rules.Match{}
	set, err := rules.Compile(&rules.File{Name: "f", Rules: specs})
	if err != nil {
		t.Fatal(err)
	}
	return set, &rules.Request{User: "u7"}
}

func TestTenThousandRulesOfAGroupAreLookedAtLikeTen(t *testing.T) {
	few, r := grouped(t, 10)
	lots, _ := grouped(t, 10_000)
	found := make([]*rules.Rule, 0, 4)
	if a, b := few.Visited(r), lots.Visited(r); a != b || a > 5 {
		t.Errorf("%d nodes of a set of 10, %d of 10000", a, b)
	}
	allocations := testing.AllocsPerRun(100, func() { found = lots.Match(r, found[:0]) })
	if allocations != 0 || names(found) != "r7" {
		t.Errorf("%v allocations; %s matched", allocations, names(found))
	}
}

func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set, r := grouped(b, n)
			var found []*rules.Rule
			b.ReportAllocs()
			for b.Loop() {
				found = set.Match(r, found[:0])
			}
		})
	}
}
