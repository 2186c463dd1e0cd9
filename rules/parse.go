package rules

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/nearest"
	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth is the nesting depth of a file: three times the depth of a rule.
const maxDepth = 16

// Parse reads a file of rules: one YAML document. The error is an *Error that lists every mistake; name is the file's
// name in its messages. Compile accepts the data that Parse accepts. The only option with an effect is WithFiles;
// without it no file is read.
func Parse(name string, text []byte, opts ...Option) (*File, error) {
	file, _, r := read(name, text, newOptions(opts))
	if err := r.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// read also compiles the set.
func read(name string, text []byte, o options) (*File, *Set, *report) {
	r := &report{file: name}
	if !r.readable(text) {
		return nil, nil, r
	}
	if r.root = r.document(text); r.root == nil {
		return nil, nil, r
	}
	d := &decoder{report: r, options: o}
	d.refuse(r.root)
	file := d.decode(r.root)
	return file, build(file, r, o), r
}

// readable splits the text into lines, and refuses a text that is too large before the YAML reader allocates
// hundreds of bytes for each comma.
func (r *report) readable(text []byte) bool {
	if len(text) > MaxFile {
		r.put(mark{}, at(-1, "file"), "it has over %d bytes, which is the most", MaxFile)
		return false
	}
	nodes := 0
	for _, sign := range []string{",", ":", "[", "{", "- ", "-\n", "? ", "\n"} {
		nodes += bytes.Count(text, []byte(sign))
	}
	if nodes > bounds.Nodes {
		r.put(mark{}, at(-1, "file"), "it has %d commas, colons, brackets, dashes and lines; at most %d", nodes,
			bounds.Nodes)
		return false
	}
	r.lines = strings.Split(string(text), "\n")
	for i, line := range r.lines {
		r.lines[i] = strings.TrimSuffix(line, "\r")
		if !utf8.ValidString(line) {
			r.put(mark{i + 1, 1}, at(-1, "file"), "this line is not UTF-8; save the file as UTF-8")
			return false
		}
		if c := strings.IndexFunc(r.lines[i], forbidden); c >= 0 {
			r.put(mark{i + 1, utf8.RuneCountInString(line[:c]) + 1}, at(-1, "file"),
				"this line has the control character %U, which YAML does not allow; remove it", line[c])
			return false
		}
	}
	return true
}

// A decoder reads nodes into a File. It checks the YAML; builder checks the values, so that files made by
// programs get the same checks.
type decoder struct {
	*report
	options
	files map[string]*listFile
	filed int // values in files

	inServer func(word string) bool // reports whether a word is a field of the section server
}

func (r *report) wrong(n *yaml.Node, format string, args ...any) {
	r.put(mark{n.Line, n.Column}, at(-1, "file"), format, args...)
}

// document is the root of the only document, or nil.
func (r *report) document(text []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	var first, second yaml.Node
	if err == nil {
		err = loader.Load(&first)
	}
	if err == io.EOF || err == nil && len(first.Content) == 0 {
		r.put(mark{1, 1}, at(-1, "file"), "the file is empty; write rules: [] for a file without rules")
		return nil
	}
	if err != nil {
		r.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		r.wrong(&second, "a second document; a file of rules is one, without --- in it")
	} else if err != io.EOF {
		r.syntax(err)
	}
	return first.Content[0]
}

func (r *report) syntax(err error) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		r.put(mark{1, 1}, at(-1, "file"), "not YAML: %v", err)
		return
	}
	m, begin := mark{load.Mark.Line, load.Mark.Column}, mark{load.ContextMark.Line, load.ContextMark.Column}
	if m.line == 0 || begin.line > 0 && strings.Contains(load.Message, "end of stream") {
		m = mark{max(1, begin.line), max(1, begin.column)}
	}
	if r.fullWidth(m.line) {
		return
	}
	message := load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg + ": " + message
	}
	r.put(m, at(-1, "file"), "not YAML: %s%s", message, hint(load.ContextMsg, load.Message))
}

// forbidden reports control characters that YAML 1.2 does not allow (5.1) and that one byte has.
func forbidden(c rune) bool { return c < ' ' && c != '\t' && c != '\r' || c == 0x7f }

