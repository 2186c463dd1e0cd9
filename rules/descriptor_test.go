package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/rules"
)

func TestDescriptorKeysAreAllKeysInOrder(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: one, match: {descriptor_keys: a}, limit: 1/1s}
  - {name: two, match: {descriptor_keys: [a, b]}, limit: 1/1s}
  - {name: twice, match: {descriptor_keys: [a, a]}, limit: 1/1s}
  - {name: comma, match: {descriptor_keys: "a,b"}, limit: 1/1s}
  - {name: any, limit: 1/1s}
`)
	for _, tt := range []struct {
		keys []string
		want string
	}{
		{nil, "any"}, {[]string{"a"}, "one any"}, {[]string{"a", "b"}, "two any"}, {[]string{"b", "a"}, "any"},
		{[]string{"a", "b", "c"}, "any"}, {[]string{"a", "a"}, "twice any"}, {[]string{"a,b"}, "comma any"}, {[]string{""}, "any"},
		{make([]string, 10_000), "any"}, {[]string{strings.Repeat("a", 1<<20)}, "any"},
	} {
		found := set.Match(&rules.Request{DescriptorKeys: tt.keys}, nil)
		if got := names(found); got != tt.want {
			t.Errorf("%.80q: %s, want %s", tt.keys, got, tt.want)
		}
	}
}

// described is a request with the descriptor of a text such as "a=x b=y".
func described(text string) *rules.Request {
	r := new(rules.Request)
	for _, one := range strings.Fields(text) {
		key, value, _ := strings.Cut(one, "=")
		r.DescriptorKeys, r.DescriptorValues = append(r.DescriptorKeys, key), append(r.DescriptorValues, value)
	}
	return r
}

func TestTheClosestDescriptorKeysApply(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: plan, match: {descriptor_keys: plan}, limit: 1/1s}
  - {name: plan-f, match: {descriptor_keys: plan=f*}, limit: 1/1s}
  - {name: plan-fr, match: {descriptor_keys: plan=fr*}, limit: 1/1s}
  - {name: free, match: {descriptor_keys: plan=free}, limit: 1/1s}
  - {name: free-also, match: {descriptor_keys: plan=free}, limit: 2/1s}
  - {name: gold-user, match: {descriptor_keys: [plan=gold, user]}, limit: 1/1s}
  - {name: any-region, match: {descriptor_keys: [plan, region]}, limit: 1/1s}
  - {name: between, match: {descriptor_keys: path=/a*/b*c}, limit: 1/1s}
  - {name: apart-only, match: {descriptor_keys: path=ab*bc}, limit: 1/1s}
  - {name: some-keys, match: {descriptor_keys: x-*}, limit: 1/1s}
  - {name: equals, match: {descriptor_keys: "a%3Db=c=d"}, limit: 1/1s}
  - {name: apart, match: {user: ann, descriptor_keys: plan}, limit: 1/1s}
`)
	for text, want := range map[string]string{
		"plan=free": "free free-also", "plan=fred": "plan-f", "plan=x": "plan", "plan=": "plan",
		"plan=gold user=7":    "gold-user",
		"plan=gold region=eu": "", // the walk does not go back
		"plan=gold":           "", "plan=x region=eu": "any-region", "plan=free region=eu": "", "plan=free user=1": "",
		"path=/a/b-c": "between", "path=/aa/bc": "between", "path=/a/b": "", "path=/abc": "", "path=abc": "", "path=abbc": "apart-only",
		"x-=": "some-keys", "x-y=z": "some-keys", "x=y": "",
	} {
		if got := names(set.Match(described(text), nil)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	odd := &rules.Request{DescriptorKeys: []string{"a=b"}, DescriptorValues: []string{"c=d"}}
	if got := names(set.Match(odd, nil)); got != "equals" || rules.DescriptorEntry("a=b", "c=d") != "a%3Db=c=d" {
		t.Errorf("a key with a sign: %s", got)
	}
	ann := described("plan=free")
	ann.User = "ann"
	if got := names(set.Match(ann, nil)); got != "free free-also apart" {
		t.Errorf("of other conditions: %s", got)
	}
}

// A branch is a node of the slow tree of the next test.
type branch struct {
	entry string
	rules []string
	below []*branch
}

// walk is the meaning, written down slowly: at each level the value, else the first pattern, else the key.
func walk(level []*branch, r *rules.Request) (found []string) {
	for i, key := range r.DescriptorKeys {
		value := r.DescriptorValues[i]
		takes := func(is func(k, v string) bool) int {
			return slices.IndexFunc(level, func(b *branch) bool {
				k, v, _ := strings.Cut(b.entry, "=")
				return is(k, v)
			})
		}
		at := takes(func(k, v string) bool { return k == key && v == value && v != "" })
		if at < 0 {
			at = takes(func(k, v string) bool {
				return strings.Contains(k+v, "*") && globs(k, key) && (v == "" || globs(v, value))
			})
		}
		if at < 0 {
			at = takes(func(k, v string) bool { return k == key && v == "" })
		}
		if at < 0 {
			return nil
		}
		level, found = level[at].below, level[at].rules
	}
	return found
}

// globs reports whether a pattern is a text, by trying each length of each star.
func globs(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return globs(pattern[1:], text) || text != "" && globs(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && globs(pattern[1:], text[1:])
}

func TestDescriptorKeysEqualASlowWalk(t *testing.T) {
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "a=x", "a=xy", "b=x", "a=x*", "a=*", "b=*y", "a*", "a*=x", "a=x*y*"}))
		var roots []*branch
		var specs []rules.Spec
		for i, keys := range rapid.SliceOfN(rapid.SliceOfN(entries, 1, 3), 1, 12).Draw(t, "rules") {
			name := fmt.Sprint("r", i)
			specs = append(specs, rules.Spec{Name: name, Limit: []string{"1/1s"}, Match: rules.Match{DescriptorKeys: keys}})
			level := &roots
			for j, e := range keys {
				at := slices.IndexFunc(*level, func(b *branch) bool { return b.entry == e })
				if at < 0 {
					at = len(*level)
					*level = append(*level, &branch{entry: e})
				}
				b := (*level)[at]
				if j == len(keys)-1 {
					b.rules = append(b.rules, name)
				}
				level = &b.below
			}
		}
		set, err := rules.Compile(&rules.File{Rules: specs})
		if err != nil {
			t.Fatal(err)
		}
		entry := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "key") + "=" +
				rapid.SampledFrom([]string{"", "x", "xy", "xyy", "y", "x*"}).Draw(t, "value")
		})
		for range 20 {
			text := strings.Join(rapid.SliceOfN(entry, 1, 3).Draw(t, "descriptor"), " ")
			r := described(text)
			want := strings.Join(walk(roots, r), " ")
			if got := names(set.Match(r, nil)); got != want {
				t.Fatalf("%s: %s, want %s", text, got, want)
			}
			if want != "" {
				met++
			}
		}
	})
	if met < 20 && !testing.Short() { // -short draws a fifth
		t.Errorf("only %d descriptors met a rule", met)
	}
}

