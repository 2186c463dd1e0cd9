package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
)

// An OverlaySpec sets fields of rules in another file, which a controller may own. It is for rules about descriptors,
// and is plain data. See docs/reference/overlay.md.
type OverlaySpec struct {
	Domain     string   // the service of the rules; "*": any
	Descriptor []string // their descriptor_keys; * stands for any text, a last ** for any entries; empty: any
	Set        Spec     // the fields that it sets are not zero
	From       string   // the place in a file; "": made by a program
}

// overlayWords are the fields that an overlay may set: no field that changes which requests a rule matches, or by which
// key it counts.
var overlayWords = []string{"algorithm", "mode", "ban", "candidate", "enforce_percent", "cost", "unit", "reserve",
	"fair", "charge", "on_store_error", "response", "message", "label", "description", "labels", "lease_percent",
	"local_ceiling"}

// overlayAlgorithms are the algorithms that count N/PERIOD.
var overlayAlgorithms = []string{"fixed_window", "sliding_log", "sliding_counter", "token_bucket"}

var overlayFields = mapping[OverlaySpec]{"overlay", "", append([]field[OverlaySpec]{
	{"domain", text("text", func(o *OverlaySpec) *string { return &o.Domain }),
		"the domain, which is the `service` of rules; `\"*\"` stands for any", required},
	{"descriptor", list("text", bounds.Values, func(o *OverlaySpec) *[]string { return &o.Descriptor }),
		"the entries, as `descriptor_keys` of rules: each a key, or key=value; `*` in one stands for any text, and a " +
			"last `\"**\"` for any number of entries", "any descriptor"},
}, settable()...)}

// settable are the fields of a rule that an overlay has too.
func settable() (list []field[OverlaySpec]) {
	for _, f := range ruleFields.fields {
		if !slices.Contains(overlayWords, f.word) {
			continue
		}
		s, about, read := f.value.shape, f.about, f.value.read
		if f.word == "algorithm" {
			s.words = overlayAlgorithms
			about = "by which a limit N/PERIOD is [counted](#algorithms): `" + strings.Join(s.words, "`, `") + "`"
		}
		set := func(d *decoder, p place, n *yaml.Node, o *OverlaySpec) { read(d, p, n, &o.Set) }
		list = append(list, field[OverlaySpec]{f.word, value[OverlaySpec]{shape: s, read: set}, about, "the rule's"})
	}
	return list
}

// overlay reads the list of a file.
func (d *decoder) overlay(p place, n *yaml.Node, file *File) {
	items := d.items(p, n, bounds.Overlays)
	file.Overlay = make([]OverlaySpec, len(items))
	for i, item := range items {
		file.Overlay[i].From = fmt.Sprintf("%s:%d", d.file, item.Line)
		overlayFields.read(d, p.element(i), item, &file.Overlay[i])
	}
}

// overlay checks the overlay of a file: each element as a rule with its fields.
func (b *builder) overlay(file *File, o options) {
	if !b.count(at(-1, "overlay"), len(file.Overlay), bounds.Overlays) {
		return
	}
	for i := range file.Overlay {
		one := &file.Overlay[i]
		in := fmt.Sprintf("overlay[%d]", i)
		if p := at(-1, in+".domain"); one.Domain == "" && !b.has(p) {
			b.add(p, "domain is missing; write the domain of the descriptors, or \"*\" for any")
		}
		p := at(-1, in+".algorithm")
		if a := one.Set.Algorithm; a != "" && !slices.Contains(overlayAlgorithms, a) {
			b.add(p, "algorithm is %.80q; %s", a, oneOf(a, overlayAlgorithms))
			continue
		}
		if reflect.ValueOf(one.Set).IsZero() && len(b.problems) == 0 {
			b.add(at(-1, in), "%s sets nothing; allowed: %s", in, strings.Join(overlayWords, ", "))
		}
		b.adopt(in, one.problems(b.report, in, o))
	}
}

