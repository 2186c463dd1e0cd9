package housetest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/api-surface.txt anew")

const surfacePage = "docs/reference/api-surface.txt"

// TestPublicSurfaceIsListed compares the exported top-level names of the public packages with the page that lists them: a name
// that programs outside may use is kept for years, so a new one is a decision, seen in a review, and not an accident.
//
// After a decision: go test ./internal/housetest -run TestPublicSurfaceIsListed -update
func TestPublicSurfaceIsListed(t *testing.T) {
	got := surface(t)
	if *update {
		if err := os.WriteFile(filepath.Join(root, surfacePage), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := read(surfacePage)
	if err != nil {
		t.Fatal(err)
	}
	if got == want {
		return
	}
	before, after := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("%s does not list %q", surfacePage, line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("%s lists %q, which is gone or moved", surfacePage, line)
		}
	}
	t.Error("unexport what no program outside needs, or run this test with -update")
}

// surface lists each public package with its exported top-level names, sorted.
func surface(t *testing.T) string {
	t.Helper()
	sources, err := files(".go")
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[string][]string)
	for _, name := range sources {
		if dir := path.Dir(name); public(dir) && !strings.HasSuffix(name, "_test.go") {
			packages[dir] = append(packages[dir], name)
		}
	}
	names := 0
	var list strings.Builder
	dirs := make([]string, 0, len(packages))
	for dir := range packages {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		exported := exportedNames(t, dir, packages[dir])
		names += len(exported)
		for _, name := range exported {
			fmt.Fprintf(&list, "%s.%s\n", strings.TrimSuffix(path.Join("weir", dir), "/."), name)
		}
	}
	return fmt.Sprintf("# %d packages, %d names\n%s", len(dirs), names, list.String())
}

// public reports whether a directory holds a package with a promise to other programs. The tools are parts of the program
// weir.
func public(dir string) bool {
	for _, part := range strings.Split(dir, "/") {
		if slices.Contains([]string{"internal", "cmd", "examples", "bench", "contrib", "deploy", "testdata", "tools"}, part) {
			return false
		}
	}
	return true
}

func exportedNames(t *testing.T, dir string, sources []string) (names []string) {
	t.Helper()
	set := token.NewFileSet()
	var trees []*ast.File
	for _, name := range sources {
		tree, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	pkg, err := doc.NewFromFiles(set, trees, path.Join(module, dir))
	if err != nil {
		t.Fatal(err)
	}
	values := func(list []*doc.Value) {
		for _, value := range list {
			names = append(names, value.Names...)
		}
	}
	functions := func(list []*doc.Func) {
		for _, f := range list {
			names = append(names, f.Name)
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	functions(pkg.Funcs)
	for _, typ := range pkg.Types {
		names = append(names, typ.Name)
		values(typ.Consts)
		values(typ.Vars)
		functions(typ.Funcs)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !token.IsExported(name) })
	slices.Sort(names)
	return names
}

var goName = regexp.MustCompile("`\\*?([a-z]+)\\.([A-Z][A-Za-z]*)[`.(,{]")

// TestPagesNameWhatExists: a name such as `weir.New` in a page is a public one.
func TestPagesNameWhatExists(t *testing.T) {
	text, err := read(surfacePage)
	if err != nil {
		t.Fatal(err)
	}
	known, packages := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		name := path.Base(strings.TrimSpace(line))
		known[name] = true
		pkg, _, _ := strings.Cut(name, ".")
		packages[pkg] = true
	}
	found := 0
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		if page == "CHANGELOG.md" { // it also has names that are gone
			continue
		}
		for _, match := range goName.FindAllStringSubmatch(outsideFences(text), -1) {
			name := match[1] + "." + match[2]
			if packages[match[1]] {
				found++
			}
			if packages[match[1]] && !known[name] {
				t.Errorf("%s names %s, which no public package has", page, name)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d names were found", found)
	}
}