// crowdOfDescriptors are rules of a domain: values of a key, patterns with prefixes of one length, pairs, and the key.
func crowdOfDescriptors(t testing.TB, n int) *rules.Set {
	specs := make([]rules.Spec, 0, n)
	add := func(keys ...string) {
		specs = append(specs, rules.Spec{Name: fmt.Sprint("r", len(specs)), Limit: []string{"1/1s"},
			Key: []string{"service", "entry.1"}, Match: rules.Match{Service: []string{"edge"}, DescriptorKeys: keys}})
	}
	add("tenant")
	for i := 100_000; len(specs) < n; i++ {
		add(fmt.Sprint("tenant=", i))
		add(fmt.Sprint("tenant=", i), "user")
		add(fmt.Sprint("tenant=t", i, "*"))
	}
	set, err := rules.Compile(&rules.File{Rules: specs[:n]})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTenThousandDescriptorsAreLookedAtLikeTen(t *testing.T) {
	few, many := crowdOfDescriptors(t, 10), crowdOfDescriptors(t, 10_000)
	for _, text := range []string{"tenant=100001", "tenant=100002 user=1", "tenant=t100001-x", "tenant=other", "tenant=100000 x=1"} {
		r := described(text)
		r.Service = "edge"
		if a, b := few.Visited(r), many.Visited(r); a != b || a > 8 {
			t.Errorf("%s: %d nodes of 10, %d of 10,000", text, a, b)
		}
		found := make([]*rules.Rule, 0, 4)
		var key []byte
		allocations := testing.AllocsPerRun(100, func() {
			found = many.Match(r, found[:0])
			for _, rule := range found {
				key, _ = rule.AppendKey(key[:0], r)
			}
		})
		if allocations != 0 || !strings.Contains(text, "x=1") && len(found) != 1 {
			t.Errorf("%s: %v allocations, %s", text, allocations, names(found))
		}
	}
}

func BenchmarkDescriptors(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		set := crowdOfDescriptors(b, n)
		for _, text := range []string{"tenant=100001", "tenant=t100001-x", "tenant=other"} {
			b.Run(fmt.Sprint(n, " ", text), func(b *testing.B) {
				r := described(text)
				r.Service = "edge"
				var found []*rules.Rule
				b.ReportAllocs()
				for b.Loop() {
					found = set.Match(r, found[:0])
				}
			})
		}
	}
}

