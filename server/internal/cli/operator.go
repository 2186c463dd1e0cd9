package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
	"github.com/weirproject/weir/server/internal/web"
)

// An operator is a command that uses the admin API of a running server, with its flags.
type operator struct {
	serverFlags
	json, yes, force, forget, dry bool
	check                         bool
	why, rule, by, lasts, node    string
	reverts                       string
	values, limits                []string
	revision                      int64
	keys, most                    int
	last, watch                   time.Duration

	system *System
	server *serverClient
	ctx    context.Context
	cancel context.CancelFunc

	started context.Context // of the whole command; ctx has a timeout
}

// An operatorCommand is an entry of the table of operators' commands.
type operatorCommand struct {
	use, short, long, example string
	args                      cobra.PositionalArgs // nil: none
	// The names of its flags, and their usage if it differs from operatorFlags'.
	flags [][2]string
	run   func(o *operator, args []string) error
}

// operatorVariables are the flags that operators' commands read from the environment too.
var operatorVariables = []string{"server", "server-ca", "server-cert", "server-key", "server-timeout", "token-file"}

// command makes the command of an entry.
func (s *System) command(c *operatorCommand) *cobra.Command {
	o := &operator{system: s}
	command := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: c.args,
		RunE: func(cmd *cobra.Command, args []string) error { return o.operate(cmd, args, c.run) }}
	if c.args == nil {
		command.Args = noArgs
	}
	flags := command.Flags()
	o.serverFlags.add(flags)
	flags.StringVar(&o.tokenFile, "token-file", "",
		"`FILE` with the token of an operator (or WEIR_TOKEN, or WEIR_ADMIN_TOKEN)")
	flags.BoolVar(&o.json, "json", false, "print the JSON answer of the server")
	for _, flag := range c.flags {
		o.addFlag(flags, flag[0], flag[1])
	}
	return command
}

// operate runs the command with a client of the server.
func (o *operator) operate(cmd *cobra.Command, args []string, run func(*operator, []string) error) error {
	s := o.system
	if err := s.fromEnvironment(cmd.Flags(), operatorVariables...); err != nil {
		return err
	}
	if err := o.connect(cmd.Context()); err != nil {
		return err
	}
	defer func() { o.cancel() }() // again replaces it
	return run(o, args)
}

// connect makes the client of the server, with the operator's token.
func (o *operator) connect(ctx context.Context) (err error) {
	if o.server, err = o.client(o.system); err != nil {
		return err
	}
	if o.server.token, err = o.system.operatorToken(o.tokenFile); err != nil {
		return err
	}
	o.started = ctx
	o.ctx, o.cancel = context.WithTimeout(ctx, o.timeout)
	return nil
}

// again begins the timeout anew.
func (o *operator) again() {
	o.cancel()
	o.ctx, o.cancel = context.WithTimeout(o.started, o.timeout)
}

// operatorToken is the token of the operator. In the environment of a server it is the first
// admin token, without its name.
func (s *System) operatorToken(file string) (string, error) {
	flag := "--token-file"
	if file == "" && s.lookup("WEIR_TOKEN") == "" {
		flag = "--admin-token-file"
	}
	text, err := s.secret(flag, file, s.warn)
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if _, secret, named := strings.Cut(first, ":"); named {
		first = secret
	}
	return strings.TrimSpace(first), err
}

// send sends a request to the admin API, and decodes the answer. text is the whole answer.
func (o *operator) send(r *serverRequest, into any) (text []byte, err error) {
	below := *r
	below.path = admin.Prefix + r.path
	response, text, err := o.server.send(o.ctx, &below)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return text, json.Unmarshal(text, into)
	}
	p := new(web.Problem)
	if json.Unmarshal(text, p) != nil || p.Detail == "" {
		p.Detail = fmt.Sprintf("the server answered %s; is it weir, and of this version?", response.Status)
	}
	if p.Status = response.StatusCode; p.Status == http.StatusBadRequest {
		return nil, &program.Exit{Code: program.Usage, Err: p}
	}
	return nil, p
}

// isStatus reports whether the error is an answer with this status.
func isStatus(err error, status int) bool {
	var p *web.Problem
	return errors.As(err, &p) && p.Status == status
}

// show sends a request, and prints the answer as JSON or as a table.
func show[T any](o *operator, r *serverRequest, table func(w io.Writer, answer *T)) error {
	var answer T
	text, err := o.send(r, &answer)
	if err != nil {
		return err
	}
	return o.print(text, func(w io.Writer) { table(w, &answer) })
}

// print prints an answer as JSON or as a table.
func (o *operator) print(text []byte, table func(io.Writer)) error {
	if o.json {
		_, err := o.system.Out.Write(text)
		return err
	}
	out := tabwriter.NewWriter(o.system.Out, 0, 8, 2, ' ', 0)
	table(out)
	return out.Flush()
}

// row prints the cells of a row of a table. Empty texts and zeros are dashes.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if texts[i] = fmt.Sprint(cell); cell == "" || cell == int64(0) {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// get is a request that reads.
func get(path string) *serverRequest { return &serverRequest{method: http.MethodGet, path: path} }

// query is the query of a write: its reason, and other parameters by turns name and value.
func (o *operator) query(pairs ...string) url.Values {
	query := url.Values{}
	if o.why != "" {
		query.Set("why", o.why)
	}
	for i := 0; i < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return query
}

// input reads a file or the standard input.
func (o *operator) input(args []string) ([]byte, error) {
	in := o.system.In
	if len(args) > 0 && args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, rules.MaxFile+1))
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = program.Usagef("the input is empty; name a file, or write to the standard input")
	}
	return text, err
}

// argsBetween checks the number of arguments.
func argsBetween(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return program.Usagef("%[1]s takes %[2]s, but was given %[3]d arguments; see %[1]s --help",
				cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// group is a command that only has subcommands.
func (s *System) group(use, short, long, example string, commands []operatorCommand) *cobra.Command {
	var list []*cobra.Command
	for i := range commands {
		list = append(list, s.command(&commands[i]))
	}
	return groupOf(use, short, long, example, list...)
}

func groupOf(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use:     use,
		Short:   short,
		Long:    long,
		Example: example,
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	command.AddCommand(commands...)
	for _, one := range commands {
		one.DisableFlagsInUseLine = true
	}
	return command
}
