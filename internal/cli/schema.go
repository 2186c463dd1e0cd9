package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirproject/weir/rules"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rule files, for editors",
		Long: `Print the JSON Schema of rule files, which editors use to complete and check them. With the
YAML language server, put the line of the second example at the top of the file.`,
		Example: `  weir schema > weir.schema.json
  # yaml-language-server: $schema=weir.schema.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(rules.Schema())
			return err
		},
	}
}
