package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/internal/ruleset/filesource"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/gateway"
	"github.com/weirproject/weir/server/internal/listen"
	"github.com/weirproject/weir/tools/command"
)

func newCheck(s *System) *cobra.Command {
	var f checkFlags
	command := &cobra.Command{
		Use:   "check [flags] FILE|DIRECTORY|URL…",
		Short: "Check rule files for mistakes and warnings",
		Long: `Read rule files and report every mistake, with its line and the allowed values, and warnings,
such as for a rule that can never match. A directory is checked as weir serve --config reads
it: all its files are one rule set. For a URL only mistakes are reported. Ledgers are not read.

--review adds what each rule lets through in the worst case, how many keys it counts, and notes
about rules that a client can avoid.

The exit code is 0 without findings but notes, 1 with mistakes, and 3 with only warnings. The file - is
the standard input; the default is the file in WEIR_CONFIG.`,
		Example: `  weir check weir.yaml
  weir check --format json weir.yaml
  weir check - < weir.yaml
  weir check .
  weir check --review weir.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if config := s.lookup("WEIR_CONFIG"); len(args) == 0 && config != "" {
				args = []string{config}
			}
			if len(args) == 0 {
				return program.Usagef("name a rule file, such as: weir check weir.yaml")
			}
			return check(cmd.Context(), s, args, &f)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.review, "review", false, "add bounds, keys and notes of each rule")
	flags.StringVar(&f.format, "format", "text", "`FORMAT`: text, or json (an array with an object per finding; with\n"+
		"--review an object that has it as findings)")
	f.rules.addFields(flags)
	return command
}

// A checkFlags are the flags of check.
type checkFlags struct {
	format string
	review bool
	rules  ruleFlags // --set alone
}

// A reviewed is the output with --review, as JSON.
type reviewed struct {
	Findings []finding         `json:"findings"`
	Reviews  []*command.Review `json:"reviews,omitempty"`
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

func check(ctx context.Context, s *System, names []string, f *checkFlags) error {
	if f.format != "text" && f.format != "json" {
		return program.Usagef("--format is %.80q; allowed: text, json", f.format)
	}
	given, err := f.rules.given(s)
	if err != nil {
		return err
	}
	result := reviewed{}
	findings := []finding{}
	code, rulesFound := program.Clean, 0
	routesFound := ""
	for _, name := range names {
		found, file, set := inspect(ctx, s, name, f.review)
		findings = append(findings, found...)
		if set != nil {
			rulesFound += len(set.Rules())
			findings = append(append(findings, disabledOf(name, set)...), unreadable(name, set)...)
			findings = append(findings, presetsOf(name, set)...)
			findings = append(findings, learnedOf(name, set)...)
			findings = append(append(findings, slowOf(name, set)...), ceilingsOf(name, set)...)
			findings = append(findings, settingsOf(name, set, given)...)
			routesFound += filteredOf(set) + routesOf(set)
			if f.review {
				one := command.ReviewOf(name, file, set)
				result.Reviews, findings = append(result.Reviews, one), append(findings, notesOf(one)...)
			}
		}
	}
	for _, f := range findings {
		if f.Severity == "error" {
			code = program.Failed
		} else if f.Severity == "warning" && code == program.Clean {
			code = program.Found
		}
	}
	result.Findings = findings
	summary := ""
	if code == program.Clean {
		summary = fmt.Sprintf("%s, no mistakes%s\n", program.Count(rulesFound, "rule"), routesFound)
	}
	if err := result.printTo(s.Out, f, summary); err != nil {
		return err
	}
	if code != program.Clean {
		return &program.Exit{Code: code}
	}
	return nil
}

// printTo prints the findings, the summary of rules without mistakes, and the parts that flags add.
func (r *reviewed) printTo(out io.Writer, f *checkFlags, summary string) error {
	if f.format == "json" {
		var document any = r.Findings
		if f.review {
			document = r
		}
		return program.PrintJSON(out, document)
	}
	for _, finding := range r.Findings {
		fmt.Fprintln(out, finding.text)
	}
	fmt.Fprint(out, summary)
	for i := range r.Reviews {
		r.Reviews[i].Print(out)
	}
	return nil
}

// notesOf are the notes of a review.
func notesOf(r *command.Review) (notes []finding) {
	for _, n := range r.Notes {
		f := finding{Severity: "note", File: r.File, Message: n.Message, text: "note: " + r.File + ": "}
		if n.Rule != "" {
			f.Field = "rule " + n.Rule
			f.text += f.Field + ": "
		}
		f.text += n.Message
		notes = append(notes, f)
	}
	return notes
}

// unreadable names the files of services that weir serve could not use.
func unreadable(file string, set *rules.Set) []finding {
	upstreams := gateway.NewUpstreams(0, slog.New(slog.DiscardHandler))
	if _, err := upstreams.Prepare(set); err != nil {
		return []finding{{Severity: "error", File: file, Message: err.Error(), text: file + ": " + err.Error()}}
	}
	return nil
}

// settingsOf are the mistakes of settings that contradict each other, and the hosts of routes without a
// certificate.
func settingsOf(file string, set *rules.Set, given func(*rules.Server)) (findings []finding) {
	server := *set.Server()
	given(&server)
	server.Complete()
	err := completeListeners(&server, set, true)
	if err == nil {
		err = engine.CheckSettings(server)
	}
	missed, uncoveredErr := uncovered(&server.Gateway, set)
	if err = cmp.Or(err, uncoveredErr); err != nil {
		return mistakes(file, fmt.Errorf("%s: %w", file, err))
	}
	for _, host := range missed {
		message := fmt.Sprintf("a route has the host %s, which no certificate covers: %s", host,
			strings.Join(server.Gateway.TLSCert, ", "))
		findings = append(findings, finding{Severity: "error", File: file, Message: message,
			text: file + ": " + message})
	}
	return findings
}

// uncovered are the hosts of routes that no certificate covers; empty without TLS.
func uncovered(l *rules.Listener, set *rules.Set) ([]string, error) {
	if len(l.TLSCert) == 0 {
		return nil, nil
	}
	var hosts []string
	for _, route := range set.Routes() {
		hosts = append(hosts, route.Host...)
	}
	slices.Sort(hosts)
	return listen.Uncovered(l.TLSCert, l.TLSKey, slices.Compact(hosts))
}

// disabledOf names the rules of a file that are disabled.
func disabledOf(file string, set *rules.Set) (notes []finding) {
	for _, rule := range set.Rules() {
		if !rule.Enabled() {
			notes = append(notes, note(file, "rule "+rule.Name()+" is disabled"))
		}
	}
	return notes
}

// presetsOf says what presets stand for, once for all rules in which they stand for the same.
func presetsOf(file string, set *rules.Set) (notes []finding) {
	var texts []string
	of := make(map[string][]string)
	for _, rule := range set.Rules() {
		if fields := rule.Preset(); len(fields) > 0 {
			text := strings.Join(fields, ", ")
			if of[text] == nil {
				texts = append(texts, text)
			}
			of[text] = append(of[text], rule.Name())
		}
	}
	for _, text := range texts {
		names := of[text]
		if more := len(names) - maxKeysNoted; more > 0 {
			names = append(names[:maxKeysNoted:maxKeysNoted], fmt.Sprintf("%d more", more))
		}
		notes = append(notes, note(file, "the preset of "+strings.Join(names, ", ")+" stands for "+text))
	}
	return notes
}

// learnedOf says what the budgets of rules with learned costs may be exceeded by.
func learnedOf(file string, set *rules.Set) (notes []finding) {
	for _, rule := range set.Rules() {
		if rule.Learns() {
			notes = append(notes, note(file, "the cost of "+rule.Name()+" is learned: where costs rise, the requests "+
				"under way may exceed the limit, each by cost.max less its estimate; a concurrency limit bounds them"))
		}
	}
	return notes
}

// longInRedis is the time in Redis of the largest call of several small decisions.
const longInRedis = 200 * time.Microsecond

// slowOf states the time of a decision in Redis if it is long for others that wait.
func slowOf(file string, set *rules.Set) []finding {
	took := set.RedisTime()
	if took <= longInRedis {
		return nil
	}
	return []finding{note(file, fmt.Sprintf("a request that meets the most limits takes about %.1f ms of Redis, where "+
		"they are counted there; other clients of Redis wait meanwhile", took.Seconds()*1000))}
}

// ceilingsOf says what one node passes where a ceiling is of more than the limit: two windows can meet.
func ceilingsOf(file string, set *rules.Set) (notes []finding) {
	for _, rule := range set.Rules() {
		for _, limit := range rule.Limits() {
			factor := rule.LocalCeiling()
			most := layers.Terms{Ceiling: factor}.AtOnce(limit)
			if factor == 0 || float64(most) <= math.Ceil(factor*float64(limit.Most())) {
				continue
			}
			notes = append(notes, note(file, fmt.Sprintf("rule %s: with local_ceiling %v of %s one node passes at "+
				"most %d at once, since two windows can meet", rule.Name(), factor, limit, most)))
		}
	}
	return notes
}

// filteredOf is the number of rules that are evaluated one by one, and what that costs: see rules.Set.Filtered.
func filteredOf(set *rules.Set) string {
	all, everywhere, work := set.Filtered()
	if all == 0 {
		return ""
	}
	text := fmt.Sprintf("\n%s with regex, any or not, which are evaluated one by one: %d for every request",
		program.Count(all, "rule"), everywhere)
	if work > 0 {
		text += fmt.Sprintf("\nregular expressions cost one request at most %d steps times bytes, about %.2g ms "+
			"(%d allowed)", work, float64(work)/bounds.WorkPerMillisecond, bounds.Work)
	}
	return text
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
		text += "\nservice " + s.Name + " at " + strings.Join(addresses, ", ") + concurrencyOf(s)
	}
	return text
}

// concurrencyOf says how the requests in progress at a service are limited.
func concurrencyOf(s *rules.Service) string {
	c := s.Concurrency
	if c == nil {
		return ""
	}
	signal := "latency"
	if c.Algorithm == adaptive.AIMD {
		signal = "refusals and errors"
	}
	text := fmt.Sprintf(", %d to %d requests at once by %s", c.Min, c.Max, signal)
	if c.Queue.Most > 0 {
		text += fmt.Sprintf(", %d wait for %v", c.Queue.Most, c.Queue.For)
	}
	for i, class := range c.Classes {
		text += fmt.Sprintf("%s %s leaves %.0f%%", []string{", class", ","}[min(i, 1)], class.Name, 100*class.Reserve)
	}
	return text
}

// inspect returns the findings of one file, directory or URL, and its rules; nil with mistakes. The data of a single
// file is read only if asked for.
func inspect(ctx context.Context, s *System, name string, data bool) (findings []finding, file *rules.File,
	set *rules.Set) {
	if engine.IsURL(name) || engine.IsDir(name) {
		return inspectAll(ctx, s, name)
	}
	shown, text, err := engine.ReadFile(s.In, name)
	if err != nil {
		return mistakes(shown, err), nil, nil
	}
	options := engine.ListOptions(name)
	set, warnings, err := rules.Lint(shown, text, options...)
	if err == nil && data {
		file, err = rules.Parse(shown, text, options...)
	}
	if err != nil {
		return mistakes(shown, err), nil, nil
	}
	for i := range warnings {
		f := found("warning", &warnings[i])
		f.text = "warning: " + f.text
		findings = append(findings, f)
	}
	for _, text := range []string{engine.CountIfNote(set), engine.GeoNote(set), keysNote(set)} {
		if text != "" {
			findings = append(findings, note(shown, text))
		}
	}
	return findings, file, set
}

// inspectAll reads a directory or a URL as weir serve does. A directory gets the warnings of each
// file, and then the warnings of all files together.
func inspectAll(ctx context.Context, s *System, name string) (findings []finding, all *rules.File, set *rules.Set) {
	all, err := engine.ReadOnce(ctx, name)
	if err != nil {
		return mistakes(name, err), nil, nil
	}
	files, _ := filesource.Files(name) // none at a URL
	for _, file := range files {
		warned, _, _ := inspect(ctx, s, file, false)
		findings = append(findings, warned...)
	}
	set, _ = rules.Compile(all) // mistakes are findings already
	return append(findings, between(name, all, findings)...), all, set
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

// numbers matches the index of a rule among all files, which no file shows.
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

// note is a note on a file.
func note(file, message string) finding {
	return finding{Severity: "note", File: file, Message: message, text: "note: " + file + ": " + message}
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
