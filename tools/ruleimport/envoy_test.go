package ruleimport_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// A branch is a descriptor of a file of envoyproxy/ratelimit, and of the model below.
type branch struct {
	key, value string
	perUnit    int
	seconds    int64 // 0: no limit
	unlimited  bool
	shadow     bool
	share      bool
	below      []*branch
}

// An entry is one of a descriptor in a request.
type entry struct{ key, value string }

// globs reports whether a text consists of the parts, with any texts between them.
func globs(parts []string, text string) bool {
	rest, begins := strings.CutPrefix(text, parts[0])
	last := parts[len(parts)-1]
	return begins && len(rest) >= len(last) && strings.HasSuffix(rest, last) && len(parts) == 2
}

// find is how envoyproxy/ratelimit documents its look-up: "a specific value before the key alone", one level for each
// entry, and a limit only where the entries end.
func find(level []*branch, entries []entry) (limit *branch, path []*branch) {
	for i, e := range entries {
		at := slices.IndexFunc(level, func(b *branch) bool { return b.key == e.key && b.value == e.value })
		if at < 0 {
			at = slices.IndexFunc(level, func(b *branch) bool {
				return b.key == e.key && strings.Contains(b.value, "*") && globs(strings.Split(b.value, "*"), e.value)
			})
		}
		if at < 0 {
			at = slices.IndexFunc(level, func(b *branch) bool { return b.key == e.key && b.value == "" })
		}
		if at < 0 {
			return nil, nil
		}
		path = append(path, level[at])
		if i == len(entries)-1 {
			return level[at], path
		}
		level = level[at].below
	}
	return nil, nil
}

// A referenceLimiter counts as envoyproxy/ratelimit does: in windows that begin with the unit, by the values.
type referenceLimiter struct {
	tree   []*branch
	counts map[string]int
}

func (l *referenceLimiter) refuses(at int64, entries []entry) bool {
	limit, path := find(l.tree, entries)
	if limit == nil || limit.seconds == 0 || limit.unlimited {
		return false
	}
	key := ""
	for i, e := range entries {
		value := e.value
		if path[i].share {
			value = path[i].value
		}
		key += fmt.Sprintf("%q=%q ", e.key, value)
	}
	key += fmt.Sprint(limit.seconds, at/1_000_000/limit.seconds)
	l.counts[key]++
	return l.counts[key] > limit.perUnit && !limit.shadow
}

// Words of random trees are few, so that branches overlap.
var (
	keys       = []string{"a", "b", "c"}
	values     = []string{"", "", "x", "xy", "xyz", "y", "x*", "xy*", "*", "x*z", "*y"}
	sent       = []string{"x", "xy", "xyz", "xyzz", "y", "z*", "z"}
	units      = map[int64]string{1: "second", 60: "minute", 3600: "hour", 86400: "day"}
	unitLength = []int64{1, 60, 3600, 86400}
)

func randomTree(r *rand.Rand, without []string, depth int) (list []*branch) {
	seen := make(map[entry]bool)
	for range 1 + r.IntN(5) {
		b := &branch{key: keys[r.IntN(len(keys))], value: values[r.IntN(len(values))], shadow: r.IntN(6) == 0}
		if seen[entry{b.key, b.value}] || slices.Contains(without, b.key) {
			continue
		}
		seen[entry{b.key, b.value}] = true
		if r.IntN(4) > 0 {
			b.perUnit, b.seconds, b.unlimited = r.IntN(5), unitLength[r.IntN(4)], r.IntN(5) == 0
		}
		b.share = strings.Contains(b.value, "*") && r.IntN(3) == 0
		if depth > 1 && r.IntN(2) == 0 {
			b.below = randomTree(r, append(slices.Clone(without), b.key), depth-1)
		}
		list = append(list, b)
	}
	return list
}

func writeTree(out *strings.Builder, indent string, list []*branch) {
	fmt.Fprintf(out, "%sdescriptors:\n", indent)
	for _, b := range list {
		fmt.Fprintf(out, "%s  - key: %s\n", indent, b.key)
		if b.value != "" {
			fmt.Fprintf(out, "%s    value: %q\n", indent, b.value)
		}
		if b.shadow {
			fmt.Fprintf(out, "%s    shadow_mode: true\n", indent)
		}
		if b.share {
			fmt.Fprintf(out, "%s    share_threshold: true\n", indent)
		}
		if b.unlimited {
			fmt.Fprintf(out, "%s    rate_limit: {unlimited: true}\n", indent)
		} else if b.seconds > 0 {
			fmt.Fprintf(out, "%s    rate_limit: {unit: %s, requests_per_unit: %d}\n", indent, units[b.seconds], b.perUnit)
		}
		if len(b.below) > 0 {
			writeTree(out, indent+"    ", b.below)
		}
	}
}