func TestEntriesInKeys(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: a, match: {service: edge}, key: [service, entry.1, entry.2], limit: 1/1s}
  - {name: b, match: {service: edge}, key: [entry.3 lower], on_missing: skip, limit: 1/1s}
`)
	for text, want := range map[string]string{
		"plan=free user=7":    "service=4:edge entry.1=9:plan=free entry.2=6:user=7",
		"a=1 a=2 a=X":         "service=4:edge entry.1=3:a=1 entry.2=3:a=2, entry.3=3:a=x",
		"a=":                  "service=4:edge entry.1=2:a= entry.2=-",
		"path=/a%=b x/y=very": "service=4:edge entry.1=10:path=/a%=b entry.2=8:x/y=very",
	} {
		r := described(text)
		r.Service = "edge"
		var keys []string
		for _, rule := range set.Rules() {
			if key, ok := rule.AppendKey(nil, r); ok {
				keys = append(keys, string(key))
			}
		}
		if got := strings.Join(keys, ", "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	key, _, err := set.Rules()[0].Lookup([]string{"edge", "plan=free", "user=7"})
	if err != nil || string(key) != "service=4:edge entry.1=9:plan=free entry.2=6:user=7" {
		t.Errorf("%s, %v", key, err)
	}
	odd := &rules.Request{DescriptorKeys: []string{"a=b"}, DescriptorValues: []string{"c"}}
	if key, _ := set.Rules()[0].AppendKey(nil, odd); string(key) != "service=- entry.1=7:a%3Db=c entry.2=-" {
		t.Errorf("%s", key)
	}
}

func TestDescriptorKeysAndChargeAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a, match: {descriptor_keys: ["=b"]}, limit: 1/1s}`:                            `match.descriptor_keys "=b"; allowed: a key, or key=value`,
		`{name: a, match: {descriptor_keys: ["b="]}, limit: 1/1s}`:                            `match.descriptor_keys "b="; allowed`,
		`{name: a, match: {descriptor_keys: ` + strings.Repeat("x", 1025) + `}, limit: 1/1s}`: `at most 1024`,
		`{name: a, match: {not: {descriptor_keys: a=b}}, limit: 1/1s}`:                        `match.not[0].descriptor_keys "a=b": keys alone are allowed here`,
		`{name: a, key: [entry.0], limit: 1/1s}`:                                              `the number of an entry of the descriptor, 1 to 64, must follow entry.`,
		`{name: a, key: [entry.01], limit: 1/1s}`:                                             `must follow entry.`,
		`{name: a, charge: half, limit: 1/1s}`:                                                `charge is "half"`,
		`{name: a, charge: full, limit: concurrency 5 ttl 1m}`:                                "charge: full cannot be of concurrency 5 ttl 1m",
		`{name: a, cost: 5, limit: 1/1s}`:                                                     "can never be granted",
		`{name: a, charge: full, cost: 5, limit: 1/1s, key: [user, user]}`:                    "occurs twice",
	} {
		_, err := rules.Load("rules.yaml", []byte("rules:\n  - "+text))
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(text, "full, cost") && strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestClaimsOfDescriptors(t *testing.T) {
	twenty := func(to []rules.Spec, match rules.Match) []rules.Spec {
		for range 20 {
			to = append(to, rules.Spec{Name: fmt.Sprint("r", len(to)), Limit: []string{"1/1s"}, Match: match})
		}
		return to
	}
	keys := func(texts ...string) rules.Match { return rules.Match{DescriptorKeys: texts} }
	for _, tt := range []struct {
		one, other rules.Match
		want       string
	}{
		{keys("a=x*", "b"), keys("a=x*", "b"), `descriptor: a=xany, b=any" meets rules with 40 limits`},
		{keys("a=x", "b"), rules.Match{User: []string{"ann"}, DescriptorKeys: []string{"a", "b"}},
			`descriptor: a=x, b=any, user: ann" meets rules with 40 limits`},
		{keys("a=x", "b"), keys("a", "b"), ""},
		{keys("a=x"), keys("a=x", "b"), ""},
	} {
		_, err := rules.Compile(&rules.File{Rules: twenty(twenty(nil, tt.one), tt.other)})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v and %v: %v, want %s", tt.one, tt.other, err, tt.want)
		}
	}
}

