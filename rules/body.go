package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// What a body's template may do is little, so that it ends, and its output is bounded: it
// tells fields, asks whether they are there, and goes through Violated. There are no other
// loops (range counts to any number), none within another, no templates within templates
// (they call themselves), no printf (it pads to any width), and no variables besides those
// of range (they could double with each step).

// bodyFunctions are those that a body may call.
var bodyFunctions = []string{"json", "html", "js", "urlquery", "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len"}

// maxCalls is how many functions one action may call: js doubles each backslash, so a
// chain of it would grow without bound.
const maxCalls = 3

// examples are what each template is tried with once.
var examples = []Refusal{
	{Status: 429, RetryAfter: 60, Message: "Too many requests.", Violated: []string{"per-ip", "login"}, Language: "en"},
	{Status: 403, Message: "Forbidden."},
}

// parseBody reads a template. complaint is what is wrong with it.
func parseBody(text string) (t *template.Template, complaint string) {
	t, err := template.New("body").Funcs(template.FuncMap{"json": quoted}).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, ofBody(err)
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return nil, "define and block are not allowed"
	}
	c := bodyChecker{tree: t.Tree}
	c.list(t.Root, false)
	if c.complaint != "" {
		return nil, c.complaint
	}
	for i := range examples {
		if err := t.Execute(io.Discard, &examples[i]); err != nil {
			return nil, ofBody(err)
		}
	}
	return t, ""
}

// ofBody is the error in the words of the file: "line 2: …".
func ofBody(err error) string {
	var exec template.ExecError
	if errors.As(err, &exec) {
		err = exec.Err
	}
	text := strings.TrimPrefix(err.Error(), "template: body:")
	if text != err.Error() {
		text = "line " + text
	}
	return fmt.Sprintf("%.300s", text)
}

// quoted is a value as JSON.
func quoted(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// A bodyChecker looks for what a template must not do, and keeps the first of it.
type bodyChecker struct {
	tree      *parse.Tree
	complaint string
}

func (c *bodyChecker) refuse(n parse.Node, format string, args ...any) {
	if c.complaint == "" {
		location, _ := c.tree.ErrorContext(n)
		c.complaint = "line " + strings.TrimPrefix(location, "body:") + ": " + fmt.Sprintf(format, args...)
	}
}

func (c *bodyChecker) list(l *parse.ListNode, inRange bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		c.node(n, inRange)
	}
}

func (c *bodyChecker) node(n parse.Node, inRange bool) {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode:
	case *parse.ActionNode:
		c.pipe(n.Pipe, false)
	case *parse.IfNode:
		c.pipe(n.Pipe, false)
		c.list(n.List, inRange)
		c.list(n.ElseList, inRange)
	case *parse.RangeNode:
		if inRange || n.Pipe.String() != ".Violated" && !strings.HasSuffix(n.Pipe.String(), " := .Violated") {
			c.refuse(n, "range goes only through .Violated, and not within another range")
		}
		c.pipe(n.Pipe, true)
		c.list(n.List, true)
		c.list(n.ElseList, inRange)
	default:
		c.refuse(n, "%.40s is not allowed; what is: fields, if, and range .Violated", n)
	}
}

func (c *bodyChecker) pipe(p *parse.PipeNode, declares bool) {
	if len(p.Decl) > 0 && !declares {
		c.refuse(p, "only range may make variables")
	}
	calls := 0
	c.commands(p, &calls)
	if calls > maxCalls {
		c.refuse(p, "%d calls of functions in one action; at most %d", calls, maxCalls)
	}
}

func (c *bodyChecker) commands(p *parse.PipeNode, calls *int) {
	for _, command := range p.Cmds {
		for _, arg := range command.Args {
			c.argument(arg, calls)
		}
	}
}

func (c *bodyChecker) argument(n parse.Node, calls *int) {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		*calls++
		if !slices.Contains(bodyFunctions, n.Ident) {
			c.refuse(n, "function %q; %s", n.Ident, oneOf(n.Ident, bodyFunctions))
		}
	case *parse.FieldNode:
		c.field(n, n.Ident)
	case *parse.VariableNode:
		c.field(n, n.Ident[1:])
	case *parse.ChainNode:
		c.refuse(n, "%.40s is not allowed; fields stand alone", n)
	case *parse.PipeNode:
		c.commands(n, calls)
	}
}

// field checks also what the examples do not come to.
func (c *bodyChecker) field(n parse.Node, path []string) {
	known := bodyFields()
	if len(path) > 0 && !slices.Contains(known, path[0]) {
		c.refuse(n, "unknown field %q; %s", "."+path[0], oneOf(path[0], known))
	}
	if len(path) > 1 {
		c.refuse(n, "%.40s: fields have none of their own", n)
	}
}

func bodyFields() (names []string) {
	for field := range reflect.TypeFor[Refusal]().Fields() {
		names = append(names, field.Name)
	}
	return names
}
