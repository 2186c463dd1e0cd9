package rules_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/rules"
)

// attributes are those of a test's request: "header X-User" → value.
type attributes map[string]string

func (a attributes) Header(name string) string     { return a["header "+name] }
func (a attributes) Query(name string) string      { return a["query "+name] }
func (a attributes) Cookie(name string) string     { return a["cookie "+name] }
func (a attributes) Descriptor(name string) string { return a["descriptor "+name] }

func names(list []*rules.Rule) string {
	var text []string
	for _, rule := range list {
		text = append(text, rule.Name())
	}
	return strings.Join(text, " ")
}

const zoo = `
rules:
  - {name: all, limit: 1/1s}
  - {name: root, limit: 1/1s, match: {path: /}}
  - {name: login, limit: 1/1s, match: {path: /login, method: POST}}
  - {name: user, limit: 1/1s, match: {path: "/users/{id}"}}
  - {name: orders, limit: 1/1s, match: {path: /users/*/orders}}
  - {name: me, limit: 1/1s, match: {path: /users/me}}
  - {name: api, limit: 1/1s, match: {path: /api/**}}
  - {name: host, limit: 1/1s, match: {host: [api.example.com, "*.example.com"]}}
  - {name: free, limit: 1/1s, match: {header: {x-plan: [free, trial]}, query: {debug: "*"}}}
  - {name: tenant, limit: 1/1s, match: {descriptor: {tenant: a}}}
  - {name: any-path, limit: 1/1s, match: {path: /**}}
`

func TestMatch(t *testing.T) {
	set := compiled(t, zoo)
	for _, test := range []struct {
		request rules.Request
		want    string
	}{
		{rules.Request{}, "all"},
		{rules.Request{Path: "*"}, "all"},
		{rules.Request{Path: "/"}, "all root any-path"},
		{rules.Request{Path: "/login", Method: "POST"}, "all login any-path"},
		{rules.Request{Path: "/login", Method: "post"}, "all any-path"},
		{rules.Request{Path: "/login/", Method: "POST"}, "all any-path"},
		{rules.Request{Path: "/users/7"}, "all user any-path"},
		{rules.Request{Path: "/users/me"}, "all user me any-path"},
		{rules.Request{Path: "/users/"}, "all any-path"},
		{rules.Request{Path: "/users//orders"}, "all any-path"},
		{rules.Request{Path: "/users/me/orders"}, "all orders any-path"},
		{rules.Request{Path: "/api"}, "all api any-path"},
		{rules.Request{Path: "/api/v1/x/"}, "all api any-path"},
		{rules.Request{Path: "/apis"}, "all any-path"},
		{rules.Request{Host: "API.example.com"}, "all host"},
		{rules.Request{Host: "a.b.example.COM"}, "all host"},
		{rules.Request{Host: "example.com"}, "all"},
		{rules.Request{Host: ".example.com"}, "all"},
		{rules.Request{Host: "badexample.com"}, "all"},
		{rules.Request{Attributes: attributes{"header X-Plan": "trial", "query debug": "0"}}, "all free"},
		{rules.Request{Attributes: attributes{"header X-Plan": "trial"}}, "all"},
		{rules.Request{Attributes: attributes{"header X-Plan": "paid", "query debug": "0"}}, "all"},
		{rules.Request{Attributes: attributes{"descriptor tenant": "a"}}, "all tenant"},
	} {
		if got := names(set.Match(&test.request, nil)); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.request, got, test.want)
		}
	}
}

// matches is the dumb way: one rule, one condition after the other.
func matches(s *rules.Spec, r *rules.Request) bool {
	m := &s.Match
	a := r.Attributes.(attributes)
	return (len(m.Method) == 0 || slices.Contains(m.Method, r.Method)) &&
		(len(m.Host) == 0 || slices.ContainsFunc(m.Host, func(h string) bool { return matchesHost(h, r.Host) })) &&
		(m.Path == "" || matchesPath(strings.Split(m.Path, "/"), strings.Split(r.Path, "/"))) &&
		matchesTable(m.Header, "header ", a) && matchesTable(m.Query, "query ", a) && matchesTable(m.Descriptor, "descriptor ", a)
}

