package rules_test

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

//go:embed testdata/zoo.yaml
var zoo string

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
		{rules.Request{Path: "/login", Method: "post"}, "all login any-path"},
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

		// A path is what it says, however it is escaped.
		{rules.Request{Path: "/v:login/caf%C3%A9"}, "all any-path verb"},
		{rules.Request{Path: "/v%3alogin/caf%c3%a9"}, "all any-path verb"},
		{rules.Request{Path: "/v%3Alogin/%63afé"}, "all any-path verb"},
		{rules.Request{Path: "/v%253Alogin/caf%C3%A9"}, "all any-path"},
		{rules.Request{Path: "/users%2Fme"}, "all any-path"},
		{rules.Request{Path: "/%6cogin%", Method: "POST"}, "all any-path"},
		{rules.Request{Path: "/%" + strings.Repeat("61", 5000)}, "all any-path"},

		{rules.Request{Client: netip.MustParseAddr("10.2.3.4")}, "all net"},
		{rules.Request{Client: netip.MustParseAddr("::ffff:10.2.3.4")}, "all net"},
		{rules.Request{Client: netip.MustParseAddr("10.1.3.4"), Method: "GET"}, "all net inner"},
		{rules.Request{Client: netip.MustParseAddr("10.1.3.4"), Method: "HEAD"}, "all net inner"},
		{rules.Request{Client: netip.MustParseAddr("10.1.3.4"), Method: "head"}, "all net inner"},
		{rules.Request{Client: netip.MustParseAddr("10.1.3.4")}, "all net"},
		{rules.Request{Client: netip.MustParseAddr("2001:db8::7%eth0")}, "all net"},
		{rules.Request{Client: netip.MustParseAddr("192.0.2.7")}, "all net"},
		{rules.Request{Client: netip.MustParseAddr("192.0.2.8")}, "all"},
	} {
		if got := names(set.Match(&test.request, nil)); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.request, got, test.want)
		}
	}
}

// matches is the dumb way: one rule, one condition after the other.
func matches(s *rules.Spec, r *rules.Request) bool {
	m := &s.Match
	one := func(m rules.Match) bool { return meets(&m, r) }
	return meets(m, r) && (len(m.Any) == 0 || slices.ContainsFunc(m.Any, one)) && !slices.ContainsFunc(m.Not, one)
}

func meets(m *rules.Match, r *rules.Request) bool {
	a := r.Attributes.(attributes)
	return (len(m.Method) == 0 || slices.Contains(m.Method, r.Method) || r.Method == "HEAD" && slices.Contains(m.Method, "GET")) &&
		(len(m.Host) == 0 || slices.ContainsFunc(m.Host, func(h string) bool { return matchesHost(h, r.Host) })) &&
		(m.Path == "" || matchesPath(strings.Split(m.Path, "/"), strings.Split(r.Path, "/"))) &&
		(len(m.Client) == 0 || slices.ContainsFunc(m.Client, func(c string) bool { return netip.MustParsePrefix(c).Contains(r.Client) })) &&
		matchesValue(m.Country, r.Country) && matchesValue(m.ASN, strings.TrimPrefix(fmt.Sprint(r.ASN), "0")) &&
		matchesTable(m.Header, "header ", a) && matchesTable(m.Query, "query ", a) && matchesTable(m.Descriptor, "descriptor ", a) &&
		(len(m.Regex.Path) == 0 || r.Path != "" && expressed(m.Regex.Path, unescaped(r.Path))) &&
		expressedTable(m.Regex.Header, "header ", a) && expressedTable(m.Regex.Descriptor, "descriptor ", a)
}

func matchesValue(values []string, value string) bool {
	return len(values) == 0 || value != "" && (values[0] == "*" || slices.Contains(values, value))
}

func expressed(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return regexp.MustCompile("^(?:" + p + ")$").MatchString(text) })
}

func expressedTable(table map[string][]string, kind string, a attributes) bool {
	for name, patterns := range table {
		if a[kind+name] == "" || !expressed(patterns, a[kind+name]) {
			return false
		}
	}
	return true
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
		case unescaped(segment) != unescaped(path[i]):
			return false
		}
	}
	return len(path) == len(pattern)
}

func unescaped(segment string) string {
	text, err := url.PathUnescape(segment)
	if err != nil {
		panic(err)
	}
	return text
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
	if rapid.IntRange(1, 5).Draw(t, label+"?") < 5 {
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
	return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`(/[ab*]){0,2}/\*\*`), rapid.StringMatching(`(/([ab*:]|%61|%3A)){1,3}/?|/`))
}

