package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/command"
)

func newSchema() *cobra.Command {
	tests := false
	schema := &cobra.Command{
		Use:   "schema [--tests]",
		Short: "Print the JSON Schema of rule files, for editors",
		Long: `Print the JSON Schema of rule files, or of files of tests, which editors use to complete and check
them. With the YAML language server, put the line of the second example at the top of the file.`,
		Example: `  weir schema > weir.schema.json
  # yaml-language-server: $schema=weir.schema.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := rules.Schema(), error(nil)
			if tests {
				text, err = command.TestSchema()
			}
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	schema.Flags().BoolVar(&tests, "tests", false, "the schema of files of tests, for weir test")
	return schema
}
