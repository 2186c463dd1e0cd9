package ratelimitconf_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A descriptor is the attributes of a request.
type descriptor [][2]string

func (descriptor) Header(string) string { return "" }
func (descriptor) Query(string) string  { return "" }
func (descriptor) Cookie(string) string { return "" }

func (d descriptor) Descriptor(name string) string {
	for _, entry := range d {
		if entry[0] == name {
			return entry[1]
		}
	}
	return ""
}

// met are the rules that a descriptor meets, and the keys by which they count it.
func met(set *rules.Set, d descriptor) (list []string) {
	r := &rules.Request{Service: "edge", Attributes: d}
	for _, entry := range d {
		r.DescriptorKeys = append(r.DescriptorKeys, entry[0])
	}
	for _, rule := range set.Match(r, nil) {
		key, _ := rule.AppendKey(nil, r)
		list = append(list, rule.Name()+" "+string(key))
	}
	return list
}

// tree draws descriptors of a level.
func tree(t *rapid.T, depth int) (list []ratelimitconf.Descriptor) {
	seen := make(map[string]bool)
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		d := ratelimitconf.Descriptor{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			Value: rapid.SampledFrom([]string{"", "x", "y", "x*", "*"}).Draw(t, "value")}
		if text := d.Key + "_" + d.Value; seen[text] {
			continue
		} else {
			seen[text] = true
		}
		if i == 0 || rapid.Bool().Draw(t, "limited") {
			d.Limit = &ratelimitconf.Limit{Unit: "minute", RequestsPerUnit: uint32(rapid.IntRange(0, 3).Draw(t, "requests"))}
			d.ShadowMode = rapid.Bool().Draw(t, "shadow")
		}
		if depth > 1 && rapid.Bool().Draw(t, "deeper") {
			for _, child := range tree(t, depth-1) { // a key twice in a descriptor is another test's
				if child.Key != d.Key {
					d.Descriptors = append(d.Descriptors, child)
				}
			}
		}
		list = append(list, d)
	}
	return list
}

// TestOverlayNeverChangesWhichRequestsMatch, nor the keys by which they are counted.
func TestOverlayNeverChangesWhichRequestsMatch(t *testing.T) {
	entry := rapid.SampledFrom([]string{"a", "a=x", "b", "b=*", "*", "**"})
	sets := rapid.SampledFrom([]rules.Spec{{Mode: rules.Shadow}, {Mode: rules.Enforce}, {Algorithm: "sliding_log"},
		{Algorithm: "token_bucket", OnStoreError: rules.RefuseAll}, {EnforcePercent: new(int)}, {Cost: rules.Cost{Units: 2}},
		{Ban: rules.Ban{After: "1 refusals within 1m", For: "1h"}}, {Candidate: rules.Candidate{Limit: []string{"9/1m"}}}})
	overlays, matches := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		config := &ratelimitconf.Config{Name: "f", Domain: "edge", Descriptors: tree(t, 2)}
		file, err := ratelimitconf.Compile([]*ratelimitconf.Config{config}, ratelimitconf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := rules.Compile(file)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 3).Draw(t, "elements") {
			one := rules.OverlaySpec{Domain: rapid.SampledFrom([]string{"edge", "*", "web"}).Draw(t, "domain"),
				Descriptor: rapid.SliceOfN(entry, 0, 2).Draw(t, "descriptor"), Set: sets.Draw(t, "set")}
			file.Overlay = append(file.Overlay, one)
		}
		overlaid, unmet := file.Overlaid(nil)
		after, err := rules.Compile(overlaid)
		if err != nil {
			t.Fatal(err)
		}
		overlays += len(file.Overlay) - len(unmet)
		values := rapid.SampledFrom([]string{"x", "y", "xx", "z"})
		for range 40 {
			var d descriptor
			for _, key := range rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "a"}}).Draw(t, "keys") {
				d = append(d, [2]string{key, values.Draw(t, "value")})
			}
			was, is := met(before, d), met(after, d)
			if !slices.Equal(was, is) {
				t.Fatalf("%v meets %v, with the overlay %v", d, was, is)
			}
			matches += len(was)
		}
	})
	if (overlays < 10 || matches < 100) && !testing.Short() { // -short draws a fifth
		t.Errorf("only %d elements had an effect, and %d requests met a rule", overlays, matches)
	}
}

var algorithmRow = regexp.MustCompile("(?m)^\\| `(\\w+)`[^|]*\\| (12:00:\\d\\d)[^|]*\\| (\\d+)[ ,]")

// TestAlgorithmsOfThePage: the table of docs/reference/overlay.md says when the next request passes, and the most.
func TestAlgorithmsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/overlay.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := algorithmRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		text := row[1] + " 10/1m"
		if row[1] == "fixed_window" {
			text += " epoch"
		}
		spec, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		limit := weir.MustLimit("limit", spec)
		now := time.Date(2026, 11, 28, 11, 59, 59, 0, time.UTC)
		store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.UnixMicro()) }))
		claims, decisions := []weir.Claim{{Key: "k", Limit: limit, Cost: 1}}, make([]weir.Decision, 1)
		passes := func() bool {
			granted, err := store.Decide(t.Context(), claims, 1, decisions)
			if err != nil {
				t.Fatal(err)
			}
			return granted == 1
		}
		for range 10 {
			if !passes() {
				t.Errorf("%s refuses within its limit", row[1])
			}
		}
		for now = now.Add(time.Second); !passes(); now = now.Add(time.Second) {
		}
		if next := now.Format(time.TimeOnly); next != row[2] {
			t.Errorf("%s passes the next at %s, and the page says %s", row[1], next, row[2])
		}
		if most := fmt.Sprint(limit.MostIn(time.Minute)); most != row[3] {
			t.Errorf("%s grants at most %s, and the page says %s", row[1], most, row[3])
		}
	}
}
