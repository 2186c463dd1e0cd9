// Command mutants measures the tests: it draws small changes ("mutants") at random over the product's Go code, makes
// one at a time, and runs the tests of its package and of the packages that use it. A mutant that no test notices
// survives, and is either a missing test or a change that means nothing; the list says which lines to read.
//
// The source tree is never written to: each mutant is an overlay of the go command (go help build, -overlay). A drawn
// change that does not compile is replaced by another draw.
//
//	cd bench && go run ./mutants -n 60 -seed 1
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are those whose tests are measured, as patterns of the go command.
const packages = "./memstore ./redisstore/... ./layers ./gate ./rules " +
	"./internal/ruleset/... ./httplimit ./server/internal/..."

func main() {
	var r runner
	count := flag.Int("n", 60, "how many mutants that compile are run")
	seed := flag.Uint64("seed", 1, "seed of the draw: the same tree and seed give the same mutants")
	in := flag.String("in", packages, "packages to change, as patterns of the go command")
	also := flag.String("also", "", "packages whose tests run too where they use the changed one; default: those of -in")
	flag.IntVar(&r.first, "first", 0, "first place of the draw: to go on where a run was ended")
	flag.StringVar(&r.cache, "cache", "", "file that keeps between runs which tests are slow")
	flag.StringVar(&r.root, "root", "..", "root of the module")
	flag.Parse()
	if err := run(&r, *in, cmp.Or(*also, *in), *count, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(r *runner, in, also string, count int, seed uint64) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root = root
	files, err := r.list("{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}\n{{end}}", in)
	if err != nil {
		return err
	}
	if err := r.findUsers(also); err != nil {
		return err
	}
	sites, err := find(files)
	if err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	draw := rand.New(rand.NewPCG(seed, 0))
	draw.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	return r.runAll(sites, count, seed)
}

// list is what go list prints of the packages that match the patterns, a line each.
func (r *runner) list(format, patterns string, options ...string) ([]string, error) {
	args := append(append([]string{"list", "-f", format}, options...), strings.Fields(patterns)...)
	list := exec.Command("go", args...)
	list.Dir, list.Stderr = r.root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' }), nil
}

// runAll runs the first mutants that compile and prints one line for each, and the share that was killed.
func (r *runner) runAll(sites []site, count int, seed uint64) error {
	fmt.Printf("%d places; seed %d\n\n", len(sites), seed)
	fmt.Printf("| # | place | change | outcome |\n| --- | --- | --- | --- |\n")
	tried, killed := 0, 0
	for i := r.first; i < len(sites) && tried < count; i++ {
		s := sites[i]
		if err := r.overlay(s); err != nil {
			return err
		}
		own := filepath.Dir(s.file)
		if !r.compiles(own) {
			continue
		}
		place, err := filepath.Rel(r.root, s.file)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d %s:%d:%d %s\n", i, place, s.line, s.column, s.describe())
		outcome, err := r.try(own)
		if err != nil {
			return err
		}
		tried++
		if outcome != "" {
			killed++
		}
		outcome = cmp.Or(outcome, "**survived**")
		fmt.Printf("| %d | %s:%d:%d | %s | %s |\n", i, place, s.line, s.column, s.describe(), outcome)
	}
	fmt.Printf("\n%d of %d killed (%.0f %%)\n", killed, tried, 100*float64(killed)/float64(max(tried, 1)))
	return nil
}

// overlay writes the changed file and the overlay that names it.
func (r *runner) overlay(s site) error {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	changed := filepath.Join(r.dir, "mutant.go")
	if err := os.WriteFile(changed, s.apply(text), 0o600); err != nil {
		return err
	}
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{s.file: changed}})
	if err != nil {
		return err
	}
	return os.WriteFile(r.overlayFile(), content, 0o600)
}

func (r *runner) overlayFile() string { return filepath.Join(r.dir, "overlay.json") }