// wide are a colon and a comma of a Chinese keyboard where YAML wants its own.
var wide = regexp.MustCompile(`[a-z_](：)|[\w"'\]})](，)\s*[a-z_]+\s*[:：]`)

// fullWidth reports a full-width colon or comma at or above the line of an error, where it is the cause.
func (r *report) fullWidth(line int) bool {
	for i := min(line, len(r.lines)) - 1; i >= max(0, line-3); i-- {
		found := wide.FindStringSubmatchIndex(r.lines[i])
		if found == nil {
			continue
		}
		from := max(found[2], found[4])
		r.put(mark{i + 1, utf8.RuneCountInString(r.lines[i][:from]) + 1}, at(-1, "file"),
			"not YAML: a full-width %s; write an ASCII colon or comma, and a blank after it", r.lines[i][from:from+3])
		return true
	}
	return false
}

// hint is the usual cause of an error of YAML.
func hint(context, message string) string {
	switch {
	case strings.Contains(context, "an alias"), strings.Contains(context, "an anchor"):
		return "; quote a text that begins with * or &"
	case strings.Contains(context, "a flow"):
		return "; between { } and [ ], quote a text that has one of { } [ ] , in it"
	case strings.Contains(context, "a block"):
		return "; indent the dashes of all rules alike, and all fields of a rule alike"
	case strings.Contains(message, "mapping values"):
		return "; indent all fields of a rule alike, and quote a text that has a colon and a blank in it"
	case strings.Contains(message, "start any token"), strings.Contains(message, "a tab"):
		return "; indent by blanks, not by tabs, and quote a text that begins with @, ` or %"
	}
	return ""
}

// refuse reports YAML that rules do not allow: aliases, and types that are not visible in the text.
func (d *decoder) refuse(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.wrong(n, "anchors and aliases (& and *) are not allowed; write the value out, and quote a text that begins "+
			"so")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.wrong(n, "tags (!) are not allowed; quote a text that begins so")
	}
	for _, child := range n.Content {
		d.refuse(child)
	}
}

// decode reads the root of a file.
func (d *decoder) decode(n *yaml.Node) *File {
	file := &File{Name: d.report.file}
	if n.Kind == yaml.SequenceNode {
		d.wrong(n, "the file is a list; begin it with the line rules: and put the list below that")
		return file
	}
	d.inServer = func(word string) bool { return serverFields.find(word) != nil }
	fileFields.read(d, at(-1, ""), n, file)
	if n.Kind == yaml.MappingNode && file.Rules == nil && file.Overlay == nil &&
		!d.has(at(-1, "rules")) {
		d.wrong(n, "rules is missing; write rules: [] for a file without rules")
	}
	return file
}

// rules reads the list of rules.
func (d *decoder) rules(_ place, n *yaml.Node, file *File) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, "rules must be a list: each rule begins with a dash")
		return
	}
	if len(n.Content) > MaxRules {
		d.wrong(n, "%d rules; at most %d", len(n.Content), MaxRules)
		return
	}
	file.Rules = make([]Spec, len(n.Content))
	for i, rule := range n.Content {
		ruleFields.read(d, at(i, ""), rule, &file.Rules[i])
	}
}

// read reads a mapping at a place.
func (m *mapping[T]) read(d *decoder, p place, n *yaml.Node, t *T) {
	if m.empty != "" && n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.wrong(n, "%s is empty; %s", p.field, m.empty)
	}
	prefix := p.field
	if prefix != "" {
		prefix += "."
	}
	d.pairs(n, p.field, func(key, value *yaml.Node) {
		for i := range m.fields {
			if f := &m.fields[i]; f.word == key.Value {
				f.value.read(d, at(p.rule, prefix+f.word), value, t)
				return
			}
		}
		if p.field == "" && p.rule < 0 && d.inServer(key.Value) {
			d.wrong(key, "unknown field %.80q; it is a field of server: write it below the line server:", key.Value)
			return
		}
		words := make([]string, len(m.fields))
		for i := range m.fields {
			words[i] = m.fields[i].word
		}
		d.wrong(key, "unknown field %.80q; %s", key.Value, oneOf(key.Value, words))
		if meant := nearest.Of(key.Value, words); meant != "" { // not missing as well
			d.meant(at(p.rule, prefix+meant), key)
		}
	})
}

