package housetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	unsteady := func(packages ...string) (lines string) {
		for _, name := range packages {
			lines += "UNSTEADY, it failed and then passed, a fault to mend: tiny/" + name + " TestOnce TestOnce/of_two\n"
		}
		return lines
	}
	for _, test := range []struct {
		name  string
		tests []string // of the packages a, b, and so on
		flag  string
		want  string // the last lines; empty if the run fails
		again bool
	}{
		{"all pass", []string{good, good}, "-short", "", false},
		{"one fails once", []string{good, once}, "-coverprofile=cover.out", unsteady("b"), true},
		{"three fail once", []string{once, good, once, once}, "-short", unsteady("a", "c", "d"), true},
		{"one fails twice", []string{always, once}, "-short", "fails", true},
		{"four fail", []string{once, once, once, once}, "-short", "fails", false},
		{"a panic beside it", []string{once, panics}, "-short", "fails", false},
		{"a package that does not build", []string{once, builds}, "-short", "fails", false},
		{"a data race", []string{once, races}, "-race", "fails", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "go.mod", "module tiny\n\ngo 1.26\n")
			for i, source := range test.tests {
				write(t, dir, string('a'+rune(i))+"/p.go", passes)
				write(t, dir, string('a'+rune(i))+"/p_test.go", source)
			}
			out, err := runTests(dir, test.flag)
			if (err != nil) != (test.want == "fails") {
				t.Errorf("it ended with %v:\n%s", err, out)
			}
			if again := strings.Contains(out, "==> once more"); again != test.again {
				t.Errorf("failed packages ran once more: %v, want %v:\n%s", again, test.again, out)
			}
			told, _ := os.ReadFile(filepath.Join(dir, "unsteady.out"))
			if test.want != "fails" && (!strings.HasSuffix(out, test.want) || string(told) != test.want) {
				t.Errorf("the end is not %q; unsteady.out has %q:\n%s", test.want, told, out)
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
	command.Env = append(os.Environ(), "PACKAGES=./...", "UNSTEADY="+filepath.Join(dir, "unsteady.out"), "GOWORK=off")
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
