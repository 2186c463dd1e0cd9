package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/nearest"

	"github.com/weirproject/weir"
)

// The exit codes, as docs/weir.md states them.
const (
	exitClean    = 0
	exitError    = 1 // something went wrong, or a file of rules has mistakes
	exitUsage    = 2 // what was given in the command line, the environment or as a setting cannot be used
	exitWarnings = 3 // weir check: nothing is wrong, but something is odd
)

// An exit ends the program with a code. err is nil where all was said already.
type exit struct {
	code int
	err  error
}

// Error is the sentence that is printed.
func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit ", e.code)
	}
	return e.err.Error()
}

// Unwrap is what went wrong.
func (e *exit) Unwrap() error { return e.err }

// usagef is a mistake in how the program was called.
func usagef(format string, values ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, values...)}
}

func codeOf(err error) int {
	var e *exit
	var input *weir.InputError
	switch {
	case err == nil:
		return exitClean
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &input):
		return exitUsage
	}
	return exitError
}

// flagError says what pflag's errors say, in one sentence, with the flag that was meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wanting *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("there is no flag -%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if meant := nearest.Of(name, flagNames(cmd.Flags())); meant != "" {
			return usagef("there is no flag --%s; did you mean --%s?", name, meant)
		}
		return usagef("there is no flag --%s; see %s --help", name, cmd.CommandPath())
	case errors.As(err, &wanting):
		_, usage := pflag.UnquoteUsage(wanting.GetFlag())
		return usagef("the flag --%s needs a value: %s", wanting.GetFlag().Name, strings.ReplaceAll(usage, "\n", " "))
	case errors.As(err, &wrong):
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), wrong.GetFlag())
	}
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

// wrongValue says what a flag takes. It never shows what a person would not want shown:
// secrets are no flags.
func wrongValue(source, value string, flag *pflag.Flag) error {
	allowed := map[string]string{
		"duration": "a time with its unit, such as 10s or 500ms",
		"bool":     "true or false",
		"int":      "a whole number",
		"int64":    "a whole number",
	}[flag.Value.Type()]
	if allowed == "" {
		allowed = flag.Value.Type()
	}
	return usagef("%s is %.80q; allowed: %s", source, value, allowed)
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// noArgs refuses arguments, with a hint where one looks like a value that lost its flag.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no argument, but was given %.80q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
}