// genNetworks lie within each other.
func genNetworks() *rapid.Generator[[]string] {
	return someOf("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "10.2.0.0/16", "11.0.0.0/8", "::/0", "2001:db8::/32", "2001:db8::/64")
}

func genSpecs(t *rapid.T) []rules.Spec {
	specs := make([]rules.Spec, rapid.IntRange(0, 12).Draw(t, "rules"))
	for i := range specs {
		specs[i] = rules.Spec{Name: fmt.Sprint("r", i), Limit: []string{"1/1s"}, Match: genMatch(t)}
		m := &specs[i].Match
		m.Any = seldom(t, "any", rapid.SliceOfN(rapid.Custom(genAlternative), 1, 3))
		m.Not = seldom(t, "not", rapid.SliceOfN(rapid.Custom(genAlternative), 1, 3))
	}
	return specs
}

func genMatch(t *rapid.T) rules.Match {
	return rules.Match{
		Method:     seldom(t, "method", someOf("GET", "POST", "PUT")),
		Host:       seldom(t, "host", someOf("a.b", "*.b", "*.a.b", "b")),
		Path:       genPath().Draw(t, "path"),
		Client:     seldom(t, "client", genNetworks()),
		Country:    seldom(t, "country", someOf("CN", "HK", "T1")),
		ASN:        seldom(t, "asn", someOf("64512", "7")),
		Header:     seldom(t, "header", genTable()),
		Query:      seldom(t, "query", genTable()),
		Descriptor: seldom(t, "descriptor", genTable()),
		Regex:      seldom(t, "regex", rapid.Custom(genRegex)),
	}
}

func genRegex(t *rapid.T) rules.Expressions {
	return rules.Expressions{
		Path:       someOf("/a.*", "/[^/]*", ".*/b", "/a|/b", "(/.*)*").Draw(t, "path expression"),
		Header:     seldom(t, "header expression", genExpressions()),
		Descriptor: seldom(t, "descriptor expression", genExpressions()),
	}
}

func genExpressions() *rapid.Generator[map[string][]string] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"A", "B"}), someOf("[12]", "1", ".*", "2|3"), 1, 2)
}

// genAlternative is a match with a condition.
func genAlternative(t *rapid.T) rules.Match {
	m := genMatch(t)
	if fmt.Sprint(m) == fmt.Sprint(rules.Match{}) {
		m.Method = []string{"GET"}
	}
	return m
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
		Method: rapid.SampledFrom([]string{"", "GET", "POST", "PUT"}).Draw(t, "method"),
		Host:   rapid.SampledFrom([]string{"", "b", "a.b", "A.B", "x.b", "x.a.b", ".b"}).Draw(t, "host"),
		Path:   rapid.StringMatching(`|(/([abc:]|%6[123]|%3[aA])?){1,4}`).Draw(t, "path"),
		Client: netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.9.9.9", "10.2.0.0", "11.0.0.0",
			"12.0.0.0", "2001:db8::1", "2001:db8:1::", "fe80::1"}).Draw(t, "client")),
		Country:    rapid.SampledFrom([]string{"", "CN", "HK", "DE"}).Draw(t, "country"),
		ASN:        rapid.SampledFrom([]uint32{0, 7, 64512, 64513}).Draw(t, "asn"),
		Attributes: a,
	}
}

func TestMatchEqualsALinearScan(t *testing.T) {
	several := 0 // requests that more than two rules match
	rapid.Check(t, func(t *rapid.T) {
		specs := genSpecs(t)
		set, err := rules.Compile(&rules.File{Name: "f", Rules: specs})
		if err != nil {
			t.Fatal(err)
		}
		for range 32 {
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
	if several < 5 && !testing.Short() { // -short draws a fifth
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
	"client": func(i int) rules.Match {
		return rules.Match{Path: "/v1/p7/x", Client: []string{fmt.Sprintf("203.%d.%d.0/24", i/256, i%256), fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)}}
	},
	"descriptor": func(i int) rules.Match {
		return rules.Match{Path: "/m", Method: []string{"M7"}, Descriptor: map[string][]string{"a": {fmt.Sprint(i)}, "b": {"*"}}}
	},
}

var seven = rules.Request{Method: "M7", Host: "h7.example.com", Path: "/v1/p7/x", Client: netip.MustParseAddr("203.0.113.7"),
	Attributes: attributes{"header X-Plan": "free", "header X-Tenant": "t7", "header X-User": "Bob", "header X-Tokens": "12", "descriptor a": "7", "descriptor b": "x"}}

func requestFor(name string) *rules.Request {
	r := seven
	switch name {
	case "suffix":
		r.Host = "a.h7.example.com"
	case "method", "descriptor":
		r.Path = "/m"
	case "client":
		r.Client = netip.MustParseAddr("203.0.7.7")
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

// everything has each field that is read for a request.
//
//go:embed testdata/everything.yaml
var everything string

func TestNothingIsAllocated(t *testing.T) {
	sets := map[string]*rules.Set{"": compiled(t, everything)}
	for name, match := range differences {
		sets[name] = many(t, 100, match)
	}
	for name, set := range sets {
		for _, path := range []string{"", "/v1/p%37/x", "/v1/p6/x"} {
			if path != "" && name != "" {
				continue
			}
			r := requestFor(name)
			r.Path = cmp.Or(path, r.Path)
			found, key := make([]*rules.Rule, 0, 4), make([]byte, 0, 1024)
			limits := 0
			allocations := testing.AllocsPerRun(100, func() {
				if set.Listed(r) != rules.Unlisted {
					return
				}
				found = set.Match(r, found[:0])
				for _, rule := range found {
					if rule.Listed(r) != rules.Unlisted || !rule.Active(now) {
						return
					}
					key, _ = rule.AppendKey(key[:0], r)
					if cost, _, err := rule.CostOf(r); err == nil && cost > 0 {
						limits = len(rule.LimitsFor(r, key))
					}
				}
			})
			if allocations != 0 || len(found) != 1 || limits == 0 || name == "" && limits != 1 {
				t.Errorf("%s %s: %v allocations, %d found, %d limits", name, path, allocations, len(found), limits)
			}
		}
	}
}

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

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
