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

// A Problem is one mistake, with a message that says what is allowed.
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

// A report collects problems; marks map places of the data to positions in the text.
type report struct {
	file     string
	lines    []string
	texts    []listText     // files of values, whose line numbers follow those of the file
	fit      map[int]bool   // lines that are masked already
	marks    map[place]mark // nil: not recorded
	problems []Problem
	omitted  int
	quick    bool // stop at one problem: the text is read again then, with marks
}

// enough reports whether no further problem is needed.
func (r *report) enough() bool { return r.quick && len(r.problems) > 0 }

// mark records the position of a place.
func (r *report) mark(p place, n *yaml.Node) {
	if r.marks != nil {
		r.marks[p] = mark{n.Line, n.Column}
	}
}

// add reports a problem of a place in the data.
func (r *report) add(p place, format string, args ...any) {
	r.put(r.find(p), p, format, args...)
}

// find is the position of a place, or of the nearest enclosing one that was read.
func (r *report) find(p place) mark {
	if m, ok := r.marks[p]; ok {
		return m
	}
	for field := p.field; field != ""; {
		if m, ok := r.marks[at(p.rule, field)]; ok {
			return m
		}
		field = field[:max(0, strings.LastIndexByte(field, '.'))]
	}
	return r.marks[at(p.rule, "")]
}

// has reports whether the text has a place, so that its mistake was reported already.
func (r *report) has(p place) bool {
	_, ok := r.marks[p]
	return ok
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

// sort puts problems into the order of the file; those of files of values come last.
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
