package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/nearest"
)

// An Error lists every mistake of a file, in the order of the file.
type Error struct {
	Problems []Problem
	Omitted  int // number of mistakes beyond the bounds.Problems listed
}

// A Problem is one mistake, with a message that says which values are allowed.
type Problem struct {
	File    string
	Line    int    // from 1; 0 if the rules were not read from text
	Column  int    // in characters, from 1
	Field   string // place in the data: rules[2].limit
	Message string
	Source  string // the text of the line
}

// Error returns all problems, one after the other.
func (e *Error) Error() string {
	var b strings.Builder
	for i := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Problems[i].String())
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.Omitted)
	}
	return b.String()
}

// String is "file:line:column: message" with the line and a caret below the place.
func (p *Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", p.File, p.Field, p.Message)
	}
	head := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	line, column := excerpt(p.Source, p.Column)
	pad := []rune(line)[:column-1]
	for i, c := range pad {
		if c != '\t' { // keep tabs, for the same width
			pad[i] = ' '
		}
	}
	return head + "\n    " + line + "\n    " + string(pad) + "^"
}

// excerpt is the part of a long line around a column.
func excerpt(line string, column int) (string, int) {
	const before, width = 60, 100
	runes := []rune(line)
	column = min(max(column, 1), len(runes)+1)
	if len(runes) <= width {
		return string(runes), column
	}
	from := max(0, column-1-before)
	return string(runes[from:min(len(runes), from+width)]), column - from
}

// A place is a position in the data of a file.
type place struct {
	rule  int // −1: not in a rule
	field string
	item  int // index in the field's list; −1: the field itself
}

func at(rule int, field string) place { return place{rule, field, -1} }

// element is the place of a mapping in the field's list.
func (p place) element(i int) place { return at(p.rule, p.field+"["+strconv.Itoa(i)+"]") }

func (p place) String() string {
	text := p.field
	if p.rule >= 0 {
		text = strings.TrimSuffix("rules["+strconv.Itoa(p.rule)+"]."+p.field, ".")
	}
	if p.item >= 0 {
		text += "[" + strconv.Itoa(p.item) + "]"
	}
	return text
}

type mark struct{ line, column int }

func markOf(n *yaml.Node) mark { return mark{n.Line, n.Column} }

// A report collects problems, and finds the places of the data in the text.
type report struct {
	file     string
	lines    []string
	texts    []listText       // files of values, whose line numbers follow those of the file
	fit      map[int]bool     // lines that are masked already
	root     *yaml.Node       // nil: the data was not read from text
	mistyped map[place]mark   // fields that were probably meant by unknown ones
	joined   map[place]joined // values that files add to a list
	problems []Problem
	omitted  int
}

// joined are values of files, which follow the first values of a list.
type joined struct {
	first int
	marks []mark
}

// meant records that an unknown field was probably meant for this one, which is then not missing too.
func (r *report) meant(p place, n *yaml.Node) {
	if r.mistyped == nil {
		r.mistyped = make(map[place]mark)
	}
	r.mistyped[p] = markOf(n)
}

// add reports a problem of a place in the data.
func (r *report) add(p place, format string, args ...any) {
	m, _ := r.find(p)
	r.put(m, p, format, args...)
}

// has reports whether the text has a place, so that its mistake was reported already.
func (r *report) has(p place) bool {
	_, there := r.find(p)
	return there
}

// find is the position of a place, or of the nearest enclosing one that the text has. there reports whether
// the text has the place itself, or a value of another kind around it, which was reported already.
func (r *report) find(p place) (m mark, there bool) {
	if m, ok := r.mistyped[p]; ok {
		return m, true
	}
	if r.root == nil {
		return mark{}, false
	}
	n := r.root
	if p.rule >= 0 {
		if n = child(n, "rules"); n == nil || len(n.Content) <= p.rule {
			return mark{}, false
		}
		n = n.Content[p.rule]
		m = markOf(n)
	}
	named := false // the keys of n are names, which have the positions of their entries
	for rest := p.field; rest != ""; {
		key, value, after := descend(n, rest)
		if value == nil {
			return m, n.Kind != yaml.MappingNode
		}
		if m = markOf(value); named && key != nil {
			m = markOf(key)
		}
		named = key != nil && slices.Contains(withNames, key.Value)
		n, rest = value, after
	}
	return r.findItem(p, n, m)
}

