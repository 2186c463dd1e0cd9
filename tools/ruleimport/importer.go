// Package ruleimport makes rules of the configurations of other limiters. Parts without an equal in rules are listed
// with their lines, and never dropped in silence.
package ruleimport

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/yamltree"
	"github.com/weirproject/weir/rules"
)

// Bounds of an import.
const (
	maxText     = rules.MaxFile // bytes of all files together
	maxNotes    = 1000          // listed; the rest is counted
	maxProblems = 50
)

// A Text is a file that is read.
type Text struct {
	Name string
	Data []byte
}

// Include finds the files that a directive of a file includes, by a pattern relative to it.
type Include func(from, pattern string) ([]Text, error)

// A Note is a part of a configuration that has no equal.
type Note struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // from 1
	What    string `json:"what"`
	Instead string `json:"instead"` // what to do about it
}

// String is the note in one line.
func (n *Note) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, n.What, n.Instead)
}

// A Result is a rule set, and the settings without an equal in it.
type Result struct {
	Program string
	Files   []string
	Rules   *rules.File
	Notes   []Note
	Omitted int // notes beyond the bound
}

// formats are the readers of each format.
var formats = map[string]func(*Job){"envoy": envoy, "nginx": nginx}

// Names are the names of the formats.
func Names() []string { return slices.Sorted(maps.Keys(formats)) }

// Import reads configurations as one rule set. The error of a configuration that cannot be read is a *rules.Error with
// the lines.
func Import(format string, texts []Text, include Include) (*Result, error) {
	read, ok := formats[format]
	if !ok {
		return nil, fmt.Errorf("the format is %.80q; allowed: %s", format, strings.Join(Names(), ", "))
	}
	return Read("weir import "+format, read, texts, include)
}

// Read reads configurations by the reader of a format that is perhaps not in the table. The program is named in the
// rule file.
func Read(program string, read func(*Job), texts []Text, include Include) (*Result, error) {
	j := &Job{Files: texts, include: include, names: make(map[string]bool),
		result: &Result{Program: program, Rules: new(rules.File), Notes: []Note{}}}
	for _, t := range texts {
		j.result.Files = append(j.result.Files, t.Name)
		j.sized(t)
	}
	if !j.Failed() {
		read(j)
	}
	if j.Failed() {
		kept := j.problems[:min(len(j.problems), maxProblems)]
		return nil, &rules.Error{Problems: kept, Omitted: len(j.problems) - len(kept)}
	}
	slices.SortStableFunc(j.result.Notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line)
	})
	return j.result, nil
}

// YAML is the rule set as a file, with the notes as comments before it. Reading it gives the same rules.
func (r *Result) YAML() (string, error) {
	part := struct {
		Server   rules.Server
		Rules    []rules.Spec
		Services []rules.ServiceSpec
		Routes   []rules.RouteSpec
	}{r.Rules.Server, r.Rules.Rules, r.Rules.Services, r.Rules.Routes}
	text, err := ledger.YAML(part)
	if err != nil {
		return "", err
	}
	if len(r.Rules.Rules) == 0 && !strings.Contains("\n"+text, "\nrules: []\n") {
		text = "rules: []\n" + strings.TrimPrefix(text, "{}\n")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported by %s from %s.\n", r.Program, comment(strings.Join(r.Files, ", ")))
	for i := range r.Notes {
		fmt.Fprintf(&b, "# No equal: %s\n", comment(r.Notes[i].String()))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "# and %d more without an equal\n", r.Omitted)
	}
	b.WriteString(text)
	return b.String(), r.verify(b.String())
}

// verify reads the text as weir check does: a rule that came out as another one would limit other requests.
func (r *Result) verify(text string) error {
	file, err := rules.Parse("imported rules", []byte(text))
	if err != nil {
		return err
	}
	want := *r.Rules
	want.Name = file.Name
	if len(want.Rules) == 0 {
		want.Rules = file.Rules
	}
	if !reflect.DeepEqual(*file, want) {
		return errors.New("the imported rules read otherwise when written as YAML; nothing was written")
	}
	_, err = rules.Compile(file)
	return err
}

// comment is a text without line ends and control characters.
func comment(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || !strconv.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
}

