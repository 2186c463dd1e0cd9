package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/program"
)

func newMan() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "man [--dir DIRECTORY] [COMMAND…]",
		Short: "Print a manual page",
		Long: `Print the manual page of a command, which has the text of its --help, for man(1). With --dir
the pages of all commands are written to a directory, such as weir.1 and weir-serve.1.`,
		Example: `  weir man serve | man -l -
  weir man --dir man1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir != "" {
				return writePages(cmd.Root(), dir)
			}
			shown, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return program.Usagef("%.80q is no command; weir --help lists them", strings.Join(args, " "))
			}
			return writePage(cmd.OutOrStdout(), shown)
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "`DIRECTORY` for the pages of all commands; it is made if necessary")
	return command
}

// writePages writes the pages of a command and of the commands below it.
func writePages(command *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var page strings.Builder
	_ = writePage(&page, command) // a strings.Builder has no errors
	if err := os.WriteFile(filepath.Join(dir, pageOf(command)+".1"), []byte(page.String()), 0o644); err != nil {
		return err
	}
	for _, below := range command.Commands() {
		if err := writePages(below, dir); err != nil {
			return err
		}
	}
	return nil
}

// pageOf is the name of a command's page, such as weir-rules-set.
func pageOf(command *cobra.Command) string {
	return strings.ReplaceAll(command.CommandPath(), " ", "-")
}

// writePage writes the page of a command, as man(7) has it.
func writePage(w io.Writer, command *cobra.Command) error {
	var b strings.Builder
	name := pageOf(command)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"weir %s\" \"User Commands\"\n", roff(strings.ToUpper(name)), roff(number()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(command.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(command.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	text := command.Long
	if text == "" {
		text = command.Short + "."
	}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		writeParagraph(&b, paragraph)
	}
	writeCommands(&b, command)
	writeOptions(&b, command.NonInheritedFlags())
	if command.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(command.Example))
	}
	if command.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageOf(command.Parent())))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeParagraph fills the lines of a paragraph, unless it has columns: then a line begins with a space.
func writeParagraph(b *strings.Builder, text string) {
	if strings.Contains("\n"+text, "\n ") {
		fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(text))
		return
	}
	fmt.Fprintf(b, ".PP\n%s\n", roff(text))
}

func writeCommands(b *strings.Builder, command *cobra.Command) {
	if !command.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, below := range command.Commands() {
		fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(pageOf(below)), roff(below.Short))
	}
}

func writeOptions(b *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasFlags() {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	flags.VisitAll(func(f *pflag.Flag) {
		value, about := pflag.UnquoteUsage(f)
		names := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + names
		}
		if value != "" {
			names += ` \fI` + roff(value) + `\fR`
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", names, roff(about))
	})
}

// roff escapes what troff would interpret: a backslash, a hyphen, which would become another character, and a dot or an
// apostrophe at the beginning of a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}
