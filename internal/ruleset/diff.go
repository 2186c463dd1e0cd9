package ruleset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// ChangeKind is the kind of a Change.
type ChangeKind uint8

// The kinds.
const (
	Changed ChangeKind = iota
	Added
	Removed
	Renamed // the same rule under another name
)

// A Change is a difference between two files, of one rule or of the fields of the file.
type Change struct {
	Kind   ChangeKind
	Rule   string   // the rule's (new) name; "": the fields of the file
	Was    string   // of a renamed rule: the old name
	Fields []string // of a changed one: which, in the words of a file
	Values []Value  // of those that are numbers or words
	// Anew is the reason why the rule's counts start from zero: its keys or its state have other
	// names. It is "" if counts are kept, and for rules that were added or removed.
	Anew string
}

// A Value is a changed field of a rule.
type Value struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// fields are the changed fields in words: limit 10/1m -> 100/1m; match, key changed.
func (c *Change) fields() string {
	var parts []string
	rest := slices.Clone(c.Fields)
	for _, v := range c.Values {
		parts = append(parts, fmt.Sprintf("%s %s -> %s", v.Field, v.Old, v.New))
		rest = slices.DeleteFunc(rest, func(field string) bool { return field == v.Field })
	}
	if len(rest) > 0 {
		parts = append(parts, strings.Join(rest, ", ")+" changed")
	}
	return strings.Join(parts, "; ")
}

// String returns the change as one line.
func (c Change) String() string {
	counts := "counts are kept"
	if c.Anew != "" {
		counts = "counts start anew: " + c.Anew
	}
	switch {
	case c.Kind == Added:
		return c.Rule + ": added"
	case c.Kind == Removed:
		return c.Rule + ": removed"
	case c.Kind == Renamed:
		return fmt.Sprintf("%s: renamed from %s; %s", c.Rule, c.Was, counts)
	case c.Rule == "":
		return "file: " + strings.Join(c.Fields, ", ") + " changed"
	}
	return fmt.Sprintf("%s: %s; %s", c.Rule, c.fields(), counts)
}

// maxNamed is the number of rules that a summary names.
const maxNamed = 5

// Summary returns many changes as one line of bounded length.
func Summary(changes []Change) string {
	var parts, anew []string
	for kind, what := range []string{"changed", "added", "removed", "renamed"} {
		n := 0
		for _, c := range changes {
			if c.Kind == ChangeKind(kind) {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprint(n, " ", what))
		}
	}
	for _, c := range changes {
		if c.Anew != "" {
			anew = append(anew, c.Rule)
		}
	}
	if len(parts) == 0 {
		return "no rule changed"
	}
	if len(anew) > 0 {
		parts = append(parts, "counts start anew: "+fewOf(anew))
	}
	return strings.Join(parts, ", ")
}

// Details are the first few changes, each as its String is, in a line of bounded length.
func Details(changes []Change) string {
	var list []string
	for _, c := range changes[:min(len(changes), maxNamed)] {
		list = append(list, c.String())
	}
	if more := len(changes) - maxNamed; more > 0 {
		list = append(list, fmt.Sprint(more, " more"))
	}
	return strings.Join(list, " | ")
}

// fewOf joins the first few names.
func fewOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// Diff returns the changes between two files, in the order of the new file, then removed rules. A
// nil file has no rules. A change of the order of rules alone is not a change.
//
// State is stored under the name of a limit, its algorithm and the key. So new numbers apply to the use so far, and
// changes of matches, costs and lists do not affect it. Counts start from zero with another name, algorithm or key, and
// with mode: a rule in shadow counts under separate keys.
func Diff(old, new *rules.File) []Change {
	var list []Change
	if fields := fileFields(old, new); len(fields) > 0 {
		list = append(list, Change{Fields: fields})
	}
	before, gone := matched(rulesOf(old), rulesOf(new))
	texts := make(map[string]string) // removed rules by their content without the name
	for _, spec := range slices.Backward(gone) {
		texts[nameless(spec)] = spec.Name
	}
	list = arrived(list, rulesOf(new), before, texts)
	renamed := make(map[string]bool)
	for _, c := range list {
		renamed[c.Was] = true
	}
	for _, spec := range gone {
		if !renamed[spec.Name] {
			list = append(list, Change{Kind: Removed, Rule: spec.Name})
		}
	}
	return list
}

