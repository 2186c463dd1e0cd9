package cli

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/proxycheck"
)

// A verifyFlags are the flags of verify-proxy.
type verifyFlags struct {
	config  string
	header  []string
	keys    []string
	timeout time.Duration
	check   proxycheck.Config
}

func newVerifyProxy(s *System) *cobra.Command {
	var f verifyFlags
	command := &cobra.Command{
		Use:   "verify-proxy [flags] URL",
		Short: "Attack your own proxy, and show which requests pass beyond the limit",
		Long: `Send requests to a proxy of yours that asks weir, and print those that it served beyond the limit.

First the plain request, by URL, --method and --header, is sent until it is refused, so choose
one with a small limit. Then it is sent some 2,300 times with one part changed: every byte
value, sizes, counts of fields and cookies, methods, spellings of the path and of the host, and
with --config the spellings of the keys of these rules. A request that is served is sent once
more while the plain one is refused; only then has it passed.

Nothing is sent to any other place than URL. What passes, the service does: use one whose
answers do no harm. A request is "served" if its status is 2xx, or that of the plain request
before the limit. --served-field names a response header of the service instead, for a proxy
that has such answers of its own.

The exit code is 0 if none passed, 1 if one passed or the run did not end, and 2 for a mistake
in the command.`,
		Example: `  weir verify-proxy http://127.0.0.1/
  weir verify-proxy --config weir.yaml --method POST https://staging.example.com/login
  weir verify-proxy --key cookie.sid --header 'Cookie: sid=victim' http://127.0.0.1/account`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("name the URL of your proxy, such as: weir verify-proxy http://127.0.0.1/")
			}
			return verifyProxy(cmd.Context(), s, &f, args[0])
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.config, "config", "c", "", "rule `FILE`, directory or https:// URL, for the keys to spell")
	flags.StringVar(&f.check.Method, "method", "GET", "`METHOD` of the plain request")
	flags.StringArrayVar(&f.header, "header", nil, "header of the plain request, as `NAME: VALUE`; repeatable")
	flags.StringArrayVar(&f.keys, "key", nil,
		"`COMPONENT` of a key to spell: cookie.NAME, query.NAME or header.NAME; repeatable")
	flags.BoolVar(&f.check.Methods, "methods", false,
		"send other methods too (default: only if no rule of --config has a method)")
	flags.StringVar(&f.check.Mark, "served-field", "", "`NAME` of a response header that only the service sends")
	flags.IntVar(&f.check.Most, "most", 200, "maximum `NUMBER` of plain requests until one is refused")
	flags.IntVar(&f.check.Workers, "workers", 4, "`NUMBER` of connections at once, 1 to 64")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "`TIME` after which the run stops")
	return command
}

// read completes the configuration by the rules.
func (f *verifyFlags) read(ctx context.Context, target string) (err error) {
	c := &f.check
	c.URL, err = url.Parse(target)
	if err != nil || c.URL.Host == "" || c.URL.Scheme != "http" && c.URL.Scheme != "https" {
		return program.Usagef("%.80q is no URL of a proxy; allowed: http://host/path and https://host/path", target)
	}
	if c.Workers < 1 || c.Workers > 64 || c.Most < 1 {
		return program.Usagef("--workers is %d and --most is %d; allowed: 1 to 64, and at least 1", c.Workers, c.Most)
	}
	if c.Method == "" {
		return program.Usagef("--method is empty; allowed: a method such as GET")
	}
	for _, line := range f.header {
		if name, _, ok := strings.Cut(line, ":"); !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			return program.Usagef("--header is %.80q; allowed: NAME: VALUE", line)
		}
	}
	c.Fields = f.header
	if f.config != "" {
		if err := f.readRules(ctx); err != nil {
			return err
		}
	}
	for _, key := range f.keys {
		c.Keys = append(c.Keys, []string{key})
		kind, name, _ := strings.Cut(key, ".")
		if name == "" || !slices.Contains([]string{"cookie", "query", "header"}, kind) {
			return program.Usagef("--key is %.80q; allowed: cookie.NAME, query.NAME, header.NAME", key)
		}
	}
	return nil
}

// readRules takes the components of keys that clients spell.
func (f *verifyFlags) readRules(ctx context.Context) error {
	setup, err := engine.Read(ctx, engine.Config{Rules: f.config, Given: localOnly})
	if err != nil {
		return err
	}
	withMethod := func(spec rules.Spec) bool { return len(spec.Match.Method) > 0 }
	f.check.Methods = f.check.Methods || !slices.ContainsFunc(setup.File.Rules, withMethod)
	for _, rule := range setup.Set.Rules() {
		var key []string
		for _, component := range rule.Components() {
			name, _, _ := strings.Cut(component, " ")
			key = append(key, name)
		}
		if !slices.ContainsFunc(f.check.Keys, func(other []string) bool { return slices.Equal(other, key) }) {
			f.check.Keys = append(f.check.Keys, key)
		}
	}
	return nil
}

func verifyProxy(ctx context.Context, s *System, f *verifyFlags, target string) error {
	if err := f.read(ctx, target); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("--timeout of %v", f.timeout))
	defer cancel()
	if bar := program.Bar(s.Err, 1, 1); bar != nil {
		f.check.Progress = func(done, all, _ int) { bar(int64(done), int64(all)) }
	}
	report, err := proxycheck.Run(ctx, f.check)
	if report.Plain > 0 {
		fmt.Fprintf(s.Out, "%d plain requests were served with status %d, then one was refused with %d.\n",
			report.Plain, report.Served, report.Refused)
	}
	for _, status := range slices.Sorted(maps.Keys(report.Statuses)) {
		text := fmt.Sprint(status, " ", http.StatusText(status))
		if status == 0 {
			text = "without an answer"
		}
		fmt.Fprintf(s.Out, "%6d  %s\n", report.Statuses[status], text)
	}
	for _, passed := range report.Passed {
		fmt.Fprintf(s.Out, "PASSED with %d: %s\n", passed.Status, passed.Name)
	}
	for _, key := range report.Left {
		fmt.Fprintf(s.Out, "not tested: the spellings of %s, whose limit was not reached with %d requests\n", key,
			f.check.Most)
	}
	if err != nil {
		return err
	}
	if passed := len(report.Passed); passed > 0 {
		return &program.Exit{Code: program.Failed,
			Err: fmt.Errorf("%d of %d requests passed beyond the limit", passed, report.Sent)}
	}
	if len(report.Left) > 0 {
		return &program.Exit{Code: program.Failed,
			Err: fmt.Errorf("the spellings of %d keys are not tested", len(report.Left))}
	}
	fmt.Fprintf(s.Out, "none of %d requests passed beyond the limit\n", report.Sent)
	return nil
}
