package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/ruletest"
)

// A testFlags are the flags of test.
type testFlags struct {
	run   string
	junit string
	json  bool
	cover bool
}

// Test is the command that runs files of tests of rules.
func Test(s *Host) *cobra.Command {
	var f testFlags
	command := &cobra.Command{
		Use:   "test [flags] FILE…",
		Short: "Test rules: requests at times, and what is expected of them",
		Long: `Run files of tests. A test sends requests to rules at times of a driven clock, and compares the
decisions with what is expected. Nothing waits, and no server or Redis is asked.

The exit code is 0 if all tests pass, 1 if one fails, and 2 if a file has mistakes, which are
reported with their lines. The file - is the standard input.`,
		Example: `  weir test login.test.yaml
  weir test --run 'burst|night' tests/*.yaml
  weir test --junit report.xml tests/*.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return program.Usagef("name a file of tests, such as: weir test login.test.yaml")
			}
			return testRules(cmd.Context(), s, &f, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.run, "run", "", "run only tests whose name matches `REGEXP`")
	flags.StringVar(&f.junit, "junit", "", "also write the results as JUnit XML to `FILE`")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.cover, "coverage", false, "name the rules and conditions that no test of a file meets, on stderr")
	return command
}

func testRules(ctx context.Context, s *Host, f *testFlags, names []string) error {
	wanted, err := regexp.Compile(f.run)
	if err != nil {
		return program.Usagef("--run is %.80q, which is no regular expression: %v", f.run, err)
	}
	report := &ruletest.Report{Files: []ruletest.FileReport{}}
	broken := false
	for _, name := range names {
		if err := testFile(ctx, s, f, name, wanted, report); err != nil {
			broken = true
			s.Report(err)
		}
	}
	if err := f.write(s, report); err != nil {
		return err
	}
	switch {
	case broken:
		return &program.Exit{Code: program.Usage}
	case report.Passed+report.Failed == 0:
		return program.Usagef("--run is %.80q, which no test's name matches", f.run)
	case report.Failed > 0:
		return &program.Exit{Code: program.Failed}
	}
	return nil
}

// write prints the report, and writes the file of --junit.
func (f *testFlags) write(s *Host, report *ruletest.Report) error {
	if f.junit != "" {
		file, err := os.Create(f.junit)
		if err != nil {
			return err
		}
		if err := errors.Join(report.JUnit(file), file.Close()); err != nil {
			return err
		}
	}
	if f.json {
		return program.PrintJSON(s.Out, report)
	}
	return report.Text(s.Out)
}

// testFile runs the tests of a file.
func testFile(ctx context.Context, s *Host, f *testFlags, name string, wanted *regexp.Regexp,
	report *ruletest.Report) error {
	shown, text, err := s.ReadFile(name)
	if err != nil {
		return err
	}
	file, err := ruletest.Parse(shown, text)
	if err != nil {
		return err
	}
	file.Cover = f.cover
	set, err := testedRules(ctx, s, file, name)
	if err != nil {
		return err
	}
	var results []*ruletest.Result
	progress := s.progress(shown)
	for i := range file.Tests {
		t := &file.Tests[i]
		if !wanted.MatchString(t.Name) {
			continue
		}
		result, err := file.Run(ctx, set, t, progress)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	if len(results) > 0 {
		report.Add(file, results)
	}
	if f.cover {
		for _, text := range file.Untested() {
			fmt.Fprintf(s.Err, "untested: %s: %s\n", shown, text)
		}
	}
	return nil
}

// testedRules are the rules in a file of tests, or the rules that it names, relative to its directory.
func testedRules(ctx context.Context, s *Host, file *ruletest.File, name string) (set *rules.Set, err error) {
	from := file.Rules
	switch {
	case from == "":
		from = name
		file.Tested, err = rules.Parse(file.Name, file.Inline(), s.Lists(name)...)
	default:
		if !strings.Contains(from, "://") && !filepath.IsAbs(from) && name != "-" {
			from = filepath.Join(filepath.Dir(name), from)
		}
		file.Tested, err = s.File(ctx, from)
	}
	if err != nil {
		return nil, err
	}
	return rules.Compile(file.Tested, s.Lists(from)...)
}

// progressEvery is the time between two lines of progress, on a terminal.
const progressEvery = 2 * time.Second

// progress reports the requests of a long test on a terminal.
func (s *Host) progress(name string) func() {
	if !program.IsTerminal(s.Err) {
		return nil
	}
	n, next := 0, time.Now().Add(progressEvery)
	return func() {
		if n++; n%1024 == 0 && time.Now().After(next) {
			fmt.Fprintf(s.Err, "%s: %d requests\n", name, n)
			next = time.Now().Add(progressEvery)
		}
	}
}
