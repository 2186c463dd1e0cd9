package ratelimitconf_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
)

// A branch is a descriptor of a configuration, and of the slow model of the service.
type branch struct {
	key, value string
	perUnit    int
	multiplier int64
	unit       string // "": no limit
	unlimited  bool
	shadow     bool
	share      bool
	below      []*branch
}

// An entry is one of a descriptor in a request.
type entry struct{ key, value string }

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

// find is the walk as the service documents it: at each level the value, else the first wildcard of the file that fits,
// else the key alone; the limit is where the entries end.
func find(level []*branch, entries []entry) (limit *branch, path []*branch) {
	for i, e := range entries {
		at := slices.IndexFunc(level, func(b *branch) bool { return b.value != "" && b.key == e.key && b.value == e.value })
		if at < 0 {
			at = slices.IndexFunc(level, func(b *branch) bool {
				return strings.Contains(b.key+b.value, "*") && globs(b.key, e.key) && (b.value == "" || globs(b.value, e.value))
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

// A model counts as the service does: in windows that begin at multiples of the unit, by the values of the entries. It
// charges no request that it refuses, as weir.
type model struct {
	tree   []*branch
	counts map[string]int
}

var lengths = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400}

func (m *model) refuses(at int64, entries []entry) bool {
	limit, path := find(m.tree, entries)
	if limit == nil || limit.unit == "" || limit.unlimited {
		return false
	}
	key := ""
	for i, e := range entries {
		if path[i].share {
			e = entry{path[i].key, path[i].value}
		}
		key += fmt.Sprintf("%q=%q ", e.key, e.value)
	}
	window := lengths[limit.unit] * max(1, limit.multiplier)
	key += fmt.Sprint(window, at/1_000_000/window)
	if m.counts[key] >= limit.perUnit {
		return !limit.shadow
	}
	m.counts[key]++
	return false
}

// Words of random trees are few, so that branches overlap, and keys stand twice in a path.
var (
	keys   = []string{"a", "b", "c", "a", "b", "a*"}
	values = []string{"", "", "x", "xy", "xyz", "y", "x*", "xy*", "*", "x*z", "*y", "*y*"}
	sent   = []string{"x", "xy", "xyz", "xyzz", "y", "z*", "z", "", "x*"}
	units  = []string{"second", "minute", "hour", "day", "week", "month", "year"}
)

func randomTree(r *rand.Rand, depth int) (list []*branch) {
	seen := make(map[string]bool)
	for range 1 + r.IntN(6) {
		b := &branch{key: keys[r.IntN(len(keys))], value: values[r.IntN(len(values))], shadow: r.IntN(6) == 0}
		if text := b.key + "_" + b.value; seen[text] {
			continue
		} else {
			seen[text] = true
		}
		if r.IntN(4) > 0 {
			b.perUnit, b.unit, b.unlimited = r.IntN(5), units[r.IntN(len(units))], r.IntN(5) == 0
			b.multiplier = r.Int64N(3)
		}
		b.share = strings.Contains(b.key+b.value, "*") && r.IntN(3) == 0
		if depth > 1 && r.IntN(2) == 0 {
			b.below = randomTree(r, depth-1)
		}
		list = append(list, b)
	}
	return list
}

func writeTree(out *strings.Builder, indent string, list []*branch) {
	fmt.Fprintf(out, "%sdescriptors:\n", indent)
	for _, b := range list {
		fmt.Fprintf(out, "%s  - key: %q\n", indent, b.key)
		if b.value != "" {
			fmt.Fprintf(out, "%s    value: %q\n", indent, b.value)
		}
		fmt.Fprintf(out, "%s    shadow_mode: %t\n%s    share_threshold: %t\n", indent, b.shadow, indent, b.share)
		switch {
		case b.unlimited:
			fmt.Fprintf(out, "%s    rate_limit: {unlimited: true}\n", indent)
		case b.unit != "" && b.multiplier > 0:
			fmt.Fprintf(out, "%s    rate_limit: {unit: %s, unit_multiplier: %d, requests_per_unit: %d}\n", indent, b.unit, b.multiplier, b.perUnit)
		case b.unit != "":
			fmt.Fprintf(out, "%s    rate_limit: {unit: %s, requests_per_unit: %d}\n", indent, b.unit, b.perUnit)
		}
		if len(b.below) > 0 {
			writeTree(out, indent+"    ", b.below)
		}
	}
}

func TestRulesEqualTheSlowModel(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &model{tree: randomTree(r, 4), counts: make(map[string]int)}
		var source strings.Builder
		source.WriteString("domain: site\n")
		writeTree(&source, "", m.tree)
		l := limiterOf(t, ratelimitconf.Options{}, source.String())
		for range 300 {
			step := r.Int64N(400_000)
			if r.IntN(100) == 0 {
				step += r.Int64N(90_000_000_000_000)
			}
			at := l.now.Add(step)
			call, entries := "site/", []entry(nil)
			for range 1 + r.IntN(4) {
				e := entry{keys[r.IntN(3)], sent[r.IntN(len(sent))]}
				if r.IntN(10) == 0 {
					e.key += "z"
				}
				entries = append(entries, e)
				call += " " + e.key + "=" + e.value
			}
			if want := m.refuses(at, entries); l.passes(call) == want {
				t.Fatalf("seed %d: %s at %d: refused by the model: %t\n%s", seed, call, at, want, &source)
			} else if want {
				refused++
			}
		}
	}
	if refused < 500 {
		t.Errorf("only %d requests were refused", refused)
	}
}
