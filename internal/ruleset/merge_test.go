package ruleset

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weirproject/weir/rules"
)

func file(specs ...rules.Spec) *rules.File { return &rules.File{Name: "f", Rules: specs} }

func spec(name, limit string) rules.Spec { return rules.Spec{Name: name, Limit: []string{limit}} }

func TestMergeKeepsPlaces(t *testing.T) {
	below, above := file(spec("x", "1/1s"), spec("y", "1/1s")), file(spec("z", "2/1s"), spec("y", "2/1s"))
	m := Merge(Part{"low", below}, Part{"high", above})
	want := []rules.Spec{spec("x", "1/1s"), spec("y", "2/1s"), spec("z", "2/1s")}
	if !reflect.DeepEqual(m.File.Rules, want) || !slices.Equal(m.From, []string{"low", "high", "high"}) {
		t.Errorf("merged to %v from %v", m.File.Rules, m.From)
	}
	if !slices.Equal(m.Collisions, []Collision{{Rule: "y", Winner: "high", Loser: "low"}}) {
		t.Errorf("collisions %v", m.Collisions)
	}
	if below.Rules[1].Limit[0] != "1/1s" || m.File.Name != "low + high" {
		t.Errorf("the part below is now %v, the file's name %q", below.Rules, m.File.Name)
	}
}

// Two rules of one name in one file are a mistake of that file, which Compile reports.
func TestMergeHidesNoMistake(t *testing.T) {
	m := Merge(Part{"low", file(spec("x", "1/1s"))}, Part{"high", file(spec("y", "1/1s"), spec("y", "2/1s"))})
	if _, err := rules.Compile(m.File); err == nil {
		t.Error("one of two rules of one name was dropped silently")
	}
}

// Fields of the file are layered whatever they are called: those that come later too.
func TestFieldsAreLayered(t *testing.T) {
	type future struct {
		Name           string
		Rules          []rules.Spec
		Store          string
		TrustedProxies []string
		Limits         map[string]int
		hidden         int
	}
	below := future{Name: "low", Store: "memory", TrustedProxies: []string{"10.0.0.0/8"}, hidden: 1}
	above := future{Name: "high", Rules: []rules.Spec{{}}, TrustedProxies: []string{}, Store: "redis", Limits: map[string]int{"a": 1}, hidden: 2}
	var fields []string
	overlay(reflect.ValueOf(&below).Elem(), reflect.ValueOf(&above).Elem(), func(f string) { fields = append(fields, f) })
	if !slices.Equal(fields, []string{"store", "limits"}) {
		t.Errorf("set were %v", fields)
	}
	want := future{Name: "low", Store: "redis", TrustedProxies: []string{"10.0.0.0/8"}, Limits: map[string]int{"a": 1}, hidden: 1}
	if !reflect.DeepEqual(below, want) {
		t.Errorf("overlaid to %+v", below)
	}
	if got := differing(reflect.ValueOf(above), reflect.ValueOf(want)); !slices.Equal(got, []string{"name", "rules", "trusted_proxies"}) {
		t.Errorf("different are %v", got)
	}
}

// Every field of a rule file, now and later, is known to Diff and Merge: each is exported
// or takes no part.
func TestAllFieldsAreSeen(t *testing.T) {
	for _, of := range []any{rules.File{}, rules.Spec{}, rules.Match{}, rules.Override{}, rules.Cost{}, rules.Window{}, rules.Response{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if !f.IsExported() {
				t.Errorf("%T.%s is hidden from Diff and Merge", of, f.Name)
			}
		}
	}
}

// A single part is not copied, so that a compiler sees that it is the same.
func TestMergeSharesTheOnlyPart(t *testing.T) {
	only, none := file(spec("x", "1/1s"), spec("y", "1/1s")), &rules.File{Name: "n", Server: rules.Server{Store: "memory"}}
	if m := Merge(Part{"one", only}); m.File != only || !slices.Equal(m.From, []string{"one", "one"}) {
		t.Errorf("one part became %+v from %v", m.File, m.From)
	}
	only.Rules = append(make([]rules.Spec, 0, 9), only.Rules...)
	for _, parts := range [][]Part{{{"n", none}, {"one", only}}, {{"one", only}, {"n", none}}} {
		m := Merge(parts...)
		if &m.File.Rules[0] != &only.Rules[0] || len(m.File.Rules) != 2 || !slices.Equal(m.From, []string{"one", "one"}) || m.File.Store != "memory" {
			t.Errorf("%s: %+v from %v", m.File.Name, m.File, m.From)
		}
		if cap(m.File.Rules) > 2 || only.Store != "" {
			t.Error("the part can be changed")
		}
	}
	if m := Merge(); len(m.File.Rules)+len(m.From) != 0 {
		t.Errorf("no parts are %+v", m)
	}
}

// A disabled rule switches off the rule of the same name of an earlier part, and an enabled one switches it on.
func TestMergeOfDisabledRules(t *testing.T) {
	on, off := spec("x", "1/1s"), spec("x", "1/1s")
	off.Enabled = new(bool)
	for _, parts := range [][2]rules.Spec{{on, off}, {off, on}} {
		m := Merge(Part{"low", file(parts[0])}, Part{"high", file(parts[1])})
		set, err := rules.Compile(m.File)
		if err != nil {
			t.Fatal(err)
		}
		want := parts[1].IsEnabled()
		if got := set.Match(&rules.Request{Path: "/"}, nil); len(m.File.Rules) != 1 || len(got) == 1 != want {
			t.Errorf("enabled %t: %d rules match", want, len(got))
		}
	}
}

// Counts are kept while a rule is disabled.
func TestCountsOfADisabledRuleAreKept(t *testing.T) {
	on, off := spec("x", "1/1s"), spec("x", "1/1s")
	off.Enabled = new(bool)
	changes := Diff(file(on), file(off))
	if len(changes) != 1 || changes[0].String() != "x: enabled changed; counts are kept" {
		t.Errorf("%v", changes)
	}
}
