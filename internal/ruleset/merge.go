package ruleset

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/rules"
)

// A Part is a file and its name among others.
type Part struct {
	Name string
	File *rules.File
}

// A Collision is a rule name or a field of the file that two parts have.
type Collision struct {
	Rule   string // the rule's name, or ""
	Field  string // the field, in the words of a file, or ""
	Winner string // the later part, which applies
	Loser  string
}

// String says which part replaces which.
func (c Collision) String() string {
	what := "field " + c.Field
	if c.Rule != "" {
		what = fmt.Sprintf("rule %q", c.Rule)
	}
	return fmt.Sprintf("%s of %s replaces that of %s", what, c.Winner, c.Loser)
}

// Merged is several files as one.
type Merged struct {
	File       *rules.File
	From       []string // of each rule, which part it is from
	Off        []Off    // rules that Disabled of a later part removed
	Collisions []Collision

	several bool // parts
}

// Off is a rule that a later part has disabled.
type Off struct {
	Rule *rules.Spec
	From string // the part that it is from
	By   string // the part that disables it
}

// Merge merges files; later ones replace earlier ones. A rule replaces the one of the same name in
// its position. Rules with new names are appended. A rule that a later part lists in Disabled is
// left out. A field of the file that is set replaces the earlier one. Overlays are joined, in order, and not applied.
// The parts are not changed; their contents are shared, and the result for one part is that part's own file.
func Merge(parts ...Part) *Merged {
	if len(parts) == 1 {
		return &Merged{File: parts[0].File, From: slices.Repeat([]string{parts[0].Name}, len(parts[0].File.Rules))}
	}
	m := &Merged{File: new(rules.File), several: true}
	var names []string
	places := m.room(parts)
	off := make(map[int]Off)
	fields := make(map[string]string)
	for _, p := range parts {
		names = append(names, p.Name)
		overlay(reflect.ValueOf(m.File).Elem(), reflect.ValueOf(p.File).Elem(), func(field string) {
			if below, set := fields[field]; set {
				m.Collisions = append(m.Collisions, Collision{Field: field, Winner: p.Name, Loser: below})
			}
			fields[field] = p.Name
		})
		for _, name := range p.File.Disabled {
			if i, there := places[name]; there && !gone(off, i) {
				off[i] = Off{Rule: &m.File.Rules[i], From: m.From[i], By: p.Name}
			}
		}
		if places != nil {
			m.rules(p, places, off)
		}
		m.forwards(p)
		m.File.Overlay = append(m.File.Overlay, p.File.Overlay...)
	}
	m.leaveOut(off)
	m.File.Name = strings.Join(names, " + ")
	return m
}

// room makes room for the rules of all parts, and for their places. Where one part alone has rules they are shared: no
// other part is laid over them.
func (m *Merged) room(parts []Part) (places map[string]int) {
	if len(parts) == 0 {
		return nil
	}
	total, only := 0, 0
	for i, p := range parts {
		if total += len(p.File.Rules); len(p.File.Rules) > 0 {
			only = i
		}
	}
	disables := slices.ContainsFunc(parts, func(p Part) bool { return len(p.File.Disabled) > 0 })
	if p := parts[only]; len(p.File.Rules) == total && !disables {
		m.File.Rules, m.From = slices.Clip(p.File.Rules), slices.Repeat([]string{p.Name}, total)
		return nil
	}
	m.File.Rules, m.From = make([]rules.Spec, 0, total), make([]string, 0, total)
	return make(map[string]int, total)
}

// rules appends a part's rules. places has the rules of earlier parts only: two rules with one name in one file both
// stay, so that Compile reports them.
func (m *Merged) rules(p Part, places map[string]int, off map[int]Off) {
	from := len(m.File.Rules)
	for j := range p.File.Rules {
		spec := &p.File.Rules[j]
		if i, taken := places[spec.Name]; taken {
			delete(off, i) // it is back
			m.Collisions = append(m.Collisions, Collision{Rule: spec.Name, Winner: p.Name, Loser: m.From[i]})
			m.File.Rules[i], m.From[i] = *spec, p.Name
			continue
		}
		m.File.Rules, m.From = append(m.File.Rules, *spec), append(m.From, p.Name)
	}
	for i := from; i < len(m.From); i++ {
		places[m.File.Rules[i].Name] = i
	}
}

