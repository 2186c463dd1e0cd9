package rules

import (
	"bytes"
	"errors"
	"fmt"
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

// Parse reads a file of rules: one YAML document. The error is an *Error that lists every mistake, in which
// name is the file's name. Compile accepts the data that Parse accepts. The only options with an effect are
// WithFiles and WithSets; without WithFiles no file is read.
func Parse(name string, text []byte, opts ...Option) (*File, error) {
	file, _, r := read(name, text, newOptions(opts), false)
	if err := r.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// read also compiles the set, and records the places of values if marked.
func read(name string, text []byte, o options, marked bool) (*File, *Set, *report) {
	r := &report{file: name}
	if !r.readable(text) {
		return nil, nil, r
	}
	root := r.document(text, o.rest)
	if root == nil {
		return nil, nil, r
	}
	o.read = once(o.read)
	// Nearly all files are valid and need no marks. An unmarked run finds a problem whenever a marked one
	// does: marks only suppress repeated reports.
	if quick := *r; !marked && len(r.problems) == 0 {
		quick.quick = true
		if file, set := decode(root, o, &quick); len(quick.problems) == 0 {
			return file, set, &quick
		}
	}
	r.marks = make(map[place]mark)
	file, set := decode(root, o, r)
	return file, set, r
}

func decode(root *yaml.Node, o options, r *report) (*File, *Set) {
	d := &decoder{report: r, file: &File{Name: r.file}, options: o}
	d.refuse(root)
	d.root(root)
	return d.file, build(d.file, r, o)
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
	}
	return true
}

// A decoder reads nodes into a File. It checks the YAML; builder checks the values, so that files made by
// programs get the same checks.
type decoder struct {
	*report
	options
	file  *File
	files map[string]*listFile
	filed int // values in files
}

func (r *report) wrong(n *yaml.Node, format string, args ...any) {
	r.put(mark{n.Line, n.Column}, at(-1, "file"), format, args...)
}

// resting is a reader that calls rest after each piece of the text.
func resting(text []byte, rest func()) io.Reader {
	if rest == nil {
		return bytes.NewReader(text)
	}
	return &restful{text: text, rest: rest}
}

type restful struct {
	text []byte
	rest func()
	read int // bytes since the last rest
}

func (r *restful) Read(dst []byte) (n int, err error) {
	if r.read >= bytesRead {
		r.rest()
		r.read = 0
	}
	if len(r.text) == 0 {
		return 0, io.EOF
	}
	n = copy(dst, r.text)
	r.text, r.read = r.text[n:], r.read+n
	return n, nil
}

// document is the root of the only document, or nil.
func (r *report) document(text []byte, rest func()) *yaml.Node {
	loader, err := yaml.NewLoader(resting(text, rest),
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
	message := load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg + ": " + message
	}
	r.put(m, at(-1, "file"), "not YAML: %s%s", message, hint(load.ContextMsg, load.Message))
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

// A field is a field of the file and its reader.
type field struct {
	word string
	read func(p place, n *yaml.Node)
}

// fields reads a mapping with known fields. Their places begin with prefix.
func (d *decoder) fields(n *yaml.Node, rule int, prefix string, known []field) {
	d.pairs(n, prefix, func(key, value *yaml.Node) {
		for _, f := range known {
			if f.word == key.Value {
				p := at(rule, prefix+f.word)
				d.mark(p, value)
				f.read(p, value)
				return
			}
		}
		words := make([]string, len(known))
		for i, f := range known {
			words[i] = f.word
		}
		d.wrong(key, "unknown field %.80q; %s", key.Value, oneOf(key.Value, words))
		if meant := nearest.Of(key.Value, words); meant != "" { // not missing as well
			d.mark(at(rule, prefix+meant), key)
		}
	})
}

// pairs iterates over a mapping; the second of two equal keys is an error.
func (d *decoder) pairs(n *yaml.Node, what string, each func(key, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode { // reported already
		return
	}
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "%s must be fields with values, such as name: value", orFile(what))
		return
	}
	first := firsts(n)
	for i := 0; i+1 < len(n.Content) && !d.enough(); i += 2 {
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

func orFile(what string) string {
	if what = strings.TrimSuffix(what, "."); what != "" {
		return what
	}
	return "this"
}

func (d *decoder) root(n *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		d.wrong(n, "the file is a list; begin it with the line rules: and put the list below that")
		return
	}
	f := d.file
	d.fields(n, -1, "", []field{
		{"store", func(p place, n *yaml.Node) { f.Store = d.text(p, n) }},
		{"nodes", func(p place, n *yaml.Node) { f.Nodes = int(min(d.units(p, n), bounds.Sharing+1)) }},
		{"fallback_keys", func(p place, n *yaml.Node) { f.FallbackKeys = int(min(d.units(p, n), bounds.FallbackKeys+1)) }},
		{"trusted_proxies", func(p place, n *yaml.Node) { f.TrustedProxies = d.list(p, n, bounds.Proxies) }},
		{"client_header", func(p place, n *yaml.Node) { f.ClientHeader = d.text(p, n) }},
		{"path_form", func(p place, n *yaml.Node) { f.PathForm = d.list(p, n, bounds.Values) }},
		{"allow", func(p place, n *yaml.Node) { f.Allow = d.lists(p, n) }},
		{"deny", func(p place, n *yaml.Node) { f.Deny = d.lists(p, n) }},
		{"response", func(p place, n *yaml.Node) { d.response(p, n, &f.Response) }},
		{"rules", d.rules},
	})
	if n.Kind == yaml.MappingNode && f.Rules == nil && !d.has(at(-1, "rules")) {
		d.wrong(n, "rules is missing; write rules: [] for a file without rules")
	}
}

func (d *decoder) rules(_ place, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, "rules must be a list: each rule begins with a dash")
		return
	}
	if len(n.Content) > MaxRules {
		d.wrong(n, "%d rules; at most %d", len(n.Content), MaxRules)
		return
	}
	d.file.Rules = make([]Spec, len(n.Content))
	var s Spec
	known := d.ruleFields(&s)
	for i, rule := range n.Content {
		if d.enough() {
			return
		}
		d.mark(at(i, ""), rule)
		d.rule(i, rule, known)
		d.file.Rules[i], s = s, Spec{}
		d.pause(i, rulesRead)
	}
}