// pairs iterates over a mapping; the second of two equal keys is an error.
func (d *decoder) pairs(n *yaml.Node, what string, each func(key, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode { // reported already
		return
	}
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "%s must be fields with values, such as name: value", cmp.Or(what, "this"))
		return
	}
	first := firsts(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.wrong(key, "a field's name must be a word")
			continue
		}
		if other := first(i); other != key {
			d.wrong(key, "%.80q occurs twice; the first is in line %d", key.Value, other.Line)
			continue
		}
		each(key, value)
	}
}

// fewFields is the number of fields of a mapping that are compared one by one.
const fewFields = 24

// firsts finds the first key of a mapping that equals the ith of its content.
func firsts(n *yaml.Node) func(i int) *yaml.Node {
	if len(n.Content) <= 2*fewFields {
		return func(i int) *yaml.Node {
			for j := 0; ; j += 2 {
				if n.Content[j].Kind == yaml.ScalarNode && n.Content[j].Value == n.Content[i].Value {
					return n.Content[j]
				}
			}
		}
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	return func(i int) *yaml.Node {
		key := n.Content[i]
		if seen[key.Value] == nil {
			seen[key.Value] = key
		}
		return seen[key.Value]
	}
}

// names iterates over a mapping with names as keys.
func (d *decoder) names(p place, n *yaml.Node, each func(p place, name string, n *yaml.Node)) {
	d.pairs(n, p.field, func(key, value *yaml.Node) { each(at(p.rule, p.field+"."+key.Value), key.Value, value) })
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.wrong(n, "%s is empty; leave it out", p.field)
	}
}

// cost reads a number or a mapping.
func (d *decoder) cost(p place, n *yaml.Node, s *Spec) {
	if n.Kind == yaml.MappingNode {
		costFields.read(d, p, n, &s.Cost)
	} else {
		s.Cost.Units = d.units(p, n)
	}
}

// costTable reads values, each with its units.
func (d *decoder) costTable(p place, n *yaml.Node, c *Cost) {
	c.Each = make(map[string]int64)
	d.names(p, n, func(p place, value string, n *yaml.Node) { c.Each[value] = d.units(p, n) })
}

// shares reads values, each with a percentage.
func (d *decoder) shares(p place, n *yaml.Node, r *Reserve) {
	r.Classes = make(map[string]string)
	d.names(p, n, func(p place, name string, n *yaml.Node) { r.Classes[name] = d.text(p, n) })
}

// classMatches reads classes, each with an alternative or a list of alternatives.
func (d *decoder) classMatches(p place, n *yaml.Node, r *Reserve) {
	r.Match = make(map[string][]Match)
	of := several(&alternativeFields, bounds.Alternatives, false, func(list *[]Match) *[]Match { return list })
	d.names(p, n, func(p place, name string, n *yaml.Node) {
		var list []Match
		of.read(d, p, n, &list)
		r.Match[name] = list
	})
}

// weights reads values, each with a number.
func (d *decoder) weights(p place, n *yaml.Node, f *Fair) {
	f.Weights = make(map[string]int64)
	d.names(p, n, func(p place, name string, n *yaml.Node) { f.Weights[name] = d.units(p, n) })
}

// labels reads names, each with a value.
func (d *decoder) labels(p place, n *yaml.Node, s *Spec) {
	s.Labels = make(map[string]string)
	d.names(p, n, func(p place, name string, n *yaml.Node) { s.Labels[name] = d.text(p, n) })
}

// enabled reads true as nil, as if it were left out.
func (d *decoder) enabled(p place, n *yaml.Node, s *Spec) {
	if !d.truth(p, n) {
		s.Enabled = new(bool)
	}
}

// truth reads true or false. A mistake is true.
func (d *decoder) truth(p place, n *yaml.Node) bool {
	text := d.text(p, n)
	switch {
	case text == "" || text == "true" && !quoted(n):
	case text == "false" && !quoted(n):
		return false
	default:
		d.wrong(n, "%s is %.80q; allowed: true or false, unquoted", p, text)
	}
	return true
}

