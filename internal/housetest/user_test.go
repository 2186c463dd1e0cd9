package housetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAUserOfTheLibraryGetsNothingElse: go get in an empty module adds the library alone, and a program with the
// embedded store compiles the standard library; its go.sum may have what the library's tests need.
func TestAUserOfTheLibraryGetsNothingElse(t *testing.T) {
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	program := `package main

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func main() { weir.New(memstore.New(), "requests", weir.PerMinute(100)) }
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	user := func(args ...string) string {
		t.Helper()
		command := exec.Command("go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	user("mod", "init", "example.com/user")
	user("mod", "edit", "-replace", module+"="+here) // until there are releases
	user("get", module)
	user("mod", "tidy")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			path, _, _ := strings.Cut(strings.TrimPrefix(line, "require "), " ")
			known := within(path, module, "github.com/anishathalye/porcupine", "pgregory.net/rapid")
			if strings.Contains(path, ".") && path != "1.26" && !known {
				t.Errorf("%s of a user has %s", name, strings.TrimSpace(line))
			}
		}
	}
	for path := range strings.FieldsSeq(user("list", "-deps", ".")) {
		if _, ours := inModule(path); !ours && !isStandard(path) && path != "example.com/user" {
			t.Errorf("a user compiles %s", path)
		}
	}
}
