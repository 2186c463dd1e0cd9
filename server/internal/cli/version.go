package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, the source revision, and the version of Go.",
		Example: "  weir version",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s\n", version())
	return err
}

// released is the version of a release, which the linker sets.
var released string

// number is the version, such as "v0.2.0", or "(devel)" if it is unknown.
func number() string {
	if released != "" {
		return "v" + released
	}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "(devel)"
}

// version is the whole version, such as "v0.2.0 (revision 1a2b3c4d5e6f, go1.26.0 linux/amd64)".
func version() string {
	revision, dirty := "", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = "revision " + setting.Value[:min(12, len(setting.Value))]
			case setting.Key == "vcs.modified" && setting.Value == "true":
				dirty = " with changes"
			}
		}
	}
	if revision != "" {
		revision += dirty + ", "
	}
	return fmt.Sprintf("%s (%s%s%s %s/%s)", number(), smallness, revision,
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
