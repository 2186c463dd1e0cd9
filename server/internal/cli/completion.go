package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/program"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print a shell completion script",
		Example: `  # bash: in this shell, or in all that follow
  source <(weir completion bash)
  weir completion bash > ~/.local/share/bash-completion/completions/weir

  # zsh, fish, PowerShell
  weir completion zsh > "${fpath[1]}/_weir"
  weir completion fish > ~/.config/fish/completions/weir.fish
  weir completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("name one shell: weir completion %s", strings.Join(shells, "|"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return program.Usagef("the shell is %.80q; allowed: %s", args[0], strings.Join(shells, ", "))
		},
	}
}
