package rules_test

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

var update = flag.Bool("update", false, "write the errors that Parse reports into testdata/errors")

// TestErrors reads each story of testdata/errors: a rule file and the errors that it has.
func TestErrors(t *testing.T) {
	names, err := filepath.Glob("testdata/errors/*.txt")
	if err != nil || len(names) < 15 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(strings.TrimPrefix(string(text), "-- rules.yaml --\n"), "-- errors --\n")
			if !ok {
				t.Fatal("no line -- errors --")
			}
			_, err = rules.Parse("rules.yaml", []byte(input))
			if err == nil {
				t.Fatal("Parse found no mistake")
			}
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(name, []byte("-- rules.yaml --\n"+input+"-- errors --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

//go:embed testdata/good.yaml
var good string

func TestParse(t *testing.T) {
	file, err := rules.Parse("f", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	settings := rules.Server{Store: "redis://user:secret@127.0.0.1:6379/0", Nodes: 3, FallbackKeys: 1000,
		TrustedProxies: []string{"10.0.0.0/8", "2001:db8::1"}, ClientHeader: "Forwarded"}
	if !reflect.DeepEqual(file.Server, settings) {
		t.Errorf("server is %+v", file.Server)
	}
	file.Server = rules.Server{}
	got := strings.ReplaceAll(fmt.Sprintf("%+v", file), fmt.Sprintf(" Server:%+v", rules.Server{}), "")
	got = strings.ReplaceAll(got, "map[", "[")
	want := "&{Name:f ServiceKind: " +
		"Allow:[client.ip:[127.0.0.1 192.0.2.0/24] header.X-Probe:[*]] Deny:[user trim lower:[mallory bot-*]] " +
		"Response:{Status:503 Fields:seconds Body:json ContentType: Shape: As:} Message:[] " +
		"Rules:[{Name:whole-site Label: Description: Labels:[] Preset: Enabled:<nil> Match:{Method:[] Host:[] Path: Client:[] Country:[] ASN:[] Service:[] User:[] Route:[] Header:[] Query:[] JSON:[] Descriptor:[] MCP:{Method:[] Tool:[]} DescriptorKeys:[] Regex:{Path:[] Header:[] Descriptor:[] MCP:{Method:[] Tool:[]}} Any:[] Not:[]} Group: Schedule:[] Allow:[] Deny:[] " +
		"Key:[] OnMissing: Algorithm: Limit:[5000/s burst 10000] Overrides:[] Unit: Cost:{Units:0 From: Default:0 Max:0 Settle: By: Each:[] OnMissing: Learn:} Reserve:{By: Classes:[] Match:[] Otherwise:} " +
		"Fair:{By:[] Above: Weights:[] WeightBy: MaxKeys:0} Stream:{AskUsage:<nil> Count: Step:0 Overrun:} CountIf:{Status:[] Header:[]} Charge: Mode: " +
		"OnStoreError: Response:{Status:0 Fields: Body: ContentType: Shape: As:} Message:[] Once:{By: For: Repeats:0 Repeat:} Ban:{After: For: Then:[] Forget:} Candidate:{Limit:[] Algorithm: Key:[]} EnforcePercent:<nil> LeasePercent:10 HoldUntil: LocalCeiling:1.2 Alias: Replaces:[] Quota:false Metadata:[]} " +
		"{Name:login Label: Description: Labels:[] Preset: Enabled:<nil> Match:{Method:[POST PUT] Host:[Example.com *.example.com] Path:/users/{id}/login " +
		"Client:[203.0.113.0/24 2001:db8::/32 192.0.2.7] Country:[] ASN:[] Service:[] User:[] Route:[] Header:[X-Version:[2] x-plan:[free]] Query:[debug:[*]] JSON:[model:[m]] Descriptor:[tenant:[a b]] MCP:{Method:[] Tool:[]} DescriptorKeys:[] Regex:{Path:[] Header:[] Descriptor:[] MCP:{Method:[] Tool:[]}} Any:[] Not:[]} Group: " +
		"Schedule:[{Days:[mon-fri sun] Hours:09:00-18:00 Zone:Asia/Shanghai} {Days:[] Hours:22:00-24:00 Zone:}] " +
		"Allow:[path.id:[1]] Deny:[client.ip:[203.0.113.9]] " +
		"Key:[client.ip v4/24 v6/48 path.id header.x-user trim nfkc lower constant.x] OnMissing:deny Algorithm:sliding_log " +
		"Limit:[5/1m 20/1h] Overrides:[{Key:[203.0.113.0/24 * ann x] Limit:[50/1m]}] " +
		"Unit:tokens Cost:{Units:0 From:header.x-tokens Default:2 Max:4 Settle:header.x-used By: Each:[] OnMissing:deny Learn:} Reserve:{By: Classes:[] Match:[] Otherwise:} " +
		"Fair:{By:[] Above: Weights:[] WeightBy: MaxKeys:0} Stream:{AskUsage:<nil> Count: Step:0 Overrun:} CountIf:{Status:[401 5xx] Header:[x-login:[failed]]} Charge: Mode:shadow OnStoreError:allow " +
		"Response:{Status:403 Fields: Body:{{.Message}} ContentType:text/html Shape: As:} Message:[{Language:zh Text:请等待} {Language:en Text:wait}] Once:{By:header.x-id For:10m Repeats:5 Repeat:pass} Ban:{After: For: Then:[] Forget:} Candidate:{Limit:[] Algorithm: Key:[]} EnforcePercent:<nil> LeasePercent:0 HoldUntil: LocalCeiling:0 Alias:gold Replaces:[usual] Quota:true Metadata:[a:[b:1 c:[x true]]]}] Overlay:[] Services:[] Routes:[] Exceptions:[] Disabled:[]}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCompile(t *testing.T) {
	set := compiled(t, good)
	site, login := set.Rules()[0], set.Rules()[1]
	if site.Name() != "whole-site" || site.Mode() != rules.Enforce || site.OnMissing() != rules.Anonymous ||
		site.OnStoreError() != rules.Local || site.Cost() != 1 || len(site.Limits()) != 1 ||
		site.LeasePercent() != 10 || site.LocalCeiling() != 1.2 || set.Server().Nodes != 3 {
		t.Errorf("the defaults are %+v", site)
	}
	if login.Index() != 1 || login.Mode() != rules.Shadow || login.OnMissing() != rules.Deny ||
		login.OnStoreError() != rules.AllowAll || login.Cost() != 2 {
		t.Errorf("the words are %+v", login)
	}
	var limits []string
	for _, limit := range login.Limits() {
		limits = append(limits, limit.Name()+" "+limit.String())
	}
	if got := strings.Join(limits, "; "); got != "login sliding_log 5/1m; login.2 sliding_log 20/1h" {
		t.Errorf("the limits are %s", got)
	}
}

// TestCompileChecksToo: a program may pass a File that Parse would refuse.
func TestCompileChecksToo(t *testing.T) {
	_, err := rules.Compile(&rules.File{Name: "program", Rules: []rules.Spec{
		{Name: "a", Limit: []string{"5/60"}, Cost: rules.Cost{Units: -1}},
		{Match: rules.Match{Host: []string{""}, Method: []string{""}, Header: map[string][]string{"X": nil}}, Key: []string{""}},
	}})
	var list *rules.Error
	if !errors.As(err, &list) || len(list.Problems) != 9 {
		t.Fatalf("got %v", err)
	}
	if first := list.Problems[0].String(); !strings.HasPrefix(first, "program: rules[0].cost: cost is -1") {
		t.Errorf("the first is %s", first)
	}
}

// TestMistakesOfPrograms: these values cannot be written in a file.
func TestMistakesOfPrograms(t *testing.T) {
	for want, file := range map[string]rules.File{
		"f: allow.user: allow.user has no values":                                          {Allow: map[string][]string{"user": {}}},
		`f: deny.user[0]: deny.user has "": a value of 1 to 1024 bytes`:                    {Deny: map[string][]string{"user": {""}}},
		`f: server.trusted_proxies[0]: server.trusted_proxies has ""; allowed: an address`: {Server: rules.Server{TrustedProxies: []string{""}}},
		"f: response.status: status is 42; allowed":                                        {Response: rules.Response{Status: 42}},
		"f: response.body: body has 16385 bytes":                                           {Response: rules.Response{Body: strings.Repeat("x", bounds.Body+1)}},
		"f: rules[0].cost: cost is a number, or says where":                                one(rules.Spec{Cost: rules.Cost{Units: 1, Settle: "bytes"}}),
		"f: rules[0].cost.max: cost.max is -1":                                             one(rules.Spec{Cost: rules.Cost{From: "query.n", Max: -1}}),
		"f: rules[0].cost.from: cost.max is missing":                                       one(rules.Spec{Cost: rules.Cost{From: "query.n"}}),
		"f: rules[0].schedule[0]: schedule[0] has neither days nor hours":                  one(rules.Spec{Schedule: []rules.Window{{}}}),
		`f: rules[0].schedule[0].days[0]: days has ""`:                                     one(rules.Spec{Schedule: []rules.Window{{Days: []string{""}}}}),
		"f: rules[0].schedule: schedule has 17 values; at most 16":                         one(rules.Spec{Schedule: make([]rules.Window, 17)}),
		"f: rules[0].overrides[0].limit: overrides[0].limit is missing":                    one(rules.Spec{Key: []string{"user"}, Overrides: []rules.Override{{Key: []string{"a"}}}}),
		"f: rules[0].overrides[0].key: overrides[0].key is missing":                        one(rules.Spec{Key: []string{"user"}, Overrides: []rules.Override{{Limit: []string{"1/1s"}}}}),
		`f: rules[0].overrides[0].key[0]: overrides[0].key has "": a value`:                one(rules.Spec{Key: []string{"user"}, Overrides: []rules.Override{{Key: []string{""}, Limit: []string{"1/1s"}}}}),
		"f: rules[0].match.client: match.client has 65 values; at most 64":                 one(rules.Spec{Match: rules.Match{Client: addresses(65)}}),
		"f: server.trusted_proxies: server.trusted_proxies has 257 values; at most 256":    {Server: rules.Server{TrustedProxies: addresses(257)}},
	} {
		file.Name = "f"
		if _, err := rules.Compile(&file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func one(s rules.Spec) rules.File {
	s.Name, s.Limit = "a", []string{"9/1s"}
	return rules.File{Rules: []rules.Spec{s}}
}

func addresses(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	return list
}

func TestCeilings(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"bytes":      {"#" + strings.Repeat(" ", rules.MaxFile), "bytes"},
		"nodes":      {"rules: [" + strings.Repeat("a,", bounds.Nodes) + "]", "commas"},
		"problems":   {"rules:\n" + strings.Repeat("- {}\n", bounds.Problems), "and 100 more"},
		"value":      {"rules: [{name: a, limit: 1/1s, key: constant." + strings.Repeat("x", bounds.Text) + "}]", "bytes; at most"},
		"utf8":       {"rules: []\n# \xff", "f:2:1: this line is not UTF-8"},
		"attributes": {manyAttributes(), "64 different"},
		"overrides":  {"rules: [{name: a, limit: 1/1s, key: user, overrides: [" + strings.Repeat("{key: a, limit: 1/1s},", bounds.Overrides+1) + "]}]", "overrides has 10001 values; 1 to 10000"},
		"wildcards":  {"rules: [{name: a, limit: 1/1s, key: user, overrides: [" + wildcards(bounds.Wildcards+1) + "]}]", "65 keys with wildcards"},
		"listed":     {"rules: []\nallow: {user: [" + strings.Repeat("a,", bounds.Listed+1) + "]}", "1 to 10000"},
		"sources":    {"rules: []\nallow: {" + sourcesOf(bounds.Sources+1) + "}", "allow has 17 values; at most 16"},
		"windows":    {"rules: [{name: a, limit: 1/1s, schedule: [" + strings.Repeat("{days: mon},", bounds.Windows+1) + "]}]", "schedule has 17 values"},
		"body":       {"response: {body: " + strings.Repeat("x", bounds.Body+1) + "}\nrules: []", "16385 bytes"},
		"tree":       {manyWays(), "too many ways"},
	} {
		_, err := rules.Parse("f", []byte(test.text))
		var list *rules.Error
		if !errors.As(err, &list) || len(list.Problems) > bounds.Problems || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
}

// TestParsingMemoryIsBounded for the densest files that are not refused for their size.
func TestParsingMemoryIsBounded(t *testing.T) {
	most := bounds.Nodes - 10
	for name, text := range map[string]string{
		"list":    "rules: [" + strings.Repeat("a,", most) + "]",
		"lines":   "rules:\n" + strings.Repeat("-\n", most/2),
		"fields":  "rules: [{" + strings.Repeat("a: 1,", most/2) + "}]",
		"braces":  "rules: [" + strings.Repeat("{},", most/2) + "]",
		"comment": "rules: []\n" + strings.Repeat("#\n", most),
		"quotes":  `rules: ["` + strings.Repeat(`\n`, rules.MaxFile/2-10) + `"]`,
		"word":    "rules: " + strings.Repeat("a", rules.MaxFile-10),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := rules.Parse("f", []byte(text)); err == nil && name != "comment" {
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 2700 {
			t.Errorf("%s: %d MiB were allocated", name, grown)
		}
	}
}

// TestMaximaOfAFile count all rules together.
func TestMaximaOfAFile(t *testing.T) {
	var list []string
	for i := range 9_500 {
		list = append(list, fmt.Sprint("u", i))
	}
	var overrides []rules.Override
	for _, user := range list {
		overrides = append(overrides, rules.Override{Key: []string{user}, Limit: []string{"1/1s"}})
	}
	for want, spec := range map[string]rules.Spec{
		"f: rules[5].overrides: the rules up to here have over 50000 overrides":                               {Key: []string{"user"}, Overrides: overrides},
		"f: rules[10].deny.user: deny.user has 9500 values; at most 100000, and 100000 in all lists together": {Deny: map[string][]string{"user": list}},
	} {
		var last int
		if _, err := fmt.Sscanf(want, "f: rules[%d]", &last); err != nil {
			t.Fatal(err)
		}
		file := &rules.File{Name: "f"}
		for i := range last + 1 {
			spec.Name, spec.Limit = fmt.Sprint("r", i), []string{"1/1s"}
			file.Rules = append(file.Rules, spec)
		}
		if _, err := rules.Compile(file); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func wildcards(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("{key: 'a%d*', limit: 1/1s},", i)
	}
	return text
}

func sourcesOf(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("query.a%d: x,", i)
	}
	return text
}

func manyAttributes() string {
	text := "rules:\n"
	for i := range bounds.Attributes + 1 {
		text += fmt.Sprintf("- {name: r%d, limit: 1/1s, match: {header: {X-%d: a}}}\n", i, i)
	}
	return text
}

// manyWays has one rule that may be met in 64 to the power of 5 ways.
func manyWays() string {
	values := "[0"
	for i := range bounds.Values - 1 {
		values += fmt.Sprintf(", v%d", i)
	}
	return fmt.Sprintf("rules: [{name: a, limit: 1/1s, match: {query: {a: %[1]s], b: %[1]s], c: %[1]s], d: %[1]s], e: %[1]s]}}}]", values)
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// pages are the pages of docs/reference about rules.
var pages = []string{"rules", "matching", "paths", "keys", "exceptions", "counting", "repeated-requests", "rollout", "responses"}

// TestThePagesAreRight parses every block of YAML of the pages.
func TestThePagesAreRight(t *testing.T) {
	seen := 0
	for _, name := range pages {
		page, err := os.ReadFile("../docs/reference/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
			seen++
			if _, err := rules.Parse(name, []byte(block[1])); err != nil {
				t.Error(err)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d blocks of yaml", seen)
	}
}

func compiled(t testing.TB, text string, opts ...rules.Option) *rules.Set {
	t.Helper()
	file, err := rules.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	names, _ := filepath.Glob("testdata/errors/*.txt")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := rules.Parse("f", text)
		if err != nil {
			var list *rules.Error
			if !errors.As(err, &list) || len(list.Problems) == 0 || list.Error() == "" {
				t.Fatalf("not a list of problems: %v", err)
			}
			if _, _, lint := rules.Lint("f", text); lint == nil || lint.Error() != err.Error() {
				t.Fatalf("Lint says %v, and Parse %v", lint, err)
			}
			return
		}
		set, err := rules.Compile(file)
		if err != nil {
			t.Fatalf("Parse accepted what Compile refuses: %v", err)
		}
		request := &rules.Request{Method: "POST", Host: "a.example.com", Path: "/users/7%3a/login", User: "ann",
			Client: netip.MustParseAddr("203.0.113.7"), Attributes: attributes{"header X-User": "\uff22ob", "header X-Tokens": "3"}}
		set.Listed(request)
		for _, rule := range set.Rules() {
			rule.Listed(request)
			if bans := rule.Bans(); bans != nil && (bans.Hold == nil || bans.Refusals == nil || bans.Turn == nil || bans.Past == nil || len(bans.Lengths) == 0) {
				t.Fatalf("a ban is half made: %+v", bans)
			}
			if c := rule.Candidate(); c != nil && len(c.Limits()) == 0 {
				t.Fatal("a candidate has no limits")
			}
			rule.Active(now)
			key, _ := rule.AppendKey(nil, request)
			if units, _, err := rule.CostOf(request); err == nil && (units < 1 || units > rule.LimitsFor(request, key)[0].Most()) {
				t.Fatalf("a cost of %d passes, which %s can never grant", units, rule.LimitsFor(request, key)[0])
			}
		}
		set.Match(request, nil)
		if _, _, err := rules.Lint("f", text); err != nil {
			t.Fatalf("Parse accepted what Lint refuses: %v", err)
		}
	})
}

// FuzzTemplate looks for accepted bodies that grow without bound.
func FuzzTemplate(f *testing.F) {
	for _, body := range []string{"{{.Message}}", "{{json .Violated}} {{.RetryAfter}}", "{{html .Message}}{{js .Message}}"} {
		f.Add(body, "m", "v", int64(7), 429)
	}
	f.Fuzz(func(t *testing.T, body, message, violated string, after int64, status int) {
		set, err := rules.Compile(&rules.File{Name: "f", Response: rules.Response{Body: body}, Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1s"}}}})
		if err != nil {
			return
		}
		refusal := &rules.Refusal{Status: status, RetryAfter: after, Message: message, Violated: []string{violated, violated}, Language: "en"}
		text, _ := set.Rules()[0].Body(refusal)
		if most := len(body) * (64 + 12*(len(message)+2*len(violated))); len(text) > most {
			t.Fatalf("%q wrote %d bytes", body, len(text))
		}
	})
}
