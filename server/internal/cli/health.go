package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func newHealth(s *System) *cobra.Command {
	var server serverFlags
	command := &cobra.Command{
		Use:   "health [--server URL]",
		Short: "Check whether a running server is ready (exit code 0 or 1)",
		Long: `Request /readyz of a running server. The exit code is 0 if it is ready and 1 if not, as
container health checks expect. The default of --server is the address in WEIR_HTTP, or else
http://127.0.0.1:8080.`,
		Example: `  weir health
  weir health --server http://127.0.0.1:8080
  weir health --server unix:/run/weir/http.sock`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			return health(cmd.Context(), s, &server)
		},
	}
	server.add(command.Flags())
	return command
}

func health(ctx context.Context, s *System, f *serverFlags) error {
	server, err := f.client(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	answer, body, err := server.send(ctx, &serverRequest{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	text := strings.TrimSpace(string(body))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", answer.Status, text)
	}
	fmt.Fprintln(s.Out, text)
	return nil
}
