package housetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// A step of the guide is a block that goes into a file of the tree.
type guideStep struct{ file, where, text string }

var guidePlace = regexp.MustCompile("^`([^`]+)`, (new|at the end|after `(.+)`):$")

// guideSteps are the steps below a heading of a guide: a block of code after a line that says where it goes.
func guideSteps(t *testing.T, page, heading string) (steps []guideStep) {
	t.Helper()
	text, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut("\n"+text, heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	lines := strings.Split(rest, "\n")
	for i, line := range lines {
		place := guidePlace.FindStringSubmatch(line)
		if place == nil || i+2 >= len(lines) || !strings.HasPrefix(lines[i+2], "```") {
			continue
		}
		step := guideStep{file: place[1], where: place[2]}
		if place[3] != "" {
			step.where = place[3]
		}
		for _, code := range lines[i+3:] {
			if code == "```" {
				break
			}
			step.text += code + "\n"
		}
		steps = append(steps, step)
	}
	return steps
}

// apply does one step in a copy of the tree.
func (s guideStep) apply(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, s.file)
	before, err := os.ReadFile(path)
	if (err != nil) != (s.where == "new") {
		t.Fatalf("the guide: %s is %q, and reading it: %v", s.file, s.where, err)
	}
	after := string(before) + s.text
	if s.where != "new" && s.where != "at the end" {
		head, rest, found := strings.Cut(string(before), "\t"+s.where+"\n")
		anchor := "\t" + s.where + "\n"
		if !found {
			head, rest, found = strings.Cut(string(before), "\n"+s.where+"\n")
			anchor = "\n" + s.where + "\n"
		}
		if !found {
			t.Fatalf("the guide: %s has no line %q", s.file, s.where)
		}
		after = head + anchor + s.text + rest
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// smallTree copies what an algorithm touches, and the tests that name what is missing.
func smallTree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	all, err := files(".go", ".lua", ".mod", ".sum", ".txt")
	if err != nil {
		t.Fatal(err)
	}
	homes := []string{"memstore", "redisstore", "internal/algorithm", "internal/deadline", "internal/redisslot",
		"internal/respguard", "internal/redisconn"}
	for _, name := range all {
		test := strings.HasSuffix(name, "_test.go")
		needed := !test || within(name, "algorithm_test.go", "export_test.go", "memstore/kinds_test.go",
			"memstore/export_test.go", "redisstore/kinds_test.go", "redisstore/export_test.go")
		if !needed || strings.Contains(name, "/") && !within(name, homes...) {
			continue
		}
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		guideStep{file: name, where: "new", text: text}.apply(t, dir)
	}
	return dir
}

// playsStories plays the stories of the guide's algorithm on both stores.
const playsStories = `package cooldown_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

func TestMemory(t *testing.T) {
	stories.Run(t, func(_ testing.TB, now func() weir.Instant) weir.Store {
		return memstore.New(memstore.WithClock(now))
	}, "cooldown")
}

func TestRedis(t *testing.T) {
	stories.Run(t, func(t testing.TB, now func() weir.Instant) weir.Store {
		store, err := redisstore.Open(t.Context(), %q, redisstore.WithClock(now))
		if err != nil {
			t.Fatal(err)
		}
		return store
	}, "cooldown")
}
`

// touchesAtMost bounds the files of a section, which a developer changes by hand.
func touchesAtMost(t *testing.T, maxFiles int, steps []guideStep) (files []string) {
	t.Helper()
	for _, step := range steps {
		if !slices.Contains(files, step.file) {
			files = append(files, step.file)
		}
	}
	if len(files) == 0 || len(files) > maxFiles {
		t.Fatalf("docs/howto/extending.md touches %d files; allowed: 1 to %d", len(files), maxFiles)
	}
	return files
}

// asksTheFrontEnd serves one connection of the guide's front end with a rule that has the guide's field: the cost of
// the second request is 3, and 2 units are left.
const asksTheFrontEnd = `package main

import (
	"fmt"
	"io"
	"log"
	"net"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/shout"
)

func main() {
	_, err := compiled("1001")
	fmt.Println(err)
	set, err := compiled("2")
	if err != nil {
		log.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			err = shout.Serve(connection, g)
		}
		if err != nil {
			log.Fatal(err)
		}
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(connection, "ann\nann\nbob\n")
	connection.(*net.TCPConn).CloseWrite()
	answers, err := io.ReadAll(connection)
	fmt.Printf("%s%v\n", answers, err)
}

func compiled(surcharge string) (*rules.Set, error) {
	file, err := rules.Parse("weir.yaml", []byte("rules: [{name: a, key: user, limit: 5/1h, surcharge: "+surcharge+"}]"))
	if err != nil {
		return nil, err
	}
	return rules.Compile(file)
}
`

// TestTheGuideAddsAFieldAndAFrontEnd follows both sections word for word. Files of the tree are overlaid, so that only
// the packages that change are compiled.
func TestTheGuideAddsAFieldAndAFrontEnd(t *testing.T) {
	const guide = "docs/howto/extending.md"
	field, frontEnd := guideSteps(t, guide, "\n## A field of a rule"), guideSteps(t, guide, "\n## A front end")
	touched := append(touchesAtMost(t, 4, field), touchesAtMost(t, 1, frontEnd)...)
	const program = "server/internal/asks/main.go"
	dir, replace := t.TempDir(), make(map[string]string)
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(touched, program) {
		replace[filepath.Join(here, name)] = filepath.Join(dir, name)
		if text, err := read(name); err == nil {
			guideStep{file: name, where: "new", text: text}.apply(t, dir)
		}
	}
	for _, step := range append(append(field, frontEnd...), guideStep{file: program, where: "new", text: asksTheFrontEnd}) {
		step.apply(t, dir)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "run", "-overlay", filepath.Join(dir, "overlay.json"), "./"+filepath.Dir(program))
	command.Dir = root
	out, err := command.CombinedOutput()
	for _, want := range []string{"surcharge is 1001; allowed: 1 to 1000", "\nyes\nno: ", "\nyes\n<nil>\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, without %q:\n%s", err, want, out)
		}
	}
}

