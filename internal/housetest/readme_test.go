package housetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// The rule of blocks of Go in every page: one that begins with "package main" is a whole
// program; one that begins with another package clause is only compiled; any other is the
// body of a function that may return an error and has ctx (a context) and store (an empty
// memstore). A block of output right after it is what it prints.
//
// All are compiled into one program, as packages that live only in an overlay.
const (
	overlaid = "internal/housetest/shown"
	redisURL = "redis://127.0.0.1:6379"
)

// A shown block is one of Go, and what it is said to print.
type shown struct {
	block
	number  int
	prints  string
	silent  bool // nothing is said about what it prints
	program bool // it can be run
}

func (s *shown) name() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

func shownBlocks(t *testing.T) (list []shown) {
	t.Helper()
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		all := blocks(page, text)
		for i, b := range all {
			if b.kind != "go" {
				continue
			}
			s := shown{block: b, number: len(list), silent: true, program: !strings.HasPrefix(b.text, "package ") || strings.HasPrefix(b.text, "package main\n")}
			if i+1 < len(all) && all[i+1].kind == "output" && all[i+1].line <= b.end+3 {
				s.prints, s.silent = all[i+1].text, false
			}
			list = append(list, s)
		}
	}
	return list
}

func TestWhatIsShownRuns(t *testing.T) {
	list := shownBlocks(t)
	if len(list) < 8 {
		t.Fatalf("only %d blocks of Go were found", len(list))
	}
	server := redistest.Start(t)
	program := build(t, list, server.URL())
	for _, s := range list {
		if !s.program {
			continue
		}
		t.Run(s.name(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, program, strconv.Itoa(s.number)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !s.silent && string(out) != s.prints {
				t.Errorf("it prints\n%s\nthe page says\n%s", out, s.prints)
			}
		})
	}
}

// build compiles all blocks into one program that runs the one whose number it is given.
func build(t *testing.T, list []shown, url string) (program string) {
	t.Helper()
	dir := t.TempDir()
	overlay := map[string]string{}
	add := func(name, text string) {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		house, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(house, overlaid, name)] = file
	}
	var imports, cases strings.Builder
	for _, s := range list {
		name := fmt.Sprint("block", s.number)
		add(name+"/block.go", source(s, name, url))
		fmt.Fprintf(&imports, "import %s %q\n", name, module+"/"+overlaid+"/"+name)
		if s.program {
			fmt.Fprintf(&cases, "\tcase %q:\n\t\t%s.Main()\n", strconv.Itoa(s.number), name)
		} else {
			fmt.Fprintf(&imports, "var _ = %s.Compiled\n", name)
		}
	}
	add("main.go", "package main\nimport \"os\"\n"+sortImports(imports.String())+"func main() {\n\tswitch os.Args[1] {\n"+cases.String()+"\t}\n}\n")
	program = filepath.Join(dir, "program")
	config := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	goTool(t, "build", "-overlay", config, "-o", program, "./"+overlaid)
	return program
}

// sortImports puts imports before declarations.
func sortImports(text string) string {
	var imports, rest strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "import ") {
			imports.WriteString(line)
		} else {
			rest.WriteString(line)
		}
	}
	return imports.String() + rest.String()
}

var packageClause = regexp.MustCompile(`^package \w+`)

// source is a block as a package. Its compiler errors name the page and the line.
func source(s shown, name, url string) string {
	text := strings.ReplaceAll(s.text, redisURL, url)
	here := fmt.Sprintf("\n//line %s:%d\n", s.page, s.line)
	switch {
	case strings.HasPrefix(text, "package main\n"):
		text = strings.Replace(text, "\nfunc main() {", "\nfunc Main() {", 1)
		return here[1:] + packageClause.ReplaceAllString(text, "package "+name)
	case strings.HasPrefix(text, "package "):
		return here[1:] + packageClause.ReplaceAllString(text, "package "+name) + "\nvar Compiled bool\n"
	}
	return "package " + name + fragmentHead + here + text + fragmentTail
}

const fragmentHead = `

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

var (
	_ = errors.Is
	_ = fmt.Sprint
	_ http.Handler
	_ = time.Second
	_ weir.Store
	_ *redisstore.Store
	_ = os.Exit
	_ = filepath.Join
)

func Main() {
	if err := fragment(context.Background(), memstore.New()); err != nil {
		log.Fatal(err)
	}
}

func fragment(ctx context.Context, store weir.Store) error {
	_, _ = ctx, store
`

const fragmentTail = `
	return nil
}
`

var curl = regexp.MustCompile(`curl -i (http://\S+)`)

// TestTheReadmesServerLimits runs the README's command (built, so that it can be ended)
// as a stranger would, and sends what it says to send until it is refused.
func TestTheReadmesServerLimits(t *testing.T) {
	redis := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "http")
	goTool(t, "build", "-o", program, "./examples/http")
	for _, store := range []string{"memory", redis.URL()} {
		t.Run(strings.SplitN(store, ":", 2)[0], func(t *testing.T) {
			url := startServer(t, program, "-addr", "127.0.0.1:0", "-store", store, "-limit", "3/h", "-timeout", "10s")
			for i := range 4 {
				status, fields := get(t, url)
				if want := map[bool]int{true: 200, false: 429}[i < 3]; status != want {
					t.Errorf("request %d: %d, want %d", i+1, status, want)
				}
				if left := fmt.Sprintf(`"per-address";r=%d;t=`, max(0, 2-i)); !strings.HasPrefix(fields.Get("RateLimit"), left) {
					t.Errorf("request %d: RateLimit is %s, want %s", i+1, fields.Get("RateLimit"), left)
				}
				if retry := fields.Get("Retry-After"); (retry != "") != (status == 429) {
					t.Errorf("request %d: Retry-After is %q", i+1, retry)
				}
			}
		})
	}
}

// startServer starts the program and reads where it listens; it ends with the test.
func startServer(t *testing.T, program string, args ...string) (url string) {
	t.Helper()
	command := exec.Command(program, args...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if found := curl.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, out)
			return found[1]
		}
	}
	t.Fatal("the server ended without saying where it listens")
	return ""
}

func get(t *testing.T, url string) (status int, fields http.Header) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header
}
