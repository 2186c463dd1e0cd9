package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/backtest"
	"github.com/weirproject/weir/tools/ruleimport"
)

// An importFlags are the flags of import.
type importFlags struct {
	out  string
	json bool

	verify string
	log    backtestFlags // its format and zone
}

// Import is the command that reads configurations of other limiters.
func Import(s *Host) *cobra.Command {
	var f importFlags
	command := &cobra.Command{
		Use:   "import [flags] FORMAT FILE…",
		Short: "Make rules of the configuration of another limiter",
		Long: `Read the configuration of another limiter, and print the same limits as a rule file. FORMAT is one of
` + strings.Join(ruleimport.Names(), ", ") + `.

What has no equal is listed on stderr, with its line and what to do instead, and as comments at the
top of the rule file. The file - is the standard input.

With --verify the access log of the old limiter is replayed through the imported rules, and what they
decide is compared with what it answered: 429 or 503, or nginx's $limit_req_status if --log-format has
it. That is one number for any configuration, whatever was read of it.

The exit code is 0 if everything was imported, 3 if something has no equal or more than
1 % of the requests are decided otherwise, and 2 if a file cannot
be read, or has mistakes.`,
		Example: `  weir import envoy config/ratelimit.yaml
  weir import --out imported.yaml nginx nginx.conf
  weir import --out imported.yaml --verify access.log nginx nginx.conf
  weir import --json nginx nginx.conf`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return program.Usagef(
					"name a format and a file, such as: weir import envoy ratelimit.yaml; formats: %s",
					strings.Join(ruleimport.Names(), ", "))
			}
			return importRules(cmd.Context(), s, &f, args[0], args[1:])
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.out, "out", "", "write the rules to `FILE`")
	flags.StringVar(&f.verify, "verify", "", "compare with what the access log in `FILE` says was answered")
	flags.StringVar(&f.log.logFormat, "log-format", "auto", "`FORMAT` of the log, as for weir backtest")
	flags.StringVar(&f.log.zone, "log-zone", "UTC", "time `ZONE` of times of the log that do not say theirs")
	flags.BoolVar(&f.json, "json", false, "print JSON: the rules as text, and what has no equal")
	return command
}

func importRules(ctx context.Context, s *Host, f *importFlags, format string, names []string) error {
	var texts []ruleimport.Text
	for _, name := range names {
		shown, text, err := s.ReadFile(name)
		if err != nil {
			return &program.Exit{Code: program.Usage, Err: err}
		}
		texts = append(texts, ruleimport.Text{Name: shown, Data: text})
	}
	result, err := ruleimport.Import(format, texts, s.included)
	if err != nil {
		return &program.Exit{Code: program.Usage, Err: err}
	}
	text, err := result.YAML()
	if err != nil {
		return &program.Exit{Code: program.Usage, Err: err}
	}
	if err := f.write(s, result, text); err != nil {
		return err
	}
	differs := false
	if f.verify != "" {
		if differs, err = f.compare(ctx, s, result.Rules); err != nil {
			return &program.Exit{Code: program.Usage, Err: err}
		}
	}
	if len(result.Notes) > 0 || differs {
		return &program.Exit{Code: program.Found}
	}
	return nil
}

// maxDiffering is the share of requests that may be decided otherwise: limits saw other times than the log has.
const maxDiffering = 0.01

// compare replays the log through the rules, and reports whether they decide too many requests otherwise.
func (f *importFlags) compare(ctx context.Context, s *Host, file *rules.File) (differs bool, err error) {
	c := &backtest.Config{File: file, Clients: new(clientaddr.Extractor), MaxKeys: memstore.DefaultMaxKeys, Top: 1}
	if c.Set, err = rules.Compile(file); err != nil {
		return false, err
	}
	c.Form = c.Set.PathForm()
	if c.Open, err = f.log.open(s, []string{f.verify}); err != nil {
		return false, err
	}
	format := f.log.logFormat
	byLimit := strings.Contains(format, "$limit_req_status") || strings.Contains(format, "$limit_conn_status")
	a, err := backtest.Agree(ctx, c, byLimit)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(s.Err, "verify: %d of %d requests are decided otherwise (%.2f %%): the log refuses %d, and of these "+
		"the rules %d; the rules alone refuse %d\n", a.Differs(), a.Requests,
		100*float64(a.Differs())/float64(max(1, a.Requests)), a.Refused, a.Both, a.OnlyRules)
	for i := range a.Examples {
		one := &a.Examples[i]
		fmt.Fprintf(s.Err, "verify: %s:%d: %s %s: %s by the rules\n", one.File, one.Line, one.Client,
			strconv.QuoteToGraphic(one.Target), one.New)
	}
	if a.Requests == 0 {
		return false, errors.New("--verify: no request of the log is decided, so nothing follows")
	}
	return float64(a.Differs()) > maxDiffering*float64(a.Requests), nil
}

// write writes the rules, and lists settings without an equal.
func (f *importFlags) write(s *Host, result *ruleimport.Result, text string) error {
	if f.out != "" {
		if err := os.WriteFile(f.out, []byte(text), 0o644); err != nil {
			return err
		}
		text = ""
	}
	if f.json {
		return program.PrintJSON(s.Out, struct {
			Rules   int               `json:"rules"`
			Text    string            `json:"text,omitempty"`
			NoEqual []ruleimport.Note `json:"no_equal"`
			Omitted int               `json:"omitted,omitempty"`
		}{len(result.Rules.Rules), text, result.Notes, result.Omitted})
	}
	result.List(s.Err)
	_, err := fmt.Fprint(s.Out, text)
	return err
}

// maxIncluded is the number of files that a pattern may name.
const maxIncluded = 1000

// included reads the files that a directive includes, relative to the file that it stands in.
func (s *Host) included(from, pattern string) ([]ruleimport.Text, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(names) > maxIncluded {
		return nil, fmt.Errorf("%.80q names %d files; at most %d", pattern, len(names), maxIncluded)
	}
	if len(names) == 0 && !strings.ContainsAny(pattern, "*?[") {
		return nil, fmt.Errorf("no such file: %s", pattern)
	}
	var texts []ruleimport.Text
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return nil, errors.Join(err, fmt.Errorf("%s is not a file: %w", name, fs.ErrInvalid))
		}
		_, text, err := s.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, ruleimport.Text{Name: name, Data: text})
	}
	return texts, nil
}