func TestKeysOfEntriesAreFoundByTheirText(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: user, match: {service: edge, descriptor_keys: [plan=free, user]}, key: [service, entry.1, entry.2], limit: 1/1s}
  - {name: both, match: {service: edge, descriptor_keys: [plan, user]}, key: [service, entry.1, entry.2], limit: 1/1s}
  - {name: any, match: {service: edge, descriptor_keys: "p*"}, key: [service, entry.1], limit: 1/1s}
`)
	for _, tt := range []struct{ rule, text, want string }{
		{"user", "edge: plan=free, user=7", "service=4:edge entry.1=9:plan=free entry.2=6:user=7"},
		{"user", "7", "service=4:edge entry.1=9:plan=free entry.2=6:user=7"},
		{"user", "user=7", "service=4:edge entry.1=9:plan=free entry.2=6:user=7"},
		{"user", "edge: user=7", "service=4:edge entry.1=9:plan=free entry.2=17:user=edge: user=7"},
		{"both", "edge: plan=x, user=7", "service=4:edge entry.1=6:plan=x entry.2=6:user=7"},
		{"both", "edge: plan=x, user=7, user=8", ""}, // of two keys
		{"both", "7", ""},
		{"any", "pa=x", "service=4:edge entry.1=4:pa=x"},
	} {
		for _, rule := range set.Rules() {
			if rule.Name() != tt.rule {
				continue
			}
			key, _, err := rule.LookupText(tt.text)
			if string(key) != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%s %q: %q %v, want %q", tt.rule, tt.text, key, err, tt.want)
			}
		}
	}
}

func TestWhyDescriptorKeysDoNotMatch(t *testing.T) {
	file, err := rules.Parse("f", []byte(`
rules:
  - {name: plan, match: {descriptor_keys: plan}, limit: 1/1s}
  - {name: free, match: {descriptor_keys: plan=free}, limit: 1/1s}
  - {name: region, match: {path: /**, descriptor_keys: [plan, region]}, limit: 1/1s}
  - {name: gold, match: {path: /**, descriptor_keys: [plan=gold, user]}, limit: 1/1s}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule             int
		descriptor, want string
	}{
		{0, "plan=free", "[the descriptor is closer to free]"}, {1, "plan=x", "[]"}, {0, "plan=x", "[]"},
		{2, "plan=gold region=eu", "[the descriptor is closer to another rule, which does not match either]"},
		{2, "plan=x", "[descriptors are plan=x, not plan, region]"},
	} {
		r := described(tt.descriptor)
		r.Path = "/"
		if got := fmt.Sprint(file.Unmatched(tt.rule, set.Match(r, nil), r)); got != tt.want {
			t.Errorf("rule %d, %s: %s, want %s", tt.rule, tt.descriptor, got, tt.want)
		}
	}
}
