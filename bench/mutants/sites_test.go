package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindListsEveryKindOfChange(t *testing.T) {
	const source = `package p

import "fmt"

func f(a, b int) bool {
	if a < b && b != 3 {
		fmt.Println(a)
		a += 2
		a++
	}
	b = a - 1
	return true
}

func g(err error) (int, error) { return 0, err }
`
	file := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	sites, err := find([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"a < b && b != 3 → !(a < b && b != 3)": true,
		"< → <=":                               true, "&& → ||": true, "!= → ==": true, "3 → 4": true,
		"fmt.Println(a) → ": true, "+= → -=": true, "2 → 3": true, "++ → --": true,
		"b = a - 1 → ": true, "- → +": true, "1 → 2": true, "true → false": true,
	}
	for _, s := range sites {
		change := s.was + " → " + s.text
		if !want[change] {
			t.Errorf("unexpected or repeated change %q in line %d", change, s.line)
		}
		delete(want, change)
	}
	for change := range want {
		t.Errorf("change %q was not found", change)
	}
}

func TestApplyChangesOnlyTheSite(t *testing.T) {
	s := site{start: 2, end: 3, text: "<="}
	if got := string(s.apply([]byte("a < b"))); got != "a <= b" {
		t.Errorf("got %q; want %q", got, "a <= b")
	}
}
