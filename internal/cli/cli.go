// Package cli is the command weir: the wiring of rules, store, gate and doors, and the only
// place that knows more than one of each by name. It decides nothing about requests.
//
// The commands are built by functions and given all they touch, so that a test can run
// them in its own process; but what is promised of the program is tested on the program.
package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/rules"
)

// A System is what a program has round it.
type System struct {
	Args    []string // the program's name, then its arguments
	Environ []string // NAME=value
	In      io.Reader
	Out     io.Writer // what was asked for
	Err     io.Writer // what went wrong, and logs
}

// Run runs the command and returns the exit code. It returns when the command has ended,
// which for serve is after a signal.
func Run(system *System) (code int) {
	root := newRoot(system)
	root.SetArgs(system.Args[1:])
	err := root.Execute()
	var mistakes *rules.Error
	switch text := message(err); {
	case errors.As(err, &mistakes): // begins with file:line:column, which editors find
		fmt.Fprintln(system.Err, mistakes)
	case text != "":
		fmt.Fprintln(system.Err, "weir: "+text)
	}
	return codeOf(err)
}

// message is what is printed of an error, without the name of the package that says it.
func message(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(*exit); ok && e.err == nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "weir: "), ": weir: ", ": ")
}

func newRoot(system *System) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A rate limiter: a server, a gateway and the tools round them",
		Long: `weir decides who may come now and who must come later, by rules in one YAML file.

It answers other programs (HTTP, Redis' protocol, nginx' auth_request and its kin), and it
can stand before a service and let through what its rules allow. The limits are counted in
this process, or in a Redis that several of them share.`,
		Example: `  # A gateway before a built-in service: each client may send 5 requests in 10 seconds.
  weir serve --limit "5/10s" --upstream demo

  # The same before your own service, by a file of rules.
  weir serve --config weir.yaml --upstream http://127.0.0.1:3000

  # What is wrong with the file, and what it would do to a request.
  weir check weir.yaml
  weir explain --config weir.yaml -- curl -X POST https://api.example.com/login`,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(system.In)
	root.SetOut(system.Out)
	root.SetErr(system.Err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServe(system), newCheck(system), newExplain(system), newSchema(), newHealth(system),
		newRules(system), newOverride(system), newBlock(system), newAllow(system), newKeys(system), newBans(system),
		newVersion(), newCompletion())
	for _, command := range root.Commands() {
		command.DisableFlagsInUseLine = true
	}
	return root
}

// unknownCommand is for arguments that no subcommand took.
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
		return usagef("there is no command %.80q; did you mean %s?", args[0], meant)
	}
	return usagef("there is no command %.80q; there are: %s", args[0], strings.Join(names, ", "))
}

// self is how the user called the program, to show what to type next. What go run built
// lies in a folder that is gone afterwards.
func (s *System) self() string {
	if strings.Contains(filepath.ToSlash(s.Args[0]), "/go-build") {
		return "go run ./cmd/weir"
	}
	return s.Args[0]
}