// problems are the mistakes of a rule with the fields of the element, at the places of the element.
func (s *OverlaySpec) problems(r *report, in string, o options) []Problem {
	spec := s.Set
	spec.Name, spec.Limit, spec.Key = "overlay", []string{"1000/1h"}, []string{"service"}
	alone := &report{file: r.file, lines: r.lines, mistyped: make(map[place]mark)}
	if r.root != nil {
		node := r.node(in)
		alone.root = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "rules"},
			{Kind: yaml.SequenceNode, Content: []*yaml.Node{node}}}}
	}
	for p, m := range r.mistyped {
		if field, ok := strings.CutPrefix(p.field, in+"."); ok && p.rule < 0 {
			alone.mistyped[place{0, field, p.item}] = m
		}
	}
	build(&File{Name: r.file, Rules: []Spec{spec}}, alone, o)
	return alone.problems
}

// node is the value of a field of the file.
func (r *report) node(field string) *yaml.Node {
	value := r.root
	for field != "" {
		_, value, field = descend(value, field)
	}
	return value
}

// adopt adds problems of a lone rule, as problems of a part of the file.
func (b *builder) adopt(in string, list []Problem) {
	for _, p := range list {
		p.Field = strings.Replace(p.Field, "rules[0]", in, 1)
		p.Message = strings.ReplaceAll(p.Message, "rules[0]", in)
		if len(b.problems) >= bounds.Problems {
			b.omitted++
			continue
		}
		b.problems = append(b.problems, p)
	}
}

// Overlaid returns the file with its overlay applied in order, and without the overlay. If two elements set one field
// of a rule, the later element counts. kept reports by index whether a rule stays as it is; with nil all rules may
// change. The file itself is not changed. unmet says which elements have no effect, and why; it is empty for a file
// without rules, as the rules may come later.
func (file *File) Overlaid(kept func(rule int) bool) (overlaid *File, unmet []string) {
	overlaid, list := file.overlaid(kept)
	for _, one := range list {
		unmet = append(unmet, file.Overlay[one.element].String()+": "+one.why)
	}
	return overlaid, unmet
}

// An unmet is the reason why an element of the overlay has no effect.
type unmet struct {
	element int
	why     string
}

func (file *File) overlaid(kept func(rule int) bool) (overlaid *File, without []unmet) {
	if len(file.Overlay) == 0 {
		return file, nil
	}
	out := *file
	out.Rules, out.Overlay = slices.Clone(file.Rules), nil
	if len(out.Rules) == 0 {
		return &out, nil
	}
	met := make([]bool, len(file.Overlay))
	for j := range out.Rules {
		rule := &out.Rules[j]
		var elements []int // that meet the rule
		for i := range file.Overlay {
			if file.Overlay[i].meets(rule) {
				met[i], elements = true, append(elements, i)
			}
		}
		if kept == nil || !kept(j) {
			without = append(without, file.overlay(rule, elements)...)
		}
	}
	for i := range met {
		if !met[i] {
			without = append(without, unmet{i, "no rule has this domain and descriptor"})
		}
	}
	slices.SortStableFunc(without, func(a, b unmet) int { return cmp.Compare(a.element, b.element) })
	return &out, without
}

// overlay applies elements to a rule. All of them together nearly always fit, and are tried first, since each try takes
// time. Otherwise the elements are applied one after the other, and elements that do not fit are left out.
func (file *File) overlay(rule *Spec, elements []int) (without []unmet) {
	if len(elements) > 1 {
		together, tried, fits := *rule, false, true
		for _, i := range elements {
			fits = fits && file.Overlay[i].set(&together)
			tried = tried || file.Overlay[i].dependsOnRule()
		}
		if fits && (!tried || together.mistake() == "") {
			*rule = together
			return nil
		}
	}
	for _, i := range elements {
		if why := file.Overlay[i].apply(rule); why != "" {
			without = append(without, unmet{i, why})
		}
	}
	return without
}

// String names the element.
func (s *OverlaySpec) String() string {
	text := "overlay of domain " + s.Domain
	if len(s.Descriptor) > 0 {
		text += fmt.Sprintf(", descriptor %s", strings.Join(s.Descriptor, ", "))
	}
	if s.From != "" {
		text += " (" + s.From + ")"
	}
	return text
}

