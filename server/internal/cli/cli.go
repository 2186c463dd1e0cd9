// Package cli is the command weir: the wiring of rules, store, gate and front ends, and the
// only package that imports more than one of each. It decides no requests.
//
// Commands touch their System only, so that a test can run them in its own process.
// Promises of the program are tested on the built program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/command"
)

// A System is the environment of a program.
type System struct {
	Args    []string // the program's name, then its arguments
	Environ []string // NAME=value
	In      io.Reader
	Out     io.Writer // results
	Err     io.Writer // errors and logs
}

// Run runs the command and returns the exit code. For serve it returns after a signal.
func Run(system *System) (code int) {
	root := newRoot(system)
	root.SetArgs(system.arguments())
	err := root.Execute()
	system.report(err)
	return codeOf(err)
}

// report prints an error.
func (s *System) report(err error) {
	var mistakes *rules.Error
	switch text := message(err); {
	case errors.As(err, &mistakes): // begins with file:line:column, which editors find
		fmt.Fprintln(s.Err, mistakes)
	case text != "":
		fmt.Fprintln(s.Err, "weir: "+text)
	}
}

// warn prints a warning, for commands without a log.
func (s *System) warn(text string) { fmt.Fprintln(s.Err, "weir: warning: "+text) }

// message is the printed text of an error, without the name of the package that returned it.
func message(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(*program.Exit); ok && e.Err == nil {
		return ""
	}
	return engine.Message(err)
}

// ratelimitName is the name of envoyproxy/ratelimit's program, as which weir is that program.
const ratelimitName = "ratelimit"

// arguments are those of the command: started as ratelimit, the program is weir ratelimit.
func (s *System) arguments() []string {
	if strings.TrimSuffix(filepath.Base(s.Args[0]), ".exe") == ratelimitName {
		return append([]string{ratelimitName}, s.Args[1:]...)
	}
	return s.Args[1:]
}

func newRoot(system *System) *cobra.Command {
	var shows bool // the version
	root := &cobra.Command{
		Use:   "weir",
		Short: "Distributed rate limiter: server, gateway and command-line tools",
		Long: `weir limits the rate of requests, by rules in a YAML file.

It answers other programs (HTTP API, Redis protocol, forward authentication for nginx and
others), or runs as a gateway in front of a service and forwards the requests that the rules
allow. Limits are counted in this process, or in a Redis that several processes share.`,
		Example: `  # A gateway in front of a built-in service: each client may send 5 requests in 10 seconds.
  weir serve --limit "5/10s" --upstream demo

  # The same in front of your own service, with a rule file.
  weir serve --config weir.yaml --upstream http://127.0.0.1:3000

  # Check the file, and show how it would decide a request.
  weir check weir.yaml
  weir explain --config weir.yaml -X POST https://api.example.com/login`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shows {
				return printVersion(cmd)
			}
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// Not by cobra's own flag: SetVersionTemplate executes a template, which doubles the binary.
	root.Flags().BoolVarP(&shows, "version", "v", false, "version for weir")
	root.SetIn(system.In)
	root.SetOut(system.Out)
	root.SetErr(system.Err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	host := newHost(system)
	root.AddCommand(newServe(system), newRatelimit(system), newCheck(system), command.Test(host),
		command.Backtest(host), command.Import(host), newExplain(system), newVerifyProxy(system), newSchema(),
		newHealth(system), newRules(system), newOverride(system), newBlock(system), newAllow(system),
		newKeys(system), newBans(system), newAudit(system), newStats(system), newVersion(),
		newCompletion(), newMan())
	for _, one := range root.Commands() {
		one.DisableFlagsInUseLine = true
	}
	return root
}

// unknownCommand reports arguments that name no subcommand.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, command := range cmd.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	if meant := nearest.Of(args[0], names); meant != "" {
		return program.Usagef("unknown command %.80q; did you mean %s?", args[0], meant)
	}
	return program.Usagef("unknown command %.80q; allowed: %s", args[0], strings.Join(names, ", "))
}

// self is the command that the user typed, for suggestions. The binary that go run built is
// deleted afterwards, so its path would not work.
func (s *System) self() string {
	if strings.Contains(filepath.ToSlash(s.Args[0]), "/go-build") {
		return goRun
	}
	return s.Args[0]
}

// newHost is this program for the commands that work without a server.
func newHost(s *System) *command.Host {
	return &command.Host{In: s.In, Out: s.Out, Err: s.Err, Report: s.report,
		Lists: func(name string) []rules.Option {
			if engine.IsURL(name) || engine.IsDir(name) {
				return nil // File read them
			}
			return engine.ListOptions(name)
		},
		ReadFile: func(name string) (string, []byte, error) { return engine.ReadFile(s.In, name) },
		File: func(ctx context.Context, name string) (*rules.File, error) {
			if engine.IsURL(name) || engine.IsDir(name) {
				return engine.ReadOnce(ctx, name)
			}
			shown, text, err := engine.ReadFile(nil, name)
			if err != nil {
				return nil, err
			}
			return rules.Parse(shown, text, engine.ListOptions(name)...)
		},
		Settings: func(flags *pflag.FlagSet, paths ...string) command.Reader {
			f := &ruleFlags{local: true}
			f.addFields(flags, paths...)
			return func(ctx context.Context, name string, quiet bool) (*command.Setup, error) {
				f.config = name
				warn := s.warn
				if quiet {
					warn = func(string) {}
				}
				e, err := f.read(ctx, s, warn)
				if err != nil {
					return nil, err
				}
				return &command.Setup{File: e.File, Set: e.Set, Clients: e.Clients, Form: e.Form, Geo: e.Located,
					AnyMethod: e.AnyMethod, MaxKeys: e.MaxKeys}, nil
			}
		}}
}