// metadata reads names with values of any form. All numbers are float64, as in JSON.
func (d *decoder) metadata(p place, n *yaml.Node, s *Spec) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "%s must be a mapping: names, each with a value", p)
		return
	}
	d.names(p, n, func(place, string, *yaml.Node) {})
	var values map[string]any
	if err := n.Decode(&values); err != nil {
		d.wrong(n, "%s has a value that JSON cannot express: %v", p, err)
		return
	}
	text, err := json.Marshal(values)
	if err != nil {
		d.wrong(n, "%s has a value that JSON cannot express: %v", p, err)
		return
	}
	_ = json.Unmarshal(text, &s.Metadata) // it was just written
}

// items are the elements of a list of mappings.
func (d *decoder) items(p place, n *yaml.Node, most int) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		if n.Kind != yaml.AliasNode {
			d.wrong(n, "%s must be a list: each begins with a dash", p.field)
		}
		return nil
	}
	if len(n.Content) == 0 || len(n.Content) > most {
		d.wrong(n, "%s has %d values; 1 to %d, or leave it out", p.field, len(n.Content), most)
		return nil
	}
	return n.Content
}

// list reads a list of texts; one text alone is a list of one.
func (d *decoder) list(p place, n *yaml.Node, most int) []string {
	if n.Kind != yaml.SequenceNode {
		if text := d.text(p, n); text != "" {
			return []string{text}
		}
		return nil
	}
	items := d.items(p, n, most)
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = d.text(place{p.rule, p.field, i}, item)
	}
	return list
}

// octal matches numbers that some YAML readers take for another value.
var octal = regexp.MustCompile(`^[-+]?0[0-9_]+$|^[-+]?0[oOxXbB]`)

// text reads a value as it is written. YAML's own types do not matter here, but a text that looks like a
// number of another base must be quoted, because its meaning is ambiguous.
func (d *decoder) text(p place, n *yaml.Node) string { return d.long(p, n, bounds.Text) }

// long is text with a bound in bytes.
func (d *decoder) long(p place, n *yaml.Node, most int) string {
	plain := !quoted(n) && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0
	switch {
	case n.Kind == yaml.AliasNode: // refused already
	case n.Kind != yaml.ScalarNode:
		d.wrong(n, "%s must be one value", p)
	case n.Value == "" || plain && n.Tag == "!!null":
		d.wrong(n, "%s has no value; give it one, or leave it out", p)
	case len(n.Value) > most:
		d.wrong(n, "%s has %d bytes; at most %d", p, len(n.Value), most)
	case plain && strings.IndexByte("0+-", n.Value[0]) >= 0 && octal.MatchString(n.Value):
		d.wrong(n, "%s is %s, which some readers take for octal or hexadecimal: write a decimal number without a "+
			"leading 0, or quote it if it is a text", p, n.Value)
	default:
		return n.Value
	}
	return ""
}

func (d *decoder) units(p place, n *yaml.Node) int64 {
	text := d.text(p, n)
	if text == "" {
		return 0
	}
	units, err := strconv.ParseInt(text, 10, 64)
	if err != nil || units < 1 || text[0] == '+' || quoted(n) {
		d.wrong(n, "%s is %.80q; allowed: a whole number from 1, unquoted, in decimal digits", p, text)
		return 0
	}
	return units
}

// factor reads a number such as 1.2.
func (d *decoder) factor(p place, n *yaml.Node, s *Spec) {
	text := d.text(p, n)
	if text == "" {
		return
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || quoted(n) || !(factor >= 1 && factor <= bounds.Ceiling) {
		d.wrong(n, "%s is %.80q; allowed: an unquoted number from 1 to %d, such as 1.2", p, text, bounds.Ceiling)
		return
	}
	s.LocalCeiling = factor
}

// zeroTo reads a whole number that may be 0.
func (d *decoder) zeroTo(p place, n *yaml.Node, most int) *int {
	text := d.text(p, n)
	if text == "" {
		return nil
	}
	given, err := strconv.Atoi(text)
	if err != nil || given < 0 || given > most || text[0] == '+' || text[0] == '-' || quoted(n) {
		d.wrong(n, "%s is %.80q; allowed: a whole number from 0 to %d, unquoted and without a sign", p, text, most)
		return nil
	}
	return &given
}

func quoted(n *yaml.Node) bool { return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 }