// descriptors are those of a request to Envoy's service.
type descriptors []entry

func (d descriptors) Header(string) string { return "" }
func (d descriptors) Query(string) string  { return "" }
func (d descriptors) Cookie(string) string { return "" }
func (d descriptors) Descriptor(name string) string {
	for _, e := range d {
		if e.key == name {
			return e.value
		}
	}
	return ""
}

func TestEnvoyRulesDecideAsTheReferenceDocuments(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		reference := &referenceLimiter{tree: randomTree(r, nil, 3), counts: make(map[string]int)}
		var source strings.Builder
		source.WriteString("domain: site\n")
		if len(reference.tree) > 0 {
			writeTree(&source, "", reference.tree)
		}
		result, yaml := imported(t, "envoy", source.String())
		if len(result.Notes) > 0 {
			t.Fatalf("%v\n%s", result.Notes, &source)
		}
		rp := importtest.NewReplay(t, yaml)
		at := int64(1_700_000_000_000_000)
		for range 300 {
			at += r.Int64N(400_000)
			if r.IntN(100) == 0 {
				at += r.Int64N(90_000_000_000)
			}
			var entries descriptors
			names := make([]string, 0, 3)
			for _, i := range r.Perm(len(keys))[:1+r.IntN(len(keys))] {
				entries = append(entries, entry{keys[i], sent[r.IntN(len(sent))]})
				names = append(names, keys[i])
			}
			domain := "site"
			if r.IntN(20) == 0 {
				domain = "other"
			}
			v := rp.Decide(t, at, &rules.Request{Service: domain, DescriptorKeys: names, Attributes: entries})
			want := domain == "site" && reference.refuses(at, entries)
			if got := v.Outcome != gate.Passed; got != want {
				t.Fatalf("seed %d: %v at %d: refused %t, the reference %t\n%s\n%s", seed, entries, at, got, want, &source, yaml)
			}
			if want {
				refused++
			}
		}
	}
	if refused < 500 {
		t.Errorf("only %d requests were refused", refused)
	}
}

func TestEnvoyListsWhatHasNoEqual(t *testing.T) {
	t.Parallel()
	result, _ := imported(t, "envoy", `domain: site
descriptors:
  - key: a
    detailed_metric: true
    value_to_metric: true
    quota_mode: true
    rate_limit: {unit: month, requests_per_unit: 1}
  - key: b
    colour: red
    rate_limit: {unit: second, requests_per_unit: 1, replaces: [{name: x}]}
  - key: c
    rate_limit: {unit: second, requests_per_unit: 1, unit_multiplier: 5}
  - key: d*
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: e
    descriptors:
      - key: e
        rate_limit: {unit: second, requests_per_unit: 1}
`)
	want := []int{4, 5, 6, 7, 9, 10, 12, 13, 17}
	var got []int
	for _, n := range result.Notes {
		got = append(got, n.Line)
	}
	if !slices.Equal(got, want) || len(result.Rules.Rules) != 1 {
		t.Errorf("notes at lines %v, want %v; %d rules\n%v", got, want, len(result.Rules.Rules), result.Notes)
	}
}

func TestEnvoyMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"domain: a\ndescriptors:\n- value: x":          `source:3:3: key is missing`,
		"descriptors: []":                              `source:1:1: domain is missing`,
		"domain: \"*\"\ndescriptors: []":               `domain is "*"`,
		"domain: a\ndescriptors: [{key: a}, {key: a}]": `value "" occurs twice`,
		"domain: a\n---\ndomain: a":                    `source:3:1: domain "a" occurs twice`,
		"domain: a\ndescriptors: {}":                   `source:2:14: descriptors must be a list`,
		"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: eon, requests_per_unit: 1}}":  `unit is "EON"; allowed: second`,
		"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}": `requests_per_unit is "-1"`,
		"domain: a\ndescriptors: &x [{key: a, descriptors: *x}]":                              `over 1000 aliases`,
		"": `the file is empty`, "a: [": `not YAML`,
	} {
		_, err := ruleimport.Import("envoy", []ruleimport.Text{{Name: "source", Data: []byte(source)}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}
