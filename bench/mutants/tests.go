package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A runner makes mutants and runs tests on them.
type runner struct {
	root  string
	first int
	cache string
	dir   string              // for the changed file, the overlay and the test programs
	users map[string][]string // by a package's directory: those whose tests use it
	slow  map[string]slowness // by a package's directory, as far as it was needed
}

// slowness is how a package's tests run where nothing is changed.
type slowness struct {
	All  time.Duration
	Slow string // matches the names of the tests that run last
}

// longest is how long a package's tests may take at the most.
const longest = 8 * time.Minute

// fast is how long a test may take to be among those that run first: they kill most mutants.
const fast = 500 * time.Millisecond

// findUsers finds out which packages' tests use which package. Those that use the least run first.
func (r *runner) findUsers(patterns string) error {
	const each = "{{if eq .Name `main`}}{{.ImportPath}} {{.Dir}} {{join .Deps ` `}}{{end}}"
	tests, err := r.list(each, patterns, "-test")
	if err != nil {
		return err
	}
	dirs, err := r.list("{{.ImportPath}} {{.Dir}}", "./...")
	if err := errors.Join(err, r.remember()); err != nil {
		return err
	}
	dirOf := make(map[string]string)
	for _, line := range dirs {
		path, dir, _ := strings.Cut(line, " ")
		dirOf[path] = dir
	}
	slices.SortStableFunc(tests, func(a, b string) int { return strings.Count(a, " ") - strings.Count(b, " ") })
	r.users = make(map[string][]string)
	for _, line := range tests {
		words := strings.Fields(line)
		if !strings.HasSuffix(words[0], ".test") {
			continue
		}
		for _, path := range words[2:] {
			used, ok := dirOf[path]
			if ok && used != words[1] && !slices.Contains(r.users[used], words[1]) {
				r.users[used] = append(r.users[used], words[1])
			}
		}
	}
	return nil
}

func (r *runner) compiles(pkg string) bool {
	build := r.command("go", "build", "-overlay", r.overlayFile(), pkg)
	return build.Run() == nil
}

func (r *runner) command(words ...string) *exec.Cmd {
	command := exec.Command(words[0], words[1:]...)
	command.Dir = r.root
	return command
}

// try runs the tests of the mutant's package, then those of its users, and says which test killed it, if any.
func (r *runner) try(own string) (outcome string, err error) {
	for _, pkg := range append([]string{own}, r.users[own]...) {
		normal, err := r.normal(pkg)
		if err != nil {
			return "", err
		}
		program, err := r.build(pkg, r.overlayFile())
		if err != nil {
			return "", err
		}
		if program == "" { // no tests
			continue
		}
		// The slow tests run alone, after the others.
		first := []string{"-test.skip", normal.Slow}
		last := []string{"-test.run", normal.Slow}
		for _, which := range [][]string{first, last} {
			limit := min(3*normal.All+20*time.Second, longest)
			flags := append(which, "-test.failfast", "-test.timeout", limit.String())
			out, err := r.test(pkg, program, r.overlayFile(), flags)
			if err == nil {
				continue
			}
			name, slow := firstFailure(out)
			if slow {
				return "killed (time)", nil
			}
			// A test that fails now and then kills nothing.
			again := []string{"-test.run", "^" + name + "$", "-test.timeout", limit.String()}
			if _, err := r.test(pkg, program, r.overlayFile(), again); name == "" || err != nil {
				return "killed by " + filepath.Base(pkg) + " " + cmp.Or(name, "(a panic)"), nil
			}
			fmt.Fprintf(os.Stderr, "%s %s failed once, and passed again\n", pkg, name)
		}
	}
	return "", nil
}

// normal runs a package's tests unchanged, once: a mutant is killed by a test that passes without it.
func (r *runner) normal(pkg string) (slowness, error) {
	if known, ok := r.slow[pkg]; ok {
		return known, nil
	}
	program, err := r.build(pkg, "")
	if err != nil || program == "" {
		return slowness{}, err
	}
	start := time.Now()
	out, err := r.test(pkg, program, "", []string{"-test.v"})
	for again := 0; err != nil && again < 2; again++ {
		name, _ := firstFailure(out)
		fmt.Fprintf(os.Stderr, "%s: %s fails without a mutant: %v\n", pkg, name, err)
		start = time.Now()
		out, err = r.test(pkg, program, "", []string{"-test.v"})
	}
	if err != nil {
		return slowness{}, fmt.Errorf("the tests of %s fail without a mutant: %w", pkg, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		var name string
		var took float64
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "--- PASS: %s (%fs)", &name, &took); err != nil {
			continue
		}
		// A test does not count the time of its parts that run in parallel.
		name, _, _ = strings.Cut(name, "/")
		if took > fast.Seconds() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	known := slowness{time.Since(start), "^(" + strings.Join(names, "|") + ")$"}
	r.slow[pkg] = known
	return known, r.keep()
}

// keep writes the cache.
func (r *runner) keep() error {
	if r.cache == "" {
		return nil
	}
	text, err := json.Marshal(r.slow)
	if err != nil {
		return err
	}
	return os.WriteFile(r.cache, text, 0o600)
}

// remember reads the cache, if there is one.
func (r *runner) remember() error {
	r.slow = make(map[string]slowness)
	text, err := os.ReadFile(r.cache)
	if err != nil {
		return nil
	}
	return json.Unmarshal(text, &r.slow)
}

// build makes the program of a package's tests, "" where there are none.
func (r *runner) build(pkg, overlay string) (string, error) {
	program := filepath.Join(r.dir, "tests")
	if err := os.RemoveAll(program); err != nil {
		return "", err
	}
	out, err := r.command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	if _, err := os.Stat(program); err != nil {
		return "", nil
	}
	return program, nil
}

// test runs tests in their package's directory. Programs that they build have the mutant too.
func (r *runner) test(pkg, program, overlay string, flags []string) ([]byte, error) {
	test := r.command(append([]string{program}, flags...)...)
	test.Dir = pkg
	test.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -overlay="+overlay)
	return test.CombinedOutput()
}

// firstFailure is the first test that failed. slow reports that the tests took too long, a panic has no name.
func firstFailure(out []byte) (name string, slow bool) {
	if bytes.Contains(out, []byte("panic: test timed out")) {
		return "", true
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			return strings.Fields(rest)[0], false
		}
	}
	return "", false
}