// withNames are the fields that hold mappings with any keys.
var withNames = []string{"allow", "deny", "header", "query", "json", "descriptor", "message"}

// findItem finds an item of a list.
func (r *report) findItem(p place, n *yaml.Node, m mark) (mark, bool) {
	if p.item < 0 {
		return m, true
	}
	if files, ok := r.joined[at(p.rule, p.field)]; ok && p.item >= files.first {
		return files.marks[p.item-files.first], true
	}
	if n.Kind == yaml.MappingNode {
		if n = child(n, "values"); n == nil {
			return m, false
		}
	}
	if n.Kind != yaml.SequenceNode || p.item >= len(n.Content) {
		return m, false
	}
	return markOf(n.Content[p.item]), true
}

func child(n *yaml.Node, word string) *yaml.Node {
	_, value, rest := descend(n, word)
	if rest != "" {
		return nil
	}
	return value
}

// descend follows the first part of a field: an index such as [2] of a list, or the longest key of a mapping
// that the field begins with. rest is what follows it.
func descend(n *yaml.Node, field string) (key, value *yaml.Node, rest string) {
	if index, after, ok := strings.Cut(field, "]"); ok && field[0] == '[' {
		rest = strings.TrimPrefix(after, ".")
		if n.Kind != yaml.SequenceNode { // a single element
			return nil, n, rest
		}
		i, err := strconv.Atoi(index[1:])
		if err != nil || i >= len(n.Content) {
			return nil, nil, ""
		}
		return nil, n.Content[i], rest
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil, ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		after, begins := strings.CutPrefix(field, n.Content[i].Value)
		ends := after == "" || after[0] == '.' || after[0] == '['
		if begins && ends && n.Content[i].Kind == yaml.ScalarNode && (key == nil || len(after) < len(rest)) {
			key, value, rest = n.Content[i], n.Content[i+1], after
		}
	}
	return key, value, strings.TrimPrefix(rest, ".")
}

func (r *report) put(m mark, p place, format string, args ...any) {
	if len(r.problems) >= bounds.Problems {
		r.omitted++
		return
	}
	name, line := r.textOf(m.line)
	problem := Problem{File: name, Line: line, Column: m.column, Field: p.String(),
		Message: masked(fmt.Sprintf(format, args...))}
	if m.line > 0 && m.line <= len(r.lines) {
		problem.Source = r.shown(m.line - 1)
	}
	r.problems = append(r.problems, problem)
}

// shown is a masked line. It is computed once: lines may be long, and have many problems.
func (r *report) shown(i int) string {
	if r.fit == nil {
		r.fit = make(map[int]bool)
	}
	if !r.fit[i] {
		r.fit[i] = true
		r.lines[i] = masked(strings.ToValidUTF8(r.lines[i], "\uFFFD"))
	}
	return r.lines[i]
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	r.sort()
	return &Error{Problems: r.problems, Omitted: r.omitted}
}

// sort puts problems into the order of the file; problems of files of values come last.
func (r *report) sort() {
	order := make(map[string]int, len(r.texts))
	for i, text := range r.texts {
		order[text.name] = i + 1
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
}

// synonyms map words of other programs, without separators, to words of a file.
var synonyms = map[string]string{
	"ip":                   "client.ip",
	"clientip":             "client.ip",
	"remoteaddr":           "client.ip",
	"remoteaddress":        "client.ip",
	"address":              "client.ip",
	"slidingwindow":        "sliding_log",
	"slidingwindowlog":     "sliding_log",
	"slidingwindowcounter": "sliding_counter",
	"window":               "fixed_window",
	"leakybucketasmeter":   "leaky_bucket",
	"leakybucketasqueue":   "leaky_queue",
	"open":                 "allow",
	"failopen":             "allow",
	"closed":               "deny",
	"failclosed":           "deny",
	"dryrun":               "shadow",
	"logonly":              "shadow",
	"report":               "shadow",
	"on":                   "enforce",
}

// oneOf lists the allowed words, after the one that was probably meant.
func oneOf(given string, allowed []string) string {
	text := "allowed: " + strings.Join(allowed, ", ")
	meant := nearest.Of(given, allowed)
	joined := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(given))
	if other := synonyms[joined]; slices.Contains(allowed, other) {
		meant = other
	}
	if meant != "" {
		return fmt.Sprintf("did you mean %q? %s", meant, text)
	}
	return text
}
