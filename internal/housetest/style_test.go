package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.Doc) < 20 {
			t.Errorf("%s has no package comment: a reader starts there", p.ImportPath)
		}
	}
}

// vague names say that nobody decided what belongs in a package.
var vague = []string{"util", "utils", "common", "manager", "helper", "helpers", "misc", "shared"}

func TestPackagesHaveNamesOfTheirOwn(t *testing.T) {
	standard := make(map[string]bool)
	for name := range strings.Lines(string(goTool(t, "list", "std"))) {
		if name = strings.TrimSpace(name); !within(name, "internal", "vendor") && !strings.Contains(name, "/internal/") {
			standard[path.Base(name)] = true
		}
	}
	for _, p := range packages(t) {
		if p.Name != "main" && standard[p.Name] {
			t.Errorf("%s is called like a package of the standard library: readers would have to look at the imports to know which is meant", p.ImportPath)
		}
		for part := range strings.SplitSeq(p.path(), "/") {
			if slices.Contains(vague, part) {
				t.Errorf("%s: %q says that nobody decided what belongs there; name what it does", p.ImportPath, part)
			}
		}
	}
}

const (
	longest = 60 // lines of a function
	median  = 12
)

func TestFunctionsAreShort(t *testing.T) {
	sources, err := files(".go")
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
			lengths = append(lengths, lines)
			if lines > longest {
				t.Errorf("%s: %s has %d lines; over %d nobody sees a function whole", name, function.Name.Name, lines, longest)
			}
		}
	}
	slices.Sort(lengths)
	if middle := lengths[len(lengths)/2]; middle >= median {
		t.Errorf("half of the functions have %d lines or more; keep the median under %d", middle, median)
	}
}

// An eyesore must not be in any text of the repository.
type eyesore struct {
	pattern *regexp.Regexp
	in      []string // suffixes; none: everywhere
	reason  string
}

// The patterns are written so that they do not find themselves.
var eyesores = []eyesore{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`), []string{".go", ".lua", "Makefile", ".ci/run"},
		"write an issue instead, or do it: a note in the code is read by nobody who can act"},
	{regexp.MustCompile(`(^|[\s"'=(:` + "`" + `])/(work|root|home|farm)` + `/\w`), nil,
		"a path of somebody's machine: it works nowhere else"},
	{regexp.MustCompile(`\bt\.Sk` + `ip(f|Now)?\(`), []string{"_test.go"},
		"a skipped proof proves nothing: let the test start what it needs"},
	{regexp.MustCompile(`\bfunc in` + `it\(\)`), []string{".go"},
		"nothing happens by being imported: pass what is needed where it is needed"},
}

func TestNothingIsLeftLyingAbout(t *testing.T) {
	all, err := files("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".sum") || strings.Contains(text, "\x00") || !utf8.ValidString(text) {
			continue
		}
		for _, sore := range eyesores {
			registers := name == "contrib/caddylimit/caddylimit.go" // Caddy knows its modules by their imports
			if at := sore.find(name, text); at > 0 && !generated.MatchString(text) && !registers {
				t.Errorf("%s:%d: %s", name, at, sore.reason)
			}
		}
	}
}

// find is the first line of the text that has the eyesore, or 0.
func (e *eyesore) find(name, text string) int {
	if len(e.in) > 0 && !slices.ContainsFunc(e.in, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
		return 0
	}
	found := e.pattern.FindStringIndex(text)
	if found == nil {
		return 0
	}
	return 1 + strings.Count(text[:found[1]], "\n")
}

func TestEyesoresAreSeen(t *testing.T) {
	for i, line := range []string{"x // TO" + "DO", "see /wo" + "rk/main", "t.Sk" + `ip("x")`, "func in" + "it() {"} {
		if eyesores[i].find("a_test.go", "\n"+line) != 2 {
			t.Errorf("%q is not seen by %v", line, eyesores[i].pattern)
		}
	}
}

// machinery is what tests the algorithms: folders beside them that hold none.
var machinery = []string{"internal/algorithm/stories"}

func TestAlgorithmsAreFolderByFolderAlike(t *testing.T) {
	const home = "internal/algorithm"
	entries, err := os.ReadDir(filepath.Join(root, home))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() || within(path.Join(home, name), machinery...) {
			continue
		}
		seen++
		for _, want := range []string{name + ".go", name + ".lua", "README.md", "testdata/*.txt"} {
			if found, _ := filepath.Glob(filepath.Join(root, home, name, want)); len(found) == 0 {
				t.Errorf("%s/%s has no %s: whoever knows one algorithm's folder should know them all", home, name, want)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d algorithms were found", seen)
	}
}