func (d *decoder) rule(i int, n *yaml.Node, known []field) {
	if n.Kind != yaml.MappingNode { // fields cannot be missing
		d.mark(at(i, "name"), n)
		d.mark(at(i, "limit"), n)
	}
	d.fields(n, i, "", known)
}

// ruleFields are made once for all rules of a file: they fill in the current one.
func (d *decoder) ruleFields(s *Spec) []field {
	match := d.matchFields(&s.Match)
	return []field{
		{"name", func(p place, n *yaml.Node) { s.Name = d.text(p, n) }},
		{"label", func(p place, n *yaml.Node) { s.Label = d.text(p, n) }},
		{"match", func(p place, n *yaml.Node) { d.fields(n, p.rule, "match.", match) }},
		{"group", func(p place, n *yaml.Node) { s.Group = d.text(p, n) }},
		{"schedule", func(p place, n *yaml.Node) { s.Schedule = d.schedule(p, n) }},
		{"allow", func(p place, n *yaml.Node) { s.Allow = d.lists(p, n) }},
		{"deny", func(p place, n *yaml.Node) { s.Deny = d.lists(p, n) }},
		{"key", func(p place, n *yaml.Node) { s.Key = d.list(p, n, bounds.Components) }},
		{"on_missing", func(p place, n *yaml.Node) { s.OnMissing = OnMissing(d.text(p, n)) }},
		{"algorithm", func(p place, n *yaml.Node) { s.Algorithm = d.text(p, n) }},
		{"limit", func(p place, n *yaml.Node) { s.Limit = d.list(p, n, bounds.Limits) }},
		{"overrides", func(p place, n *yaml.Node) { s.Overrides = d.overrides(p, n) }},
		{"cost", func(p place, n *yaml.Node) { d.cost(p, n, &s.Cost) }},
		{"mode", func(p place, n *yaml.Node) { s.Mode = Mode(d.text(p, n)) }},
		{"ban", func(p place, n *yaml.Node) { d.ban(p, n, &s.Ban) }},
		{"candidate", func(p place, n *yaml.Node) { d.candidate(p, n, &s.Candidate) }},
		{"enforce_percent", func(p place, n *yaml.Node) { s.EnforcePercent = d.percent(p, n) }},
		{"lease_percent", func(p place, n *yaml.Node) { s.LeasePercent = int(min(d.units(p, n), bounds.Lease+1)) }},
		{"hold_until", func(p place, n *yaml.Node) { s.HoldUntil = d.text(p, n) }},
		{"local_ceiling", func(p place, n *yaml.Node) { s.LocalCeiling = d.factor(p, n) }},
		{"on_store_error", func(p place, n *yaml.Node) { s.OnStoreError = StoreError(d.text(p, n)) }},
		{"response", func(p place, n *yaml.Node) { d.response(p, n, &s.Response) }},
	}
}

