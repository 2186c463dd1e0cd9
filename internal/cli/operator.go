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
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/server/admin"
	"github.com/weirproject/weir/rules"
)

// An operatorFlags are the flags of all commands that use the admin API.
type operatorFlags struct {
	serverFlags
	json bool
	why  string
	yes  bool
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	f.serverFlags.add(flags)
	flags.StringVar(&f.tokenFile, "token-file", "",
		"`FILE` with the token of an operator (or WEIR_TOKEN, or WEIR_ADMIN_TOKEN)")
	flags.BoolVar(&f.json, "json", false, "print the JSON answer of the server")
}

// writing adds the flags of commands that change something.
func (f *operatorFlags) writing(flags *pflag.FlagSet) {
	flags.StringVar(&f.why, "why", "", "`REASON` of the change, for the history")
}

// An operator is a client of the admin API.
type operator struct {
	*operatorFlags
	system *System
	server *serverClient
	token  string
	ctx    context.Context
	cancel context.CancelFunc

	started context.Context // of the whole command; ctx has a timeout
}

// operatorVariables are the flags that operators' commands read from the environment too.
var operatorVariables = []string{"server", "server-ca", "server-cert", "server-key", "server-timeout", "token-file"}

// operate wraps run as the RunE of a command, with a client of the server.
func (s *System) operate(f *operatorFlags, run func(o *operator, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := s.fromEnvironment(cmd.Flags(), operatorVariables...); err != nil {
			return err
		}
		o := &operator{operatorFlags: f, system: s, started: cmd.Context()}
		var err error
		if o.server, err = f.client(s); err != nil {
			return err
		}
		if o.token, err = s.operatorToken(f.tokenFile); err != nil {
			return err
		}
		o.ctx, o.cancel = context.WithTimeout(cmd.Context(), f.timeout)
		defer func() { o.cancel() }() // edit replaces it
		return run(o, args)
	}
}

// operatorToken is the token of the operator. In the environment of a server it is the first
// admin token, without its name.
func (s *System) operatorToken(file string) (string, error) {
	flag := "token-file"
	if file == "" && s.lookup("WEIR_TOKEN") == "" {
		flag = "admin-token-file"
	}
	text, err := s.secret(flag, file, func(text string) { warnTo(s.Err, text) })
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if _, secret, named := strings.Cut(first, ":"); named {
		first = secret
	}
	return strings.TrimSpace(first), err
}

// An adminRequest is one request to the admin API.
type adminRequest struct {
	method, path string
	query        url.Values
	kind         string // of the body
	body         []byte
	seen         *int64 // revision for If-Match; 0: the object must not exist; nil: no condition
}

// A refusedError is a problem that the server answered.
type refusedError struct {
	status  int
	Detail  string
	Current int64
}

// Error is the server's sentence.
func (e *refusedError) Error() string { return e.Detail }

// send sends a request, and decodes the answer. text is the whole answer.
func (o *operator) send(a adminRequest, into any) (text []byte, err error) {
	target := o.server.base + admin.Prefix + a.path
	if len(a.query) > 0 {
		target += "?" + a.query.Encode()
	}
	request, err := http.NewRequestWithContext(o.ctx, a.method, target, bytes.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	if a.kind != "" {
		request.Header.Set("Content-Type", a.kind)
	}
	if o.token != "" {
		request.Header.Set("Authorization", "Bearer "+o.token)
	}
	switch {
	case a.seen != nil && *a.seen > 0:
		request.Header.Set("If-Match", strconv.Quote(strconv.FormatInt(*a.seen, 10)))
	case a.seen != nil:
		request.Header.Set("If-None-Match", "*")
	}
	response, err := o.server.do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(response.Body, maxAdminAnswer)); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusedBy(response, text)
	}
	return text, json.Unmarshal(text, into)
}

// maxAdminAnswer is the limit of an answer in bytes: all rules of the largest ledger.
const maxAdminAnswer = 64 << 20

func refusedBy(response *http.Response, text []byte) error {
	e := &refusedError{status: response.StatusCode}
	if json.Unmarshal(text, e) != nil || e.Detail == "" {
		e.Detail = fmt.Sprintf("the server answered %s; is it weir, and of this version?", response.Status)
	}
	if e.status == http.StatusBadRequest {
		return &exit{exitUsage, e}
	}
	return e
}

// isStatus reports whether the error is an answer with this status.
func isStatus(err error, status int) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.status == status
}

// print prints the answer as JSON or as a table.
func (o *operator) print(text []byte, table func(io.Writer)) error {
	if o.json {
		_, err := o.system.Out.Write(text)
		return err
	}
	out := tabwriter.NewWriter(o.system.Out, 0, 8, 2, ' ', 0)
	table(out)
	return out.Flush()
}

// reason is the query of a write, with its reason.
func (o *operator) reason() url.Values {
	query := url.Values{}
	if o.why != "" {
		query.Set("why", o.why)
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
		err = usagef("the input is empty; name a file, or write to the standard input")
	}
	return text, err
}

// argsBetween checks the number of arguments.
func argsBetween(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%[1]s takes %[2]s, but was given %[3]d arguments; see %[1]s --help",
				cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// group is a command that only has subcommands.
func group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
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