func matchesHost(pattern, host string) bool {
	pattern, host = strings.ToLower(pattern), strings.ToLower(host)
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return host == pattern
}

func matchesPath(pattern, path []string) bool {
	for i, segment := range pattern {
		switch {
		case segment == "**":
			return path[0] == "" && (i > 1 || len(path) > 1)
		case i >= len(path):
			return false
		case segment == "*" || strings.HasPrefix(segment, "{"):
			if path[i] == "" {
				return false
			}
		case segment != path[i]:
			return false
		}
	}
	return len(path) == len(pattern)
}

func matchesTable(table map[string][]string, kind string, a attributes) bool {
	for name, values := range table {
		value := a[kind+name]
		if value == "" || values[0] != "*" && !slices.Contains(values, value) {
			return false
		}
	}
	return true
}

// seldom is a condition that most rules lack: rules with all of them match next to nothing.
func seldom[T any](t *rapid.T, label string, gen *rapid.Generator[T]) (none T) {
	if rapid.IntRange(0, 3).Draw(t, label+"?") > 0 {
		return none
	}
	return gen.Draw(t, label)
}

func genTable() *rapid.Generator[map[string][]string] {
	value := rapid.OneOf(rapid.Just([]string{"*"}), someOf("1", "2", "3"))
	return rapid.MapOfN(rapid.SampledFrom([]string{"A", "B", "C"}), value, 1, 2)
}

func someOf(values ...string) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 3, rapid.ID)
}

func genPath() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`(/[ab*]){0,2}/\*\*`), rapid.StringMatching(`(/[ab*]){1,3}/?|/`))
}

func genSpecs(t *rapid.T) []rules.Spec {
	specs := make([]rules.Spec, rapid.IntRange(0, 12).Draw(t, "rules"))
	for i := range specs {
		specs[i] = rules.Spec{Name: fmt.Sprint("r", i), Limit: []string{"1/1s"}, Match: rules.Match{
			Method:     seldom(t, "method", someOf("GET", "POST", "PUT")),
			Host:       seldom(t, "host", someOf("a.b", "*.b", "*.a.b", "b")),
			Path:       genPath().Draw(t, "path"),
			Header:     seldom(t, "header", genTable()),
			Query:      seldom(t, "query", genTable()),
			Descriptor: seldom(t, "descriptor", genTable()),
		}}
	}
	return specs
}

func genRequest(t *rapid.T) *rules.Request {
	a := attributes{}
	for _, kind := range []string{"header ", "query ", "descriptor "} {
		table := rapid.MapOfN(rapid.SampledFrom([]string{"A", "B", "C"}), rapid.SampledFrom([]string{"", "1", "2", "3", "4"}), 0, 3).Draw(t, kind)
		for name, value := range table {
			a[kind+name] = value
		}
	}
	return &rules.Request{
		Method:     rapid.SampledFrom([]string{"", "GET", "POST", "PUT"}).Draw(t, "method"),
		Host:       rapid.SampledFrom([]string{"", "b", "a.b", "A.B", "x.b", "x.a.b", ".b"}).Draw(t, "host"),
		Path:       rapid.StringMatching(`|(/[abc]?){1,4}`).Draw(t, "path"),
		Attributes: a,
	}
}

