package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/nearest"
)

// An Error is every mistake of a file, in the order of the file.
type Error struct {
	Problems []Problem
	Omitted  int // how many more there are than the MaxProblems that are listed
}

// A Problem is one mistake and the sentence that helps.
type Problem struct {
	File    string
	Line    int    // from 1; 0 if the rules were not read from text
	Column  int    // in characters, from 1
	Field   string // where in the data: rules[2].limit
	Message string
	Source  string // the text of the line
}

// Error is all problems, one after the other.
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

// String is "file:line:column: message" with the line and a caret under the place.
func (p *Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", p.File, p.Field, p.Message)
	}
	head := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	line, column := excerpt(p.Source, p.Column)
	pad := []rune(line)[:column-1]
	for i, c := range pad {
		if c != '\t' { // a tab is as wide here as it is above
			pad[i] = ' '
		}
	}
	return head + "\n    " + line + "\n    " + string(pad) + "^"
}

// excerpt cuts a long line to what is round a column.
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

// A place is where in a file's data something stands.
type place struct {
	rule  int // −1: not in a rule
	field string
	item  int // −1: the field itself
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

// A report gathers problems; marks say where the places of the data are in the text.
type report struct {
	file     string
	lines    []string
	texts    []listText     // files of values, whose lines come after those of the file
	fit      map[int]bool   // which lines are as they may be shown
	marks    map[place]mark // nil: they are not kept
	problems []Problem
	omitted  int
	quick    bool // one problem is enough: all is read again then, to tell where they are
}

// enough reports whether it is of no use to look for more.
func (r *report) enough() bool { return r.quick && len(r.problems) > 0 }

// mark notes where a place stands.
func (r *report) mark(p place, n *yaml.Node) {
	if r.marks != nil {
		r.marks[p] = mark{n.Line, n.Column}
	}
}

// add reports a problem of a place in the data.
func (r *report) add(p place, format string, args ...any) {
	r.put(r.find(p), p, format, args...)
}

// find is where a place stands, or the nearest thing round it that was read.
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

// has reports whether the text has a place: what is wrong with it was said already.
func (r *report) has(p place) bool {
	_, ok := r.marks[p]
	return ok
}

func (r *report) put(m mark, p place, format string, args ...any) {
	if len(r.problems) >= MaxProblems {
		r.omitted++
		return
	}
	name, line := r.textOf(m.line)
	problem := Problem{File: name, Line: line, Column: m.column, Field: p.String(), Message: masked(fmt.Sprintf(format, args...))}
	if m.line > 0 && m.line <= len(r.lines) {
		problem.Source = r.shown(m.line - 1)
	}
	r.problems = append(r.problems, problem)
}

// shown is a line as it may be shown. It is made once: lines may be long, and have many
// problems.
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

// sort brings problems into the order of the file; those of files of values come after it.
func (r *report) sort() {
	order := make(map[string]int, len(r.texts))
	for i, text := range r.texts {
		order[text.name] = i + 1
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
}

// synonyms are words of other programs for words of a file, without what joins their parts.
var synonyms = map[string]string{
	"ip": "client.ip", "clientip": "client.ip", "remoteaddr": "client.ip", "remoteaddress": "client.ip", "address": "client.ip",
	"slidingwindow": "sliding_log", "slidingwindowlog": "sliding_log", "slidingwindowcounter": "sliding_counter", "window": "fixed_window",
	"leakybucketasmeter": "leaky_bucket", "leakybucketasqueue": "leaky_queue", "open": "allow", "failopen": "allow", "closed": "deny",
	"failclosed": "deny", "dryrun": "shadow", "logonly": "shadow", "report": "shadow", "on": "enforce",
}

// oneOf says what is allowed, and which of it was probably meant.
func oneOf(given string, allowed []string) string {
	text := "allowed: " + strings.Join(allowed, ", ")
	meant := nearest.Of(given, allowed)
	if other := synonyms[strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(given))]; slices.Contains(allowed, other) {
		meant = other
	}
	if meant != "" {
		return fmt.Sprintf("did you mean %q? %s", meant, text)
	}
	return text
}