func (d *decoder) matchFields(m *Match) []field {
	return []field{
		{"method", func(p place, n *yaml.Node) { m.Method = d.list(p, n, bounds.Values) }},
		{"host", func(p place, n *yaml.Node) { m.Host = d.list(p, n, bounds.Values) }},
		{"path", func(p place, n *yaml.Node) { m.Path = d.text(p, n) }},
		{"client", func(p place, n *yaml.Node) { m.Client = d.list(p, n, bounds.Values) }},
		{"service", func(p place, n *yaml.Node) { m.Service = d.list(p, n, bounds.Values) }},
		{"user", func(p place, n *yaml.Node) { m.User = d.list(p, n, bounds.Values) }},
		{"route", func(p place, n *yaml.Node) { m.Route = d.list(p, n, bounds.Values) }},
		{"header", func(p place, n *yaml.Node) { m.Header = d.table(p, n) }},
		{"query", func(p place, n *yaml.Node) { m.Query = d.table(p, n) }},
		{"descriptor", func(p place, n *yaml.Node) { m.Descriptor = d.table(p, n) }},
	}
}

// table reads names, each with its values.
func (d *decoder) table(p place, n *yaml.Node) map[string][]string {
	table := make(map[string][]string)
	each := func(p place, name string, n *yaml.Node) {
		if values := d.list(p, n, bounds.Values); len(values) > 0 {
			table[name] = values
		}
	}
	d.names(p, n, each)
	return table
}

// lists reads components, each with its listed values.
func (d *decoder) lists(p place, n *yaml.Node) map[string]List {
	table := make(map[string]List)
	each := func(p place, name string, n *yaml.Node) {
		if list := d.listed(p, n); len(list.Values)+len(list.Sets) > 0 {
			table[name] = list
		}
	}
	d.names(p, n, each)
	return table
}

func (d *decoder) names(p place, n *yaml.Node, each func(p place, name string, n *yaml.Node)) {
	d.pairs(n, p.field, func(key, value *yaml.Node) {
		name := at(p.rule, p.field+"."+key.Value)
		d.mark(name, key)
		each(name, key.Value, value)
	})
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.wrong(n, "%s is empty; leave it out", p.field)
	}
}

// cost reads a number or a mapping.
func (d *decoder) cost(p place, n *yaml.Node, c *Cost) {
	if n.Kind != yaml.MappingNode {
		c.Units = d.units(p, n)
		return
	}
	if len(n.Content) == 0 {
		d.wrong(n, "cost is empty; give it a number, or say where it comes from, or leave it out")
	}
	d.fields(n, p.rule, "cost.", []field{
		{"from", func(p place, n *yaml.Node) { c.From = d.text(p, n) }},
		{"default", func(p place, n *yaml.Node) { c.Default = d.units(p, n) }},
		{"max", func(p place, n *yaml.Node) { c.Max = d.units(p, n) }},
		{"settle", func(p place, n *yaml.Node) { c.Settle = d.text(p, n) }},
	})
}

