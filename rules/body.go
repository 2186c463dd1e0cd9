package rules

import (
	"cmp"
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

// Templates of bodies are restricted so that they end and their output is bounded: they may show fields, test
// them, and range over Violated. There are no other loops (range counts to any number), no nested loops, no
// templates within templates (they can recurse), no printf (it pads to any width), and no variables besides
// those of range (they could double with each step).

// bodyFunctions are the functions that a body may call.
var bodyFunctions = []string{"json", "html", "js", "urlquery", "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge",
	"len"}

// maxCalls is the number of functions in one action: js doubles each backslash, so a chain of calls would grow
// without bound.
const maxCalls = 3

// examples are the inputs that each template is executed with: they reach all branches, and all operands that
// and and or may skip.
var examples = []Refusal{
	{Status: 429, RetryAfter: 60, Message: "Too many requests.", Violated: []string{"per-ip", "login"}, Language: "en"},
	{Violated: []string{""}},
	{},
}

var functions = template.FuncMap{"json": quoted}

// parseBody reads a template. complaint says why it is invalid.
func parseBody(text string) (t *template.Template, complaint string) {
	t, err := template.New("body").Funcs(functions).Parse(text)
	if err != nil {
		return nil, ofBody(err)
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return nil, "define and block are not allowed"
	}
	c := bodyChecker{tree: t.Tree}
	c.list(t.Root, false)
	if c.complaint == "" {
		c.complaint = tried(t)
	}
	if c.complaint != "" {
		return nil, c.complaint
	}
	probe, err := template.New("body").Funcs(functions).Parse(c.probe.String())
	if err != nil {
		return nil, ofBody(err)
	}
	return t, tried(probe)
}

// tried executes a template with the examples; complaint is the first error.
func tried(t *template.Template) (complaint string) {
	for i := range examples {
		if err := t.Execute(io.Discard, &examples[i]); err != nil {
			return ofBody(err)
		}
	}
	return ""
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

// A bodyChecker finds the first construct that a template must not have.
type bodyChecker struct {
	tree      *parse.Tree
	complaint string
	probe     strings.Builder // the same actions without their conditions
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
		c.pipe(n.Pipe)
	case *parse.IfNode:
		c.pipe(n.Pipe)
		c.list(n.List, inRange)
		c.list(n.ElseList, inRange)
	case *parse.RangeNode:
		c.loop(n, inRange)
	default:
		c.refuse(n, "%.40s is not allowed; allowed: fields, if, and range .Violated", n)
	}
}

func (c *bodyChecker) loop(n *parse.RangeNode, inRange bool) {
	pipe := n.Pipe.String()
	if inRange || pipe != ".Violated" && !strings.HasSuffix(pipe, " := .Violated") {
		c.refuse(n, "range goes only through .Violated, and not within another range")
	}
	c.probe.WriteString("{{range " + pipe + "}}")
	c.list(n.List, true)
	c.probe.WriteString("{{end}}")
	c.list(n.ElseList, inRange)
}

func (c *bodyChecker) pipe(p *parse.PipeNode) {
	if len(p.Decl) > 0 {
		c.refuse(p, "only range may make variables")
	}
	calls := 0
	c.commands(p, "", &calls)
	if calls > maxCalls {
		c.refuse(p, "%d calls of functions in one action; at most %d", calls, maxCalls)
	}
}

// commands checks the commands of an action, or of an argument of a function.
func (c *bodyChecker) commands(p *parse.PipeNode, of string, calls *int) {
	c.probe.WriteString("{{" + p.String() + "}}")
	for i, command := range p.Cmds {
		name := command.Args[0].String()
		if next := cmp.Or(of, nextOf(p, i)); isLogic(name) && next != "" && !isLogic(next) && !takesAll(next) {
			c.refuse(command, "%s cannot take what %s gives, whose type depends on its operands", next, name)
		}
		for _, arg := range command.Args {
			c.argument(arg, name, calls)
		}
	}
}

// nextOf is the function that receives a command's result in a pipeline, or "".
func nextOf(p *parse.PipeNode, i int) string {
	if i+1 == len(p.Cmds) {
		return ""
	}
	return p.Cmds[i+1].Args[0].String()
}

// isLogic reports whether a function's result has the type of one of its operands.
func isLogic(function string) bool {
	return function == "and" || function == "or" || function == "not"
}

// takesAll reports whether a function accepts every type.
func takesAll(function string) bool {
	return function == "json" || function == "html" || function == "js" || function == "urlquery"
}

func (c *bodyChecker) argument(n parse.Node, function string, calls *int) {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		*calls++
		if !slices.Contains(bodyFunctions, n.Ident) {
			c.refuse(n, "function %q; %s", n.Ident, oneOf(n.Ident, bodyFunctions))
		}
	case *parse.FieldNode:
		c.field(n, n.Ident)
	case *parse.VariableNode:
		c.variable(n)
	case *parse.ChainNode:
		c.refuse(n, "%.40s is not allowed; fields stand alone", n)
	case *parse.PipeNode:
		c.commands(n, function, calls)
	}
}

// variable accepts $ and the variables of range.
func (c *bodyChecker) variable(n *parse.VariableNode) {
	if n.Ident[0] == "$" {
		c.field(n, n.Ident[1:])
	} else if len(n.Ident) > 1 {
		c.refuse(n, "%.40s: fields have none of their own", n)
	}
}

// field checks fields that the examples do not reach, too.
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
