package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// A site is one possible change: the bytes from start to end become text.
type site struct {
	file         string
	line, column int
	start, end   int
	was, text    string
}

func (s *site) apply(source []byte) []byte {
	changed := append([]byte(nil), source[:s.start]...)
	changed = append(changed, s.text...)
	return append(changed, source[s.end:]...)
}

func (s *site) describe() string {
	clean := func(text string) string {
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
		if len(text) > 60 {
			text = text[:60] + "…"
		}
		return "`" + text + "`"
	}
	return clean(s.was) + " → " + clean(s.text)
}

// find lists every site of the files.
func find(files []string) ([]site, error) {
	var all []site
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			return nil, err
		}
		f := finder{file: file, text: text, set: set}
		ast.Inspect(tree, f.visit)
		all = append(all, f.sites...)
	}
	return all, nil
}

type finder struct {
	file  string
	text  []byte
	set   *token.FileSet
	sites []site
}

// operators are replaced by one that is wrong at a boundary, or everywhere.
var operators = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.LAND: "||", token.LOR: "&&",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.INC: "--", token.DEC: "++",
}

func (f *finder) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.BinaryExpr:
		f.operator(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		f.operator(n.TokPos, n.Tok)
	case *ast.AssignStmt:
		f.assignment(n)
	case *ast.IfStmt:
		f.replace(n.Cond, "!("+f.source(n.Cond)+")")
	case *ast.ExprStmt:
		f.replace(n, "")
	case *ast.BasicLit:
		f.number(n)
	case *ast.ReturnStmt:
		if fails(n) { // what is returned beside an error means nothing
			return false
		}
		f.results(n)
	}
	return true
}

// fails reports whether a statement returns plain values and an error.
func fails(n *ast.ReturnStmt) bool {
	for i, result := range n.Results {
		switch r := result.(type) {
		case *ast.BasicLit:
		case *ast.Ident:
			if i == len(n.Results)-1 {
				return r.Name == "err"
			}
		default:
			return false
		}
	}
	return false
}

func (f *finder) operator(pos token.Pos, op token.Token) {
	if other, ok := operators[op]; ok {
		f.add(pos, pos+token.Pos(len(op.String())), other)
	}
}

// assignment swaps += and -=, and leaves out a plain assignment.
func (f *finder) assignment(n *ast.AssignStmt) {
	f.operator(n.TokPos, n.Tok)
	if n.Tok == token.ASSIGN {
		f.replace(n, "")
	}
}

func (f *finder) number(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	if value, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
		f.replace(n, fmt.Sprint(value+1))
	}
}

// results turns each constant boolean result round.
func (f *finder) results(n *ast.ReturnStmt) {
	for _, result := range n.Results {
		name, ok := result.(*ast.Ident)
		if ok && name.Name == "true" {
			f.replace(name, "false")
		}
		if ok && name.Name == "false" {
			f.replace(name, "true")
		}
	}
}

func (f *finder) replace(n ast.Node, text string) { f.add(n.Pos(), n.End(), text) }

func (f *finder) add(from, to token.Pos, text string) {
	start, end := f.set.Position(from), f.set.Position(to)
	f.sites = append(f.sites, site{
		file: f.file, line: start.Line, column: start.Column, start: start.Offset, end: end.Offset,
		was: string(f.text[start.Offset:end.Offset]), text: text,
	})
}

func (f *finder) source(n ast.Node) string {
	return string(f.text[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}
