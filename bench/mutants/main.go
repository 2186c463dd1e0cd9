// Command mutants measures the tests: it draws small changes ("mutants") at random over the product's Go code, makes one at
// a time, and runs the tests of its package. A mutant that no test notices survives, and is either a missing test or a change
// that means nothing; the list says which lines to read.
//
// The source tree is never written to: each mutant is an overlay of the go command (go help build, -overlay). A drawn change
// that does not compile is replaced by another draw.
//
//	cd bench && go run ./mutants -n 60 -seed 1
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// packages are those whose tests are measured, as patterns of the go command.
const packages = "./memstore ./redisstore/... ./layers ./internal/layers/... ./gate ./rules ./internal/ruleset/... ./httplimit ./internal/server/..."

func main() {
	var r runner
	count := flag.Int("n", 60, "how many mutants that compile are run")
	seed := flag.Uint64("seed", 1, "seed of the draw: the same tree and seed give the same mutants")
	in := flag.String("in", packages, "packages to change, as patterns of the go command")
	also := flag.String("also", "", "packages whose tests are run too before a mutant counts as survived")
	flag.StringVar(&r.root, "root", "..", "root of the module")
	flag.DurationVar(&r.timeout, "timeout", 5*time.Minute, "a test run that takes longer counts as killed")
	flag.Parse()
	r.also = strings.Fields(*also)
	if err := run(&r, strings.Fields(*in), *count, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(r *runner, patterns []string, count int, seed uint64) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root = root
	files, err := sources(root, patterns)
	if err != nil {
		return err
	}
	sites, err := find(files)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.dir = dir
	draw := rand.New(rand.NewPCG(seed, 0))
	draw.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	return r.runAll(sites, count, seed)
}

// sources lists the Go files, without tests, of the packages that match the patterns.
func sources(root string, patterns []string) ([]string, error) {
	const each = `{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`
	list := exec.Command("go", append([]string{"list", "-f", each}, patterns...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// A runner makes mutants and runs tests on them.
type runner struct {
	root    string
	dir     string // for the changed file and the overlay that names it
	also    []string
	timeout time.Duration
}

// runAll runs the first mutants that compile and prints one line for each, and the share that was killed.
func (r *runner) runAll(sites []site, count int, seed uint64) error {
	fmt.Printf("%d places; seed %d\n\n| # | place | change | outcome |\n| --- | --- | --- | --- |\n", len(sites), seed)
	tried, killed := 0, 0
	for _, s := range sites {
		if tried == count {
			break
		}
		outcome, err := r.try(s)
		if err != nil {
			return err
		}
		if outcome == notCompiled {
			continue
		}
		tried++
		if outcome != survived {
			killed++
		}
		place, err := filepath.Rel(r.root, s.file)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %s:%d | %s | %s |\n", tried, place, s.line, s.describe(), outcome)
	}
	fmt.Printf("\n%d of %d killed (%.0f %%)\n", killed, tried, 100*float64(killed)/float64(max(tried, 1)))
	return nil
}

type outcome string

const (
	notCompiled outcome = "does not compile"
	survived    outcome = "**survived**"
	killed      outcome = "killed"
	timedOut    outcome = "killed (time)"
)

// try runs the tests on one mutant: first those of its own package, then the additional ones.
func (r *runner) try(s site) (outcome, error) {
	overlay, err := r.overlay(s)
	if err != nil {
		return "", err
	}
	own := filepath.Dir(s.file)
	if !r.compiles(overlay, own) {
		return notCompiled, nil
	}
	for _, pkg := range append([]string{own}, r.also...) {
		if result := r.test(overlay, pkg); result != survived {
			return result, nil
		}
	}
	return survived, nil
}

// overlay writes the changed file and returns the name of the overlay file for the go command.
func (r *runner) overlay(s site) (string, error) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(r.dir, "mutant.go")
	if err := os.WriteFile(changed, s.apply(text), 0o600); err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{s.file: changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(r.dir, "overlay.json")
	return name, os.WriteFile(name, content, 0o600)
}

func (r *runner) compiles(overlay, pkg string) bool {
	build := exec.Command("go", "test", "-overlay", overlay, "-run", "^$", "-vet=off", pkg)
	build.Dir = r.root
	return build.Run() == nil
}

func (r *runner) test(overlay, pkg string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout+time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-failfast", "-vet=off",
		"-timeout", r.timeout.String(), pkg)
	test.Dir = r.root
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	err := test.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived
	case bytes.Contains(out.Bytes(), []byte("panic: test timed out")) || ctx.Err() != nil:
		return timedOut
	case errors.As(err, &exit):
		return killed + outcome(" by "+firstFailure(out.String()))
	}
	return killed
}

// firstFailure names the first test that failed, for the reader of the table.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
	}
	return "a panic"
}