func (d *decoder) overrides(p place, n *yaml.Node) []Override {
	items := d.items(p, n, bounds.Overrides)
	list := make([]Override, len(items))
	for j, item := range items {
		o, prefix := &list[j], fmt.Sprintf("%s[%d].", p.field, j)
		d.begin(p.rule, prefix, item)
		d.fields(item, p.rule, prefix, []field{
			{"key", func(p place, n *yaml.Node) { o.Key = d.list(p, n, bounds.Components) }},
			{"limit", func(p place, n *yaml.Node) { o.Limit = d.list(p, n, bounds.Limits) }},
		})
		if item.Kind == yaml.MappingNode && len(o.Key) == 0 && !d.has(at(p.rule, prefix+"key")) {
			d.wrong(item, "%skey is missing: a value for each component of the rule's key", prefix)
			d.mark(at(p.rule, prefix+"key"), item)
		}
	}
	return list
}

// schedule reads a window, or a list of them.
func (d *decoder) schedule(p place, n *yaml.Node) []Window {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = d.items(p, n, bounds.Windows)
	}
	list := make([]Window, len(items))
	for j, item := range items {
		w, prefix := &list[j], fmt.Sprintf("%s[%d].", p.field, j)
		d.begin(p.rule, prefix, item)
		d.fields(item, p.rule, prefix, []field{
			{"days", func(p place, n *yaml.Node) { w.Days = d.list(p, n, len(weekdays)) }},
			{"hours", func(p place, n *yaml.Node) { w.Hours = d.text(p, n) }},
			{"zone", func(p place, n *yaml.Node) { w.Zone = d.text(p, n) }},
		})
	}
	return list
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

// begin marks an item. Without a mapping no fields are missing.
func (d *decoder) begin(rule int, prefix string, n *yaml.Node) {
	d.mark(at(rule, strings.TrimSuffix(prefix, ".")), n)
	if n.Kind != yaml.MappingNode {
		for _, word := range []string{"key", "limit", "days"} {
			d.mark(at(rule, prefix+word), n)
		}
	}
}

func (d *decoder) response(p place, n *yaml.Node, r *Response) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.wrong(n, "response is empty; leave it out")
	}
	d.fields(n, p.rule, "response.", []field{
		{"status", func(p place, n *yaml.Node) { r.Status = int(min(d.units(p, n), 1<<20)) }},
		{"fields", func(p place, n *yaml.Node) { r.Fields = d.text(p, n) }},
		{"body", func(p place, n *yaml.Node) { r.Body = d.long(p, n, bounds.Body) }},
		{"content_type", func(p place, n *yaml.Node) { r.ContentType = d.text(p, n) }},
	})
}

// list reads a list of texts; one text alone is a list of one.
func (d *decoder) list(p place, n *yaml.Node, most int) []string {
	if n.Kind != yaml.SequenceNode {
		if text := d.text(p, n); text != "" {
			return []string{text}
		}
		return nil
	}
	if len(n.Content) == 0 || len(n.Content) > most {
		d.wrong(n, "%s has %d values; 1 to %d, or leave it out", p.field, len(n.Content), most)
		return nil
	}
	list := make([]string, len(n.Content))
	for i, item := range n.Content {
		list[i] = d.text(place{p.rule, p.field, i}, item)
		d.mark(place{p.rule, p.field, i}, item)
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
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
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
			"leading 0, "+
			"or quote it if it is a text", p, n.Value)
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
	if err != nil || units < 1 || text[0] == '+' || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		d.wrong(n, "%s is %.80q; allowed: a whole number from 1, unquoted, in decimal digits", p, text)
		return 0
	}
	return units
}
