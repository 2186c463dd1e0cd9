package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/nearest"
)

// The exit codes, as docs/reference/weir.md states them.
const (
	exitClean    = 0
	exitError    = 1 // a failure, or a rule file with mistakes
	exitUsage    = 2 // a flag, variable or setting has a wrong value
	exitWarnings = 3 // weir check: no mistakes, but warnings
	exitAlert    = 3 // weir stats --check: something needs attention
	exitRefused  = 3 // weir backtest: more would be refused than --max-refused
)

// An exit ends the program with a code. err is nil if everything was printed already.
type exit struct {
	code int
	err  error
}

// Error is the printed sentence.
func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit ", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exit) Unwrap() error { return e.err }

// usagef returns an error in the use of the command line.
func usagef(format string, values ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, values...)}
}

func codeOf(err error) int {
	var e *exit
	var input *weir.InputError
	var config *engine.ConfigError
	switch {
	case err == nil:
		return exitClean
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &input), errors.As(err, &config):
		return exitUsage
	}
	return exitError
}

// flagError turns pflag's errors into one sentence that suggests the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wanting *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("unknown flag -%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if text := moved(cmd.Flags(), name); text != "" {
			return usagef("%s", text)
		}
		if meant := nearest.Of(name, flagNames(cmd.Flags())); meant != "" {
			return usagef("unknown flag --%s; did you mean --%s?", name, meant)
		}
		return usagef("unknown flag --%s; see %s --help", name, cmd.CommandPath())
	case errors.As(err, &wanting):
		_, usage := pflag.UnquoteUsage(wanting.GetFlag())
		return usagef("flag --%s needs a value: %s", wanting.GetFlag().Name, strings.ReplaceAll(usage, "\n", " "))
	case errors.As(err, &wrong):
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), wrong.GetFlag())
	}
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

// wrongValue names the values that a flag allows. The given value is no secret: secrets are
// never flags.
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

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%[1]s takes no argument, but was given %.80[2]q; see %[1]s --help", cmd.CommandPath(), args[0])
}
