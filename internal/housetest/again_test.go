package housetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Sources of packages whose tests end differently.
const (
	passes = "package p\n\nfunc One() int { return 1 }\n"
	good   = "package p\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { One() }\n"
	always = good + "\nfunc TestAlways(t *testing.T) { t.Error(\"wrong\") }\n"
	panics = good + "\nfunc TestPanic(t *testing.T) { panic(\"wrong\") }\n"
	builds = good + "\nfunc TestBuild(t *testing.T) { one() }\n"
	once   = `package p

import (
	"os"
	"testing"
)

func TestOnce(t *testing.T) {
	if _, err := os.Stat("seen"); One() == 1 && err != nil {
		os.WriteFile("seen", nil, 0o600)
		t.Run("of two", func(t *testing.T) { t.Error("wrong the first time") })
	}
}
`
	races = `package p

import "testing"

func TestRace(t *testing.T) {
	n, done := One(), make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
}
`
)

// TestFailedPackagesRunOnceMore: what runs the tests for a merge forgives a test that fails once and names it. It
// forgives nothing else.
func TestFailedPackagesRunOnceMore(t *testing.T) {
	t.Parallel()
	day := func(days int) string { return time.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly) }
	unsteady := func(days int, packages ...string) (lines string) {
		for _, name := range packages {
			lines += day(days) + " tiny/" + name + " TestOnce\n"
		}
		return lines
	}
	for _, test := range []struct {
		name  string
		tests []string // of the packages a, b, and so on
		flag  string
		known string // lines of earlier runs
		want  string // the lines after it
		again bool
	}{
		{"all pass", []string{good, good}, "-short", "", "", false},
		{"one fails once", []string{good, once}, "-coverprofile=cover.out", "", unsteady(14, "b"), true},
		{"three fail once", []string{once, good, once, once}, "-short", "", unsteady(14, "a", "c", "d"), true},
		{"one of a known day", []string{once, once}, "-short", unsteady(3, "a"), unsteady(3, "a") + unsteady(14, "b"), true},
		{"on its last day", []string{once}, "-short", unsteady(1, "a"), unsteady(1, "a"), true},
		{"after its day", []string{once}, "-short", unsteady(-2, "a"), "fails", false},
		{"a steady one after the day of another", []string{once}, "-short", unsteady(-2, "b"),
			unsteady(-2, "b") + unsteady(14, "a"), true},
		{"one fails twice", []string{always, once}, "-short", "", "fails", true},
		{"four fail", []string{once, once, once, once}, "-short", "", "fails", false},
		{"a panic beside it", []string{once, panics}, "-short", "", "fails", false},
		{"a package that does not build", []string{once, builds}, "-short", "", "fails", false},
		{"a data race", []string{once, races}, "-race", "", "fails", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "go.mod", "module tiny\n\ngo 1.26\n")
			for i, source := range test.tests {
				write(t, dir, string('a'+rune(i))+"/p.go", passes)
				write(t, dir, string('a'+rune(i))+"/p_test.go", source)
			}
			write(t, dir, "unsteady", test.known)
			out, err := runTests(dir, test.flag)
			if (err != nil) != (test.want == "fails") {
				t.Errorf("it ended with %v:\n%s", err, out)
			}
			if again := strings.Contains(out, "==> once more"); again != test.again {
				t.Errorf("failed packages ran once more: %v, want %v:\n%s", again, test.again, out)
			}
			told, _ := os.ReadFile(filepath.Join(dir, "unsteady"))
			if test.want != "fails" && string(told) != test.want {
				t.Errorf("unsteady has %q, want %q:\n%s", told, test.want, out)
			}
			if named := strings.Contains(out, "UNSTEADY"); named != (test.again && test.want != "fails") {
				t.Errorf("unsteady tests are named: %v:\n%s", named, out)
			}
			covered, _ := os.ReadFile(filepath.Join(dir, "cover.out"))
			if strings.HasSuffix(test.flag, "cover.out") && strings.Count(string(covered), "p.go:3.16,3.28 1 1") != 2 {
				t.Errorf("the coverage of two packages is %q", covered)
			}
		})
	}
}

func runTests(dir, flag string) (out string, err error) {
	script, err := filepath.Abs(filepath.Join(root, ".ci/again"))
	if err != nil {
		return "", err
	}
	command := exec.Command(script, "go", "test", "-vet=off", flag)
	command.Dir = dir
	command.Env = append(os.Environ(), "PACKAGES=./...", "UNSTEADY="+filepath.Join(dir, "unsteady"), "GOWORK=off")
	text, err := command.CombinedOutput()
	return string(text), err
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
}