// A job is an import that runs.
type Job struct {
	Files    []Text
	include  Include
	result   *Result
	problems []rules.Problem
	names    map[string]bool // of rules
	size     int
	budget   yamltree.Budget
}

// sized counts the bytes of a file, and reports too many.
func (j *Job) sized(t Text) bool {
	if j.size += len(t.Data); j.size > maxText {
		j.Wrong(t.Name, 1, "all files together have over %d bytes, which is the most", maxText)
		return false
	}
	return true
}

// Failed reports whether there are mistakes.
func (j *Job) Failed() bool { return len(j.problems) > 0 }

// Wrong reports a mistake, so that the import fails.
func (j *Job) Wrong(file string, line int, format string, args ...any) {
	j.wrongAt(file, line, 1, format, args...)
}

func (j *Job) wrongAt(file string, line, column int, format string, args ...any) {
	problem := rules.Problem{File: file, Line: max(1, line), Column: max(1, column),
		Message: fmt.Sprintf(format, args...)}
	for _, t := range j.Files {
		if t.Name == file {
			problem.Source = lineOf(t.Data, problem.Line)
		}
	}
	j.problems = append(j.problems, problem)
}

// maxSource is the most of a line that a mistake shows.
const maxSource = 200

func lineOf(text []byte, line int) string {
	for one := range strings.Lines(string(text)) {
		if line--; line == 0 {
			one = comment(strings.TrimRight(one, "\r\n"))
			return one[:min(len(one), maxSource)]
		}
	}
	return ""
}

// Lacks lists a setting without an equal.
func (j *Job) Lacks(file string, line int, instead, format string, args ...any) {
	if len(j.result.Notes) == maxNotes {
		j.result.Omitted++
		return
	}
	note := Note{File: file, Line: max(1, line), What: fmt.Sprintf(format, args...), Instead: instead}
	j.result.Notes = append(j.result.Notes, note)
}

// Add adds a rule that is valid alone, under a name that no other has. Otherwise it lists it, and reports false.
func (j *Job) Add(file string, line int, spec rules.Spec) bool {
	spec.Name = j.name(spec.Name)
	alone := &rules.File{Rules: []rules.Spec{spec}}
	if _, err := rules.Compile(alone); err != nil {
		j.Lacks(file, line, "rewrite it by hand, within what a rule can hold", "rule %s: %s", spec.Name,
			firstProblem(err))
		return false
	}
	j.names[spec.Name] = true
	j.result.Rules.Rules = append(j.result.Rules.Rules, spec)
	return true
}

// AddService adds a service that is valid alone.
func (j *Job) AddService(file string, line int, s rules.ServiceSpec) {
	all := append(slices.Clone(j.result.Rules.Services), s)
	if _, err := rules.Compile(&rules.File{Rules: []rules.Spec{}, Services: all}); err != nil {
		j.Lacks(file, line, "write the service by hand", "service %.80s: %s", s.Name, firstProblem(err))
		return
	}
	j.result.Rules.Services = all
}

// AddRoute adds a route that is valid with those before it, and reports whether it is.
func (j *Job) AddRoute(file string, line int, r rules.RouteSpec) bool {
	if !slices.ContainsFunc(j.result.Rules.Services, func(s rules.ServiceSpec) bool { return s.Name == r.Service }) {
		return false // the service is listed, or has no address
	}
	all := append(slices.Clone(j.result.Rules.Routes), r)
	alone := &rules.File{Rules: []rules.Spec{}, Services: j.result.Rules.Services, Routes: all}
	if _, err := rules.Compile(alone); err != nil {
		j.Lacks(file, line, "write the route by hand", "route %.80s: %s", r.Name, firstProblem(err))
		return false
	}
	j.result.Rules.Routes = all
	return true
}

func firstProblem(err error) string {
	var list *rules.Error
	if errors.As(err, &list) {
		return list.Problems[0].Message
	}
	return err.Error()
}

// maxNameLength leaves room for a number after it.
const maxNameLength = 120

// name is a name for a rule: letters, digits and . _ - as they are, and a number after one that is taken.
func (j *Job) name(text string) string {
	text = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, text)
	text = cmp.Or(text[:min(len(text), maxNameLength)], "rule")
	for n, name := 2, text; ; n++ {
		if !j.names[name] {
			return name
		}
		name = fmt.Sprintf("%s-%d", text, n)
	}
}
