package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/ruleset/filesource"
	"github.com/weirproject/weir/rules"
)

func newCheck(s *System) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "check [--format text|json] FILE|DIRECTORY|URL…",
		Short: "Check rule files for mistakes and warnings",
		Long: `Read rule files and report every mistake, with its line and the allowed values, and warnings,
such as for a rule that can never match. A directory is checked as weir serve --config reads
it: all its files are one rule set. For a URL only mistakes are reported. Neither sets in Redis
that lists name nor ledgers are read.

The exit code is 0 without findings but notes, 1 with mistakes, and 3 with only warnings. The file - is
the standard input; the default is the file in WEIR_CONFIG.`,
		Example: `  weir check weir.yaml
  weir check --format json weir.yaml
  weir check - < weir.yaml
  weir check .`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if config := s.lookup("WEIR_CONFIG"); len(args) == 0 && config != "" {
				args = []string{config}
			}
			if len(args) == 0 {
				return usagef("name a rule file, such as: weir check weir.yaml")
			}
			return check(cmd.Context(), s, args, format)
		},
	}
	command.Flags().StringVar(&format, "format", "text",
		"`FORMAT`: text, or json (an array with an object per finding)")
	return command
}

// A finding is a mistake or a warning, as JSON.
type finding struct {
	Severity string `json:"severity"` // error, warning or note
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	text     string
}

func check(ctx context.Context, s *System, names []string, format string) error {
	if format != "text" && format != "json" {
		return usagef("--format is %.80q; allowed: text, json", format)
	}
	findings := []finding{}
	code, rulesFound := exitClean, 0
	routesFound := ""
	for _, name := range names {
		found, set := inspect(ctx, s, name)
		findings = append(findings, found...)
		if set != nil {
			rulesFound += len(set.Rules())
			findings = append(findings, disabledOf(name, set)...)
			routesFound += filteredOf(set) + routesOf(set)
		}
	}
	for _, f := range findings {
		if f.Severity == "error" {
			code = exitError
		} else if f.Severity == "warning" && code == exitClean {
			code = exitWarnings
		}
	}
	if err := printFindings(s.Out, findings, format); err != nil {
		return err
	}
	if code != exitClean {
		return &exit{code: code}
	}
	if format == "text" {
		fmt.Fprintf(s.Out, "%s, no mistakes%s\n", count(rulesFound, "rule"), routesFound)
	}
	return nil
}

func printFindings(out io.Writer, findings []finding, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(findings)
	}
	for _, f := range findings {
		fmt.Fprintln(out, f.text)
	}
	return nil
}

// disabledOf names the rules of a file that are disabled.
func disabledOf(file string, set *rules.Set) (notes []finding) {
	for _, rule := range set.Rules() {
		if !rule.Enabled() {
			message := "rule " + rule.Name() + " is disabled"
			notes = append(notes, finding{Severity: "note", File: file, Message: message,
				text: "note: " + file + ": " + message})
		}
	}
	return notes
}

// filteredOf is the number of rules that are evaluated one by one: see rules.Set.Filtered.
func filteredOf(set *rules.Set) string {
	all, everywhere := set.Filtered()
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("\n%s with regex, any or not, which are evaluated one by one: %d for every request",
		count(all, "rule"), everywhere)
}

// routesOf lists where requests are forwarded to.
func routesOf(set *rules.Set) (text string) {
	for _, r := range set.Routes() {
		text += "\nroute " + r.Name + " to service " + r.Service.Name
	}
	for _, s := range set.Services() {
		var addresses []string
		for _, a := range s.Addresses {
			addresses = append(addresses, fmt.Sprintf("%s weight %d", &a.URL, a.Weight))
		}
		text += "\nservice " + s.Name + " at " + strings.Join(addresses, ", ")
	}
	return text
}

// inspect returns the findings of one file, directory or URL, and its rules; nil with mistakes.
func inspect(ctx context.Context, s *System, name string) (findings []finding, set *rules.Set) {
	if engine.IsURL(name) || engine.IsDir(name) {
		return inspectAll(ctx, s, name)
	}
	shown, text, err := engine.ReadFile(s.In, name)
	if err != nil {
		return mistakes(shown, err), nil
	}
	set, warnings, err := rules.Lint(shown, text, engine.ListOptions(name)...)
	if err != nil {
		return mistakes(shown, err), nil
	}
	for i := range warnings {
		f := found("warning", &warnings[i])
		f.text = "warning: " + f.text
		findings = append(findings, f)
	}
	for _, note := range []string{engine.CountIfNote(set), engine.GeoNote(set)} {
		if note != "" {
			findings = append(findings, finding{Severity: "note", File: shown, Message: note,
				text: "note: " + shown + ": " + note})
		}
	}
	return findings, set
}

// inspectAll reads a directory or a URL as weir serve does. A directory gets the warnings of each
// file, and then those of all files together.
func inspectAll(ctx context.Context, s *System, name string) (findings []finding, set *rules.Set) {
	all, err := engine.ReadOnce(ctx, name)
	if err != nil {
		return mistakes(name, err), nil
	}
	files, _ := filesource.Files(name) // none at a URL
	for _, file := range files {
		warned, _ := inspect(ctx, s, file)
		findings = append(findings, warned...)
	}
	set, _ = rules.Compile(all) // mistakes are findings already
	return append(findings, between(name, all, findings)...), set
}

// between returns the warnings about rules of several files, without those about a single file.
func between(name string, file *rules.File, known []finding) (findings []finding) {
	same := make(map[string]bool)
	for i := range known {
		same[numbers.ReplaceAllString(known[i].Message, "")] = true
	}
	warnings, _ := file.Lint() // mistakes are findings already
	for i := range warnings {
		w := &warnings[i]
		// The warning about path_form is a summary of a file.
		if same[numbers.ReplaceAllString(w.Message, "")] || strings.Contains(w.Message, "path_form:") {
			continue
		}
		f := found("warning", w)
		place := numbers.FindStringSubmatch(w.Field)
		if place != nil {
			at, _ := strconv.Atoi(place[1])
			f.Field = fmt.Sprintf("rule %s", file.Rules[at].Name) + strings.TrimPrefix(w.Field, place[0])
		}
		f.File = name
		f.Message = numbers.ReplaceAllString(w.Message, "rule")
		f.text = fmt.Sprintf("warning: %s: %s: %s", name, f.Field, f.Message)
		findings = append(findings, f)
	}
	return findings
}

// numbers matches the index of a rule among those of all files, which no file shows.
var numbers = regexp.MustCompile(`rules\[([0-9]+)\]`)

// mistakes are the findings of an error.
func mistakes(name string, err error) (findings []finding) {
	var list *rules.Error
	if !errors.As(err, &list) {
		return []finding{{Severity: "error", File: name, Message: message(err), text: message(err)}}
	}
	for i := range list.Problems {
		findings = append(findings, found("error", &list.Problems[i]))
	}
	if list.Omitted > 0 {
		more := fmt.Sprintf("and %d more", list.Omitted)
		findings = append(findings, finding{Severity: "error", File: name, Message: more, text: more})
	}
	return findings
}

func found(severity string, p *rules.Problem) finding {
	return finding{
		Severity: severity,
		File:     p.File,
		Line:     p.Line,
		Column:   p.Column,
		Field:    p.Field,
		Message:  p.Message,
		text:     p.String(),
	}
}

// count is "1 rule" or "2 rules".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