// matched returns the old rule for each new one, nil if there was no such rule, and the old rules that are gone.
func matched(old, new []rules.Spec) (before, gone []*rules.Spec) {
	before = make([]*rules.Spec, len(new))
	same := 0 // mostly all names are as they were, and there is nothing to look for
	for same < min(len(old), len(new)) && old[same].Name == new[same].Name {
		before[same] = &old[same]
		same++
	}
	if old = old[same:]; len(old) == 0 {
		return before, nil
	}
	known := make(map[string]*rules.Spec, len(old))
	for i := range old {
		known[old[i].Name] = &old[i]
	}
	stays := make(map[string]bool, len(new)-same)
	for i := same; i < len(new); i++ {
		before[i], stays[new[i].Name] = known[new[i].Name], true
	}
	for i := range old {
		if !stays[old[i].Name] {
			gone = append(gone, &old[i])
		}
	}
	return before, gone
}

func rulesOf(file *rules.File) []rules.Spec {
	if file == nil {
		return nil
	}
	return file.Rules
}

// arrived appends the new rules that were not there before, or not so. Each rule that is gone
// can have been renamed once.
func arrived(list []Change, new []rules.Spec, before []*rules.Spec, gone map[string]string) []Change {
	if len(new) > 0 && before[0] == nil { // at the start all are new, and there may be many
		list = slices.Grow(list, len(new))
	}
	for i := range new {
		spec, old := &new[i], before[i]
		if old != nil {
			if fields := changed(old, spec); len(fields) > 0 {
				list = append(list, Change{Rule: spec.Name, Fields: fields, Values: valuesOf(fields, old, spec),
					Anew: restart(old, spec)})
			}
			continue
		}
		if len(gone) > 0 {
			text := nameless(spec)
			if was, ok := gone[text]; ok {
				delete(gone, text)
				list = append(list, Change{Kind: Renamed, Rule: spec.Name, Was: was, Anew: "its name is another"})
				continue
			}
		}
		list = append(list, Change{Kind: Added, Rule: spec.Name})
	}
	return list
}

func fileFields(old, new *rules.File) []string {
	var before, after rules.File
	if old != nil {
		before = *old
	}
	if new != nil {
		after = *new
	}
	before.Name, before.Rules, after.Name, after.Rules = "", nil, "", nil
	before.Disabled, after.Disabled = nil, nil // each disabled rule is reported as removed
	return differing(reflect.ValueOf(&before).Elem(), reflect.ValueOf(&after).Elem())
}

// changed returns the fields that differ between two rules. One comparison of the whole finds that most do not: 100,000
// rules take some 0.3 s, or 0.6 s if they were read again, after they were put in force.
func changed(old, new *rules.Spec) []string {
	if reflect.DeepEqual(old, new) {
		return nil
	}
	return differing(reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem())
}

// differing returns the names, as in a file, of the fields that differ between two values. An empty list equals a
// missing one.
func differing(a, b reflect.Value) (fields []string) {
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.CanInterface() && !(none(x) && none(y)) && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			fields = append(fields, FieldName(a.Type().Field(i).Name))
		}
	}
	return fields
}

// nameless returns the content of a rule without its name.
func nameless(spec *rules.Spec) string {
	other := *spec
	other.Name = ""
	text, err := json.Marshal(other) // sorts maps
	if err != nil {
		return "name " + spec.Name // it is like no other
	}
	return string(text)
}

// valuesOf are the values of changed fields, where they are short.
func valuesOf(fields []string, old, new *rules.Spec) (list []Value) {
	for _, field := range fields {
		if before, after := valueOf(field, old), valueOf(field, new); before != after {
			list = append(list, Value{field, before, after})
		}
	}
	return list
}