func TestMatchIsALinearScan(t *testing.T) {
	several := 0 // requests that more than two rules match
	rapid.Check(t, func(t *rapid.T) {
		specs := genSpecs(t)
		set, err := rules.Compile(&rules.File{Name: "f", Rules: specs})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			request := genRequest(t)
			var want []string
			for i := range specs {
				if matches(&specs[i], request) {
					want = append(want, specs[i].Name)
				}
			}
			if len(want) > 2 {
				several++
			}
			if got := names(set.Match(request, nil)); got != strings.Join(want, " ") {
				t.Fatalf("%+v: got %s, want %s", request, got, want)
			}
		}
	})
	if several < 20 {
		t.Errorf("only %d requests were matched by several rules: the schedule is too thin to show anything", several)
	}
}

// many is a set in which rules differ by one thing each, and a request that some match.
func many(t testing.TB, n int, match func(i int) rules.Match) *rules.Set {
	t.Helper()
	specs := make([]rules.Spec, n)
	for i := range specs {
		specs[i] = rules.Spec{Name: fmt.Sprint("r", i), Limit: []string{"1/1s"}, Key: []string{"client.ip", "header.X-User lower"}, Match: match(i)}
	}
	set, err := rules.Compile(&rules.File{Name: "f", Rules: specs})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// differences are the ways in which rules differ, each with request 7's attributes. They
// share all else, so that nothing but the tree can tell them apart.
var differences = map[string]func(i int) rules.Match{
	"path":   func(i int) rules.Match { return rules.Match{Path: fmt.Sprintf("/v1/p%d/*", i)} },
	"host":   func(i int) rules.Match { return rules.Match{Host: []string{fmt.Sprintf("h%d.example.com", i)}} },
	"suffix": func(i int) rules.Match { return rules.Match{Host: []string{fmt.Sprintf("*.h%d.example.com", i)}} },
	"method": func(i int) rules.Match { return rules.Match{Path: "/m", Method: []string{fmt.Sprint("M", i)}} },
	"header": func(i int) rules.Match {
		return rules.Match{Header: map[string][]string{"X-Plan": {"free"}, "X-Tenant": {fmt.Sprint("t", i)}}}
	},
	"descriptor": func(i int) rules.Match {
		return rules.Match{Path: "/m", Method: []string{"M7"}, Descriptor: map[string][]string{"a": {fmt.Sprint(i)}, "b": {"*"}}}
	},
}

var seven = rules.Request{Method: "M7", Host: "h7.example.com", Path: "/v1/p7/x", Client: netip.MustParseAddr("203.0.113.7"),
	Attributes: attributes{"header X-Plan": "free", "header X-Tenant": "t7", "header X-User": "Bob", "descriptor a": "7", "descriptor b": "x"}}

func requestFor(name string) *rules.Request {
	r := seven
	switch name {
	case "suffix":
		r.Host = "a.h7.example.com"
	case "method", "descriptor":
		r.Path = "/m"
	}
	return &r
}

func TestTenThousandRulesAreLookedAtLikeTen(t *testing.T) {
	for name, match := range differences {
		r := requestFor(name)
		few, lots := many(t, 10, match), many(t, 10_000, match)
		if got := names(lots.Match(r, nil)); got != "r7" {
			t.Errorf("%s: matched %q", name, got)
		}
		if a, b := few.Visited(r), lots.Visited(r); a != b || a > 12 {
			t.Errorf("%s: %d nodes of a set of 10, %d of 10000", name, a, b)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(differences)) {
		set, r := many(t, 100, differences[name]), requestFor(name)
		found, key := make([]*rules.Rule, 0, 4), make([]byte, 0, 1024)
		allocations := testing.AllocsPerRun(100, func() {
			found = set.Match(r, found[:0])
			for _, rule := range found {
				key, _ = rule.AppendKey(key[:0], r)
			}
		})
		if allocations != 0 || len(found) != 1 {
			t.Errorf("%s: %v allocations, %d found", name, allocations, len(found))
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(differences)) {
		for _, n := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				set, r := many(b, n, differences[name]), requestFor(name)
				var found []*rules.Rule
				b.ReportAllocs()
				for b.Loop() {
					found = set.Match(r, found[:0])
				}
			})
		}
	}
}
