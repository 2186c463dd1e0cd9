package cli

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
)

// variable is the environment's name for a flag or a setting: WEIR_STORE_TIMEOUT for store.timeout.
func variable(name string) string {
	return "WEIR_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// lookup is a variable's value; "" if it is unset. An empty variable counts as unset, because
// container tools write variables without a value as empty ones.
func (s *System) lookup(name string) (value string) {
	for _, entry := range s.Environ {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			value = rest
		}
	}
	return value
}

// fromEnvironment sets the flags that are not in the command line.
func (s *System) fromEnvironment(flags *pflag.FlagSet, names ...string) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value := s.lookup(variable(f.Name))
		skipped := f.Name == "help" || len(names) > 0 && !slices.Contains(names, f.Name)
		if err != nil || f.Changed || value == "" || skipped {
			return
		}
		if flags.Set(f.Name, value) != nil {
			err = wrongValue(variable(f.Name), value, f)
		}
	})
	return err
}

// unknownVariables returns warnings about WEIR_ variables that weir does not read. They are no
// errors: in Kubernetes a service called weir puts WEIR_SERVICE_HOST and others into every pod.
func (s *System) unknownVariables(known []string) (warnings []string) {
	for _, entry := range s.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "WEIR_") || slices.Contains(known, name) ||
			strings.HasPrefix(name, "WEIR_SERVICE_") || strings.HasPrefix(name, "WEIR_PORT") {
			continue
		}
		warning := fmt.Sprintf("unknown environment variable %.80s", name)
		if meant := nearest.Of(name, known); meant != "" {
			warning += "; did you mean " + meant + "?"
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// minSecret is the least length of a secret in bytes: shorter ones can be guessed.
const minSecret = 16

// secret reads a secret from the file that a setting or a flag names, or from a variable; "" if neither is given. A
// flag with the secret itself could be read by every user of the machine.
func (s *System) secret(from, file string, warn func(string)) (string, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(from, serverSection), "--")
	name = name[:len(name)-len("-file")]
	value, source := s.lookup(variable(name)), variable(name)
	if file != "" {
		if value != "" {
			return "", program.Usagef("both %s and %s are given; leave one out", from, source)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		value = strings.TrimRight(string(text), "\r\n")
		source = "the " + strings.NewReplacer(".", " ", "_", " ").Replace(name) + " in " + file
		if info, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			warn(fmt.Sprintf("%s can be read by other users: chmod 600 %s", file, file))
		}
	}
	if (value != "" || file != "") && len(value) < minSecret {
		return "", program.Usagef("%s has %d bytes; allowed: %d or more, for example from openssl rand -hex 32",
			source, len(value), minSecret)
	}
	return value, nil
}

// knownVariables are the variables of flags, of settings with their secrets, and of other commands.
func knownVariables() []string {
	known := []string{"WEIR_CONFIG", "WEIR_LIMIT", "WEIR_OVERLAY", "WEIR_SERVER", "WEIR_SERVER_CA", "WEIR_SERVER_CERT",
		"WEIR_SERVER_KEY", "WEIR_SERVER_TIMEOUT"}
	for _, setting := range rules.Settings() {
		known = append(known, variable(setting.Path))
		if setting.Secret {
			known = append(known, variable(strings.TrimSuffix(setting.Path, "_file")))
		}
	}
	return known
}