// TestTheGuideAddsAnAlgorithm follows the section word for word, and then leaves out one row or one file at a time.
func TestTheGuideAddsAnAlgorithm(t *testing.T) {
	steps := guideSteps(t, "docs/howto/new-algorithm.md", "\n# A new algorithm")
	touchesAtMost(t, 6, steps)
	dir, url := smallTree(t), redistest.Start(t).URL()
	for _, step := range steps {
		step.apply(t, dir)
	}
	runner := guideStep{file: "internal/algorithm/cooldown/run_test.go", where: "new",
		text: fmt.Sprintf(playsStories, url)}
	runner.apply(t, dir)
	names := "TestEveryAlgorithm|TestMemory|TestRedis"
	if out, err := testsIn(dir, names, ".", "./memstore", "./redisstore", "./internal/algorithm/cooldown"); err != nil {
		t.Fatalf("the guide as it stands: %v\n%s", err, out)
	}
	for _, step := range steps {
		if says, tested := missing[step.file+" "+step.where]; tested {
			t.Run(step.file, func(t *testing.T) { step.isMissed(t, dir, says[0], says[1]) })
		}
	}
}

// isMissed leaves a step out, and wants a test of a package to say so.
func (s guideStep) isMissed(t *testing.T, dir, home, want string) {
	t.Helper()
	path := filepath.Join(dir, s.file)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(string(whole), s.text, "", 1))
	defer write(string(whole))
	if out, err := testsIn(dir, "TestEveryAlgorithm", home); err == nil || !strings.Contains(out, want) {
		t.Errorf("without it the tests of %s should fail with %q: %v\n%s", home, want, err, out)
	}
}

// missing has, by the step that is left out, the package whose test fails and what it says.
var missing = map[string][2]string{
	"specs.go var descriptors = [algorithms]descriptor{": {".", "number 7 has no descriptor in specs.go"},
	"memstore/kinds.go var kinds = [...]kind{":           {"./memstore", "cooldown has no row in memstore/kinds.go"},
	`redisstore/kinds.go weir.AlgorithmConcurrency:    {":h", always(&leaseKind)},`: {
		"./redisstore", "cooldown has no row in redisstore/kinds.go"},
}

// testsIn runs tests of packages of a copy of the tree.
func testsIn(dir, names string, packages ...string) (out string, err error) {
	command := exec.Command("go", append([]string{"test", "-vet=off", "-run", names}, packages...)...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false")
	text, err := command.CombinedOutput()
	return string(text), err
}

// algorithmTables are the files that tell algorithms apart by number; besides, package weir has their specs.
var algorithmTables = []string{"memstore/kinds.go", "redisstore/kinds.go"}

var toldApart = regexp.MustCompile(`weir\.Algorithm[A-Z]|case weir\.(TokenBucket|FixedWindow|Calendar|SlidingLog|` +
	`SlidingCounter|Concurrency)\b|\.Algorithm\(\) [<>]|switch .*\.Algorithm\(\)`)

// TestAlgorithmsAreToldApartInTheirTables: a switch over algorithms elsewhere has no case for the next one. Ask the
// limit instead: Refills, Windowed, Itemized, Leases, CountsFor, Units.
func TestAlgorithmsAreToldApartInTheirTables(t *testing.T) {
	sources, err := files(".go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		support := within(name, "storetest", "bench", "internal/algorithm", "examples", "internal/housetest")
		if strings.HasSuffix(name, "_test.go") || support || within(name, algorithmTables...) {
			continue
		}
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := toldApart.FindString(text); found != "" {
			t.Errorf("%s has %q: ask the limit, or add a method to the descriptor of algorithms", name, found)
		}
	}
}
