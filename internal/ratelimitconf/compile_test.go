package ratelimitconf_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

func parsed(t testing.TB, text string) *ratelimitconf.Config {
	t.Helper()
	config, err := ratelimitconf.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func compiled(t testing.TB, o ratelimitconf.Options, texts ...string) *rules.File {
	t.Helper()
	var configs []*ratelimitconf.Config
	for _, text := range texts {
		configs = append(configs, parsed(t, text))
	}
	file, err := ratelimitconf.Compile(configs, o)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestALimitIsARule(t *testing.T) {
	t.Parallel()
	file := compiled(t, ratelimitconf.Options{}, `
domain: messaging
descriptors:
  - key: message_type
    value: "market*"
    share_threshold: true
    descriptors:
      - key: to=number
        quota_mode: true
        shadow_mode: true
        metadata: {tier: 1}
        rate_limit: {unit: month, requests_per_unit: 5, name: mine, replaces: [{name: a}, {name: b}]}
      - {key: exempt}
  - {key: open, shadow_mode: true, rate_limit: {unlimited: true, name: x, replaces: [{name: c}]}}
  - {key: closed, value: x, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	match := func(keys ...string) rules.Match {
		return rules.Match{Service: []string{"messaging"}, DescriptorKeys: keys}
	}
	want := []rules.Spec{
		{Name: "messaging.message_type_market_.to_number", Description: "f:8", Match: match("message_type=market*", "to%3Dnumber"),
			Key: []string{"service", "entry.2"}, Limit: []string{"fixed_window 5/30d epoch"}, Mode: rules.Shadow, Alias: "mine",
			Replaces: []string{"a", "b"}, Quota: true, Metadata: map[string]any{"tier": 1.0}},
		{Name: "messaging.message_type_market_.exempt", Description: "f:13", Match: match("message_type=market*", "exempt"),
			Key: []string{"service", "entry.2"}, Limit: []string{"unlimited"}, Mode: rules.Shadow},
		{Name: "messaging.open", Description: "f:14", Match: match("open"), Key: []string{"service", "entry.1"},
			Limit: []string{"unlimited"}, Replaces: []string{"c"}},
		{Name: "messaging.closed_x", Description: "f:15", Match: match("closed=x"), Key: []string{"service", "entry.1"},
			Limit: []string{"fixed_window 1/1h epoch"}, Deny: map[string][]string{"service": {"messaging"}}},
	}
	for i := range max(len(want), len(file.Rules)) {
		if i >= len(want) || i >= len(file.Rules) || !reflect.DeepEqual(file.Rules[i], want[i]) {
			t.Errorf("got %+v\nwant %+v", file.Rules[i:], want[min(i, len(want)):])
			break
		}
	}
}

// TestNamesAreStable: the name of a rule does not change with other descriptors, unless two would have one name.
func TestNamesAreStable(t *testing.T) {
	t.Parallel()
	limited := func(keys ...string) string {
		text := "domain: d.e\ndescriptors:\n"
		for _, key := range keys {
			text += fmt.Sprintf("- {key: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", key)
		}
		return text
	}
	names := func(keys ...string) (list []string) {
		for _, rule := range compiled(t, ratelimitconf.Options{}, limited(keys...)).Rules {
			list = append(list, rule.Name)
		}
		return list
	}
	long := strings.Repeat("x", 150)
	alone := names("a/b", long)
	if alone[0] != "d.e.a_b" || len(alone[1]) != 128 || !strings.HasPrefix(alone[1], "d.e.xxx") {
		t.Errorf("%q", alone)
	}
	if more := names("z", long, "a/b", long+"y"); more[2] != alone[0] || more[1] != alone[1] || more[3] == more[1] {
		t.Errorf("with others %q", more)
	}
	twice := names("a/b", "a b")
	if twice[0] == twice[1] || !strings.HasPrefix(twice[0], "d.e.a_b-") || !slices.Equal(twice, []string{names("x", "a b", "a/b")[2], names("a b", "a/b")[0]}) {
		t.Errorf("of one text: %q", twice)
	}
	path := compiled(t, ratelimitconf.Options{}, limited("a.b")+"- {key: a, descriptors: [{key: b}]}").Rules
	if path[0].Name == path[1].Name {
		t.Errorf("of one text: %+v", path)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	text := `
domain: d
descriptors:
  - {key: a, value: x, descriptors: [{key: b, rate_limit: {unit: MINUTE, requests_per_unit: 10}}]}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: e, rate_limit: {unit: hour, requests_per_unit: 0}}
`
	var asked, adjusted []string
	file := compiled(t, ratelimitconf.Options{
		Algorithm: func(domain, path, unit string) string {
			asked = append(asked, domain+" "+path+" "+unit)
			return map[string]string{"minute": "sliding_log"}[unit]
		},
		Adjust: func(domain, path string, rule *rules.Spec) error {
			adjusted = append(adjusted, domain+" "+path)
			rule.Ban = rules.Ban{After: "5 refusals within 1m", For: "1h"}
			return nil
		},
	}, text)
	if got := fmt.Sprint(file.Rules[0].Limit, file.Rules[1].Limit, file.Rules[1].Ban.For); got != "[sliding_log 10/1m] [fixed_window 20/1h epoch]1h" {
		t.Error(got)
	}
	if got := fmt.Sprint(asked, adjusted); got != "[d a_x.b minute d c hour] [d a_x.b d c d e]" {
		t.Error(got)
	}
	wrong := ratelimitconf.Options{Adjust: func(_, path string, rule *rules.Spec) error {
		if path == "c" {
			return errors.New("no such ban")
		}
		rule.Limit = []string{"1/1m later"}
		return nil
	}}
	_, err := ratelimitconf.Compile([]*ratelimitconf.Config{parsed(t, text)}, wrong)
	if err == nil || !strings.Contains(err.Error(), "f:5:5: no such ban") || !strings.Contains(err.Error(), "f:4:38: rule d.a_x.b: ") {
		t.Error(err)
	}
}

// TestMistakesOfData: those that only Compile can see, and those of a configuration that is no file.
func TestMistakesOfData(t *testing.T) {
	t.Parallel()
	second := func(d ratelimitconf.Descriptor) *ratelimitconf.Config {
		return &ratelimitconf.Config{Name: "res", Domain: "d", Descriptors: []ratelimitconf.Descriptor{{Key: "a"}, d}}
	}
	open := second(ratelimitconf.Descriptor{Key: "b", Limit: &ratelimitconf.Limit{Unit: "UNKNOWN", Unlimited: true}})
	if _, err := ratelimitconf.Compile([]*ratelimitconf.Config{open}, ratelimitconf.Options{}); err != nil {
		t.Error(err)
	}
	open.Name = "a\nb" + strings.Repeat("限", 500)
	if file, err := ratelimitconf.Compile([]*ratelimitconf.Config{open}, ratelimitconf.Options{}); err != nil ||
		!strings.HasPrefix(file.Rules[0].Description, "a b限") {
		t.Error(err)
	}
	_, err := ratelimitconf.Compile([]*ratelimitconf.Config{parsed(t, string(thousands(150)))}, ratelimitconf.Options{
		Adjust: func(_, _ string, rule *rules.Spec) error {
			rule.Limit = []string{"never"}
			return nil
		}})
	if err == nil || !strings.HasSuffix(err.Error(), "\nand 51 more") {
		t.Errorf("of many mistakes: %v", err)
	}
	deep := ratelimitconf.Descriptor{Key: "z", Limit: &ratelimitconf.Limit{Unit: "DAY", RequestsPerUnit: 1}}
	for range 8 {
		deep = ratelimitconf.Descriptor{Key: "k", Descriptors: []ratelimitconf.Descriptor{deep}}
	}
	for want, config := range map[string]*ratelimitconf.Config{
		"res: domain: domain is missing":                                                 {Name: "res"},
		"res: descriptors[1].key: key is missing":                                        second(ratelimitconf.Descriptor{Value: "x"}),
		`res: descriptors[1]: a descriptor with key "a" and value ""`:                    second(ratelimitconf.Descriptor{Key: "a"}),
		`res: descriptors[1].rate_limit.unit: unit is "9"; allowed: second,`:             second(ratelimitconf.Descriptor{Key: "b", Limit: &ratelimitconf.Limit{Unit: "9"}}),
		`res: b: rule d.b: `:                                                             second(ratelimitconf.Descriptor{Key: "b", Limit: &ratelimitconf.Limit{Unit: "YEAR", UnitMultiplier: 1 << 31}}),
		`res: k.k.k.k.k.k.k.k.z: rule d.k.k.k.k.k.k.k.k.z: key has 10 values; at most 8`: second(deep),
	} {
		_, err := ratelimitconf.Compile([]*ratelimitconf.Config{config}, ratelimitconf.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// thousands is a configuration with n limits: values of a key beside the key, pairs, and wildcards.
func thousands(n int) []byte {
	var b bytes.Buffer
	b.WriteString("domain: edge\ndescriptors:\n  - key: tenant\n    rate_limit:\n      unit: minute\n      requests_per_unit: 7\n")
	for i := 1; i < n; i += 3 {
		fmt.Fprintf(&b, "  - key: tenant\n    value: t-%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: %d\n", i, i)
		fmt.Fprintf(&b, "    descriptors:\n      - key: user\n        rate_limit:\n          unit: hour\n          requests_per_unit: %d\n", i)
		fmt.Fprintf(&b, "  - key: tenant\n    value: 'p-%d-*'\n    rate_limit:\n      unit: day\n      requests_per_unit: %d\n", i, i)
	}
	return b.Bytes()
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		text := thousands(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				config, err := ratelimitconf.Parse("f", text)
				if err != nil {
					b.Fatal(err)
				}
				file, err := ratelimitconf.Compile([]*ratelimitconf.Config{config}, ratelimitconf.Options{})
				if err != nil {
					b.Fatal(err)
				}
				set, err := rules.Compile(file)
				if err != nil || len(set.Rules()) < n {
					b.Fatal(err, len(set.Rules()))
				}
			}
		})
	}
}
