package housetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
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
	dir := workingDirectory(t)
	for _, s := range list {
		if !s.program {
			continue
		}
		t.Run(s.name(), func(t *testing.T) {
			var out string
			for range 3 { // a machine that stalls for half a second shows other seconds
				server.Do("FLUSHALL")
				if out = s.run(t, program, dir); s.silent || out == s.prints {
					return
				}
			}
			t.Errorf("it prints\n%s\nthe page says\n%s", out, s.prints)
		})
	}
}

// run runs the block, and returns what it prints.
func (s *shown) run(t *testing.T, program, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, strconv.Itoa(s.number))
	command.Dir = dir
	var failures strings.Builder
	command.Stderr = &failures
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &failures)
	}
	return string(out)
}

// workingDirectory is where the programs run. It has the README's rules.yaml.
func workingDirectory(t *testing.T) string {
	t.Helper()
	text, err := read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, b := range blocks("README.md", text) {
		if b.kind == "yaml" && strings.HasPrefix(b.text, "# rules.yaml\n") {
			if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	t.Fatal("README.md has no block of YAML that begins with # rules.yaml")
	return ""
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
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

var (
	_ = errors.Is
	_ = fmt.Sprint
	_ io.Reader
	_ strings.Builder
	_ atomic.Bool
	_ http.Handler
	_ httptest.Server
	_ gate.Gate
	_ engine.Config
	_ slog.Logger
	_ netip.Addr
	_ prometheus.Collector
	_ httplimit.Key
	_ grpclimit.Key
	_ layers.Options
	_ grpc.ServerOption
	_ = insecure.NewCredentials
	_ rules.File
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

var (
	curl      = regexp.MustCompile(`curl -i (http://\S+)`)
	shellWord = regexp.MustCompile(`"[^"]*"|\S+`)
)

// TestTheReadmesServerLimits runs the README's command (built, so that it can be ended) as
// a stranger would, and the same with the whole program on Redis. The refusal that is shown is
// the one that comes.
func TestTheReadmesServerLimits(t *testing.T) {
	text, err := read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := blocks("README.md", text)
	i := slices.IndexFunc(all, func(b block) bool { return b.kind == "sh" })
	words, ok := strings.CutPrefix(strings.TrimSpace(all[i].text), "go run -tags small ./server/cmd/weir ")
	if !ok || all[i+1].kind != "http" {
		t.Fatalf("README.md begins with %q, and then a block of %q", all[i].text, all[i+1].kind)
	}
	var args []string
	for _, word := range shellWord.FindAllString(words, -1) {
		args = append(args, strings.Trim(word, `"`))
	}
	for store, tag := range map[string]string{"memory": "small", redistest.Start(t).URL(): "grpcnotrace"} {
		program := filepath.Join(t.TempDir(), "weir")
		goTool(t, "build", "-tags", tag, "-o", program, "./server/cmd/weir")
		t.Run(strings.SplitN(store, ":", 2)[0], func(t *testing.T) {
			var got string
			for range 5 { // on a machine that stands still for a second, other seconds are shown
				url := startServer(t, program, slices.Concat(args, []string{"--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--store", store, "--set", "server.store.timeout=10s"})...)
				if got = sixth(t, url); got == all[i+1].text {
					return
				}
			}
			t.Errorf("README.md shows\n%s\nwhat comes is\n%s", all[i+1].text, got)
		})
	}
}

// TestTheSmallServerSaysWhatItLeavesOut: a setting that it cannot keep ends the start, and names the way out.
func TestTheSmallServerSaysWhatItLeavesOut(t *testing.T) {
	program := filepath.Join(t.TempDir(), "weir")
	goTool(t, "build", "-tags", "small", "-o", program, "./server/cmd/weir")
	for _, args := range [][]string{
		{"--store", "redis://127.0.0.1"}, {"--rules", "redis://127.0.0.1"}, {"--audit", "redis://127.0.0.1"},
		{"--ledger", "redis://127.0.0.1"}, {"--grpc", "127.0.0.1:0"}, {"--set", "server.otlp=http://127.0.0.1:4318"},
		{"--set", "server.envoy.config=."}, {"--set", "server.envoy.xds.server=127.0.0.1:1"},
		{"--set", "server.envoy.http.listen=127.0.0.1:0"}, {"--set", "server.envoy.debug.listen=127.0.0.1:0"},
		{"--set", "server.geo=countries.mmdb"},
	} {
		command := exec.Command(program, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
		said, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(said), "build it without the tag") {
			t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
	if said, err := exec.Command(program, "version").Output(); err != nil || !strings.Contains(string(said), "(small: no Redis,") {
		t.Errorf("version: %s %v", said, err)
	}
}

// sixth is the answer to the sixth request, as curl -i shows it without what differs each time.
func sixth(t *testing.T, url string) string {
	t.Helper()
	for i := range 5 {
		if response, _ := get(t, url); response.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s", i+1, response.Status)
		}
	}
	response, body := get(t, url)
	response.Header.Del("Date")
	response.Header.Del("Content-Length")
	var shown strings.Builder
	fmt.Fprintf(&shown, "%s %s\n", response.Proto, response.Status)
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		fmt.Fprintf(&shown, "%s: %s\n", name, response.Header.Get(name))
	}
	return strings.ReplaceAll(shown.String()+"\n"+body, response.Header.Get("X-Request-Id"), "4bf92f3577b34da6a3ce929d0e0e4736")
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

func get(t *testing.T, url string) (response *http.Response, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// TestRulesThatAreShownAreRules: a reader copies them.
func TestRulesThatAreShownAreRules(t *testing.T) {
	seen := 0
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, text) {
			if b.kind != "yaml" || !strings.Contains("\n"+b.text, "\nrules:") || strings.Contains(b.text, "\ntests:\n") {
				continue // server/internal/cli runs files of tests
			}
			seen++
			_, warnings, err := rules.Lint(fmt.Sprintf("%s:%d", page, b.line), []byte(b.text))
			// Examples of something else need not say which form paths have.
			warnings = slices.DeleteFunc(warnings, func(p rules.Problem) bool { return strings.Contains(p.Message, "path_form: strict") })
			if err != nil || len(warnings) > 0 {
				t.Errorf("%v %v", err, warnings)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d files of rules were found", seen)
	}
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	limitText  = regexp.MustCompile(`^([a-z_]+ )?\d+/|^concurrency `)
)

// TestLimitsOfTheArticlesParse: a reader copies them into weir serve --limit.
func TestLimitsOfTheArticlesParse(t *testing.T) {
	for _, page := range []string{"docs/start/articles.md", "docs/zh/articles.md"} {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		parsed := 0
		for line := range strings.Lines(text) {
			cells := strings.Split(line, "|")
			if len(cells) != 6 {
				continue
			}
			for _, code := range inlineCode.FindAllStringSubmatch(cells[2], -1) {
				if !limitText.MatchString(code[1]) {
					continue
				}
				parsed++
				if _, err := weir.ParseLimit(code[1]); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
		}
		if parsed < 9 {
			t.Errorf("%s: only %d limits were found", page, parsed)
		}
	}
}
