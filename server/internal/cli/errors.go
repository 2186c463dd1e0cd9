package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/program"
)

func codeOf(err error) int {
	var e *program.Exit
	var input *weir.InputError
	var config *engine.ConfigError
	switch {
	case err == nil:
		return program.Clean
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &input), errors.As(err, &config):
		return program.Usage
	}
	return program.Failed
}

// flagError turns pflag's errors into one sentence that suggests the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wanting *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return program.Usagef("unknown flag -%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if text := moved(cmd.Flags(), name); text != "" {
			return program.Usagef("%s", text)
		}
		if meant := nearest.Of(name, flagNames(cmd.Flags())); meant != "" {
			return program.Usagef("unknown flag --%s; did you mean --%s?", name, meant)
		}
		return program.Usagef("unknown flag --%s; see %s --help", name, cmd.CommandPath())
	case errors.As(err, &wanting):
		_, usage := pflag.UnquoteUsage(wanting.GetFlag())
		return program.Usagef(
			"flag --%s needs a value: %s", wanting.GetFlag().Name, strings.ReplaceAll(usage, "\n", " "))
	case errors.As(err, &wrong):
		return wrongValue("--"+wrong.GetFlag().Name, wrong.GetValue(), wrong.GetFlag())
	}
	return program.Usagef("%v; see %s --help", err, cmd.CommandPath())
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
	return program.Usagef("%s is %.80q; allowed: %s", source, value, allowed)
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
	return program.Usagef(
		"%[1]s takes no argument, but was given %.80[2]q; see %[1]s --help", cmd.CommandPath(), args[0])
}
