package housetest

import (
	"regexp"
	"strings"
	"testing"
)

// TestMakefileSkipsTestsThatExist: a test that is renamed must not run under the race detector again unnoticed.
func TestMakefileSkipsTestsThatExist(t *testing.T) {
	makefile, err := read("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(makefile, "\nSEQUENTIAL =")
	list, _, found := strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	paths, err := files("_test.go")
	if err != nil || !found {
		t.Fatalf("no list of tests in the Makefile; %v", err)
	}
	var tests strings.Builder
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			t.Fatal(err)
		}
		tests.WriteString(text)
	}
	for _, name := range strings.Fields(list) {
		if !regexp.MustCompile(`(?m)^func ` + name + `\(`).MatchString(tests.String()) {
			t.Errorf("the Makefile skips %s, which no package has", name)
		}
	}
}