// valueOf is the value of a field as a file could state it; "" for longer values.
func valueOf(field string, s *rules.Spec) string {
	switch field {
	case "limit":
		return strings.Join(s.Limit, ", ")
	case "mode":
		return cmp.Or(string(s.Mode), string(rules.Enforce))
	case "enforce_percent":
		if s.EnforcePercent != nil {
			return fmt.Sprint(*s.EnforcePercent)
		}
		return "100"
	case "on_store_error":
		return cmp.Or(string(s.OnStoreError), string(rules.Local))
	}
	return ""
}

// anew returns the reason why the counts of a rule start from zero, or "".
func restart(old, new *rules.Spec) string {
	var why []string
	if !slices.Equal(old.Key, new.Key) && !slices.Equal(trimmed(old.Key), trimmed(new.Key)) {
		why = append(why, "its key is another")
	}
	if (old.Mode == rules.Shadow) != (new.Mode == rules.Shadow) {
		why = append(why, "a rule in shadow counts by itself")
	} else if before, after := percent(old), percent(new); before != after {
		why = append(why, fmt.Sprintf("keys are counted in shadow that are not among its percentage, "+
			"which was %d and is %d", before, after))
	}
	for i := range min(len(old.Limit), len(new.Limit)) {
		if before, after := algorithm(old, old.Limit[i]), algorithm(new, new.Limit[i]); before != after {
			why = append(why, fmt.Sprintf("limit %d counts by %s, no longer by %s", i+1, after, before))
		}
	}
	if n := overridden(old, new); n > 0 {
		why = append(why, fmt.Sprintf("%d of its overrides have or had limits of another algorithm", n))
	}
	return strings.Join(why, "; ")
}

// percent returns the percentage of keys that a rule is enforced for.
func percent(s *rules.Spec) int {
	switch {
	case s.Mode == rules.Shadow:
		return 0
	case s.EnforcePercent == nil:
		return 100
	}
	return *s.EnforcePercent
}

// overridden returns the number of keys of overrides that get another algorithm, apart from changes of the rule's own
// limits.
func overridden(old, new *rules.Spec) (n int) {
	if len(old.Overrides)+len(new.Overrides) == 0 {
		return 0
	}
	before, after := overrides(old), overrides(new)
	for key := range before {
		if _, stays := after[key]; !stays && !sameAlgorithms(old, before[key], new, new.Limit) {
			n++
		}
	}
	for key, limits := range after {
		was, there := before[key]
		if !there {
			was = old.Limit
		}
		if !sameAlgorithms(old, was, new, limits) {
			n++
		}
	}
	return n
}

// overrides returns the limits of each key that has its own.
func overrides(s *rules.Spec) map[string][]string {
	list := make(map[string][]string, len(s.Overrides))
	for _, o := range s.Overrides {
		list[fmt.Sprintf("%q", o.Key)] = o.Limit
	}
	return list
}

func sameAlgorithms(old *rules.Spec, before []string, new *rules.Spec, after []string) bool {
	if old.Algorithm == new.Algorithm && slices.Equal(before, after) {
		return true
	}
	for i := range min(len(before), len(after)) {
		if algorithm(old, before[i]) != algorithm(new, after[i]) {
			return false
		}
	}
	return true
}

// trimmed returns a key's components with normalised blanks.
func trimmed(key []string) []string {
	list := make([]string, len(key))
	for i, text := range key {
		list[i] = strings.Join(strings.Fields(text), " ")
	}
	return list
}

// algorithm returns the algorithm of a limit. A text that is no limit is returned as it is.
func algorithm(s *rules.Spec, limit string) string {
	text := strings.TrimSpace(s.Algorithm + " " + limit)
	spec, err := weir.ParseLimit(text)
	if err != nil {
		return text
	}
	compiled, err := weir.NewLimit("rule", spec)
	if err != nil {
		return text
	}
	return compiled.Algorithm().String()
}