// meets reports whether the element is for a rule, by the domain and the descriptor.
func (s *OverlaySpec) meets(rule *Spec) bool {
	m := &rule.Match
	if len(m.Service) == 0 || s.Domain != "*" && !slices.Contains(m.Service, s.Domain) || len(m.DescriptorKeys) == 0 {
		return false
	}
	pattern, any := s.Descriptor, len(s.Descriptor) == 0
	if n := len(pattern); n > 0 && pattern[n-1] == "**" {
		pattern, any = pattern[:n-1], true
	}
	if len(m.DescriptorKeys) < len(pattern) || !any && len(m.DescriptorKeys) > len(pattern) {
		return false
	}
	for i, text := range pattern {
		if !fits(strings.Split(text, "*"), m.DescriptorKeys[i]) {
			return false
		}
	}
	return true
}

// apply sets the fields of a rule. If they do not fit its limit, such as a cost above the limit, the rule stays as it
// is, and why says so.
func (s *OverlaySpec) apply(rule *Spec) (why string) {
	changed := *rule
	if !s.set(&changed) {
		return fmt.Sprintf("rule %s has the limit %s, which %s cannot count", rule.Name,
			strings.Join(rule.Limit, ", "), s.Set.Algorithm)
	}
	if s.dependsOnRule() {
		if mistake := changed.mistake(); mistake != "" {
			return fmt.Sprintf("rule %s: %s", rule.Name, mistake)
		}
	}
	*rule = changed
	return ""
}

// mistake is the first mistake of a rule that is alone in its file; "" for a valid rule.
func (s *Spec) mistake() string {
	alone := &report{}
	build(&File{Rules: []Spec{*s}}, alone, options{})
	if len(alone.problems) == 0 {
		return ""
	}
	return alone.problems[0].Message
}

// dependsOnRule reports whether the fields, though valid, may not fit a rule. A try takes 20 µs.
func (s *OverlaySpec) dependsOnRule() bool {
	rest := s.Set
	rest.Mode, rest.EnforcePercent, rest.OnStoreError = "", nil, ""
	rest.Response, rest.Message = Response{}, nil
	rest.Label, rest.Description, rest.Labels = "", "", nil
	return !reflect.ValueOf(rest).IsZero()
}

// set sets the fields of a rule, and reports whether its limits can have the algorithm.
func (s *OverlaySpec) set(rule *Spec) bool {
	rule.nameAlgorithm()
	set, to := reflect.ValueOf(&s.Set).Elem(), reflect.ValueOf(rule).Elem()
	for i := range set.NumField() {
		if f := set.Field(i); !f.IsZero() && set.Type().Field(i).Name != "Algorithm" {
			to.Field(i).Set(f)
		}
	}
	return s.Set.Algorithm == "" || rule.countBy(s.Set.Algorithm)
}

// nameAlgorithm moves the algorithm from the texts of the limits to the rule's field, if all limits have the same one.
// Then a candidate has it too.
func (s *Spec) nameAlgorithm() {
	if s.Algorithm != "" || len(s.Limit) == 0 {
		return
	}
	word, _, _ := strings.Cut(s.Limit[0], " ")
	if !slices.Contains(algorithms, word) {
		return
	}
	limits := make([]string, len(s.Limit))
	for i, limit := range s.Limit {
		rest, same := strings.CutPrefix(limit, word+" ")
		if !same {
			return
		}
		limits[i] = rest
	}
	s.Algorithm, s.Limit = word, limits
}

// countBy changes the algorithm of limits of the form N/PERIOD, and reports whether all limits have this form.
func (s *Spec) countBy(algorithm string) bool {
	if s.Algorithm != "" && !slices.Contains(overlayAlgorithms, s.Algorithm) {
		return false
	}
	limits := make([]string, len(s.Limit))
	for i, limit := range s.Limit {
		words := strings.Fields(limit)
		if limit == closed {
			return true // each request is refused, however it is counted
		}
		if n := len(words); n == 0 || n > 2 || !strings.Contains(words[0], "/") || n == 2 && words[1] != "epoch" {
			return false
		}
		limits[i] = words[0]
		if algorithm == overlayAlgorithms[0] {
			limits[i] += " epoch"
		}
	}
	s.Algorithm, s.Limit = algorithm, limits
	return true
}