func gone(off map[int]Off, i int) bool { _, is := off[i]; return is }

// leaveOut removes disabled rules.
func (m *Merged) leaveOut(off map[int]Off) {
	m.File.Disabled = nil
	if len(off) == 0 {
		return
	}
	var kept []rules.Spec
	var from []string
	for i := range m.File.Rules {
		one, is := off[i]
		if !is {
			kept, from = append(kept, m.File.Rules[i]), append(from, m.From[i])
			continue
		}
		m.Off = append(m.Off, one)
		m.File.Disabled = append(m.File.Disabled, one.Rule.Name)
	}
	m.File.Rules, m.From = kept, from
}

// forwards lays the services and routes of a part over the services and routes of earlier parts.
func (m *Merged) forwards(p Part) {
	replaced := func(field string) {
		m.Collisions = append(m.Collisions, Collision{Field: field, Winner: p.Name, Loser: "an earlier source"})
	}
	m.File.Services = laid(m.File.Services, p.File.Services, func(s *rules.ServiceSpec) string { return s.Name },
		func(name string) { replaced("services " + name) })
	m.File.Routes = laid(m.File.Routes, p.File.Routes, func(r *rules.RouteSpec) string { return r.Name },
		func(name string) { replaced("routes " + name) })
}

// laid replaces values of the same name, and appends the others.
func laid[T any](below, above []T, nameOf func(*T) string, replaced func(name string)) []T {
	all := slices.Clone(below)
	for i := range above {
		name := nameOf(&above[i])
		j := slices.IndexFunc(below, func(b T) bool { return nameOf(&b) == name })
		if j < 0 {
			all = append(all, above[i])
			continue
		}
		replaced(name)
		all[j] = above[i]
	}
	return all
}

// byName are the fields that are not merged as a whole.
var byName = []string{"Name", "Rules", "Disabled", "Services", "Routes", "Overlay"}

// overlay copies the fields that are set, and calls each with their names as in a file. It excludes
// some fields by name, so that new fields are merged too.
func overlay(below, above reflect.Value, each func(field string)) {
	for _, f := range reflect.VisibleFields(above.Type()) {
		value := above.FieldByIndex(f.Index)
		if !f.IsExported() || f.Anonymous || slices.Contains(byName, f.Name) || none(value) {
			continue
		}
		each(FieldName(f.Name))
		below.FieldByIndex(f.Index).Set(value)
	}
}

// none reports whether a field is not set.
func none(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// FieldName is the name of a field in a file: on_store_error for OnStoreError, asn for ASN.
func FieldName(field string) string {
	return strings.ToLower(wordEnd.ReplaceAllString(field, "${1}_${2}"))
}

var wordEnd = regexp.MustCompile("([a-z])([A-Z])")

var numbered = regexp.MustCompile(`(rules|services|routes)\[(\d+)\]`)

// Locate replaces rule numbers in errors of Compile by names and parts, because users cannot see positions in the
// merged file. The error is still a *rules.Error.
func (m *Merged) Locate(err error) error {
	var list *rules.Error
	if !errors.As(err, &list) || !m.several {
		return err
	}
	named := func(text string) string { return numbered.ReplaceAllStringFunc(text, m.named) }
	other := &rules.Error{Problems: slices.Clone(list.Problems), Omitted: list.Omitted}
	for i := range other.Problems {
		p := &other.Problems[i]
		p.Field, p.Message = named(p.Field), named(p.Message)
	}
	return other
}

// named is the name of a rule, a service or a route instead of its number: rules[7].
func (m *Merged) named(place string) string {
	found := numbered.FindStringSubmatch(place)
	i, err := strconv.Atoi(found[2])
	switch list := found[1]; {
	case err != nil:
	case list == "rules" && i < len(m.From):
		return fmt.Sprintf("rule %q of %s", m.File.Rules[i].Name, m.From[i])
	case list == "services" && i < len(m.File.Services):
		return fmt.Sprintf("service %q", m.File.Services[i].Name)
	case list == "routes" && i < len(m.File.Routes):
		return fmt.Sprintf("route %q", m.File.Routes[i].Name)
	}
	return place
}
