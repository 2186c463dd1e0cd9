package housetest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestMakefileSkipsTestsThatExist: a test, or a part of the suite of stores, that is renamed must not run under the race
// detector again unnoticed.
func TestMakefileSkipsTestsThatExist(t *testing.T) {
	paths, err := files("_test.go")
	if err != nil {
		t.Fatal(err)
	}
	skipsOf(t, "SEQUENTIAL", `(?m)^func %s\(`, paths...)
	skipsOf(t, "ONE_BY_ONE", `\{"%s", `, "storetest/storetest.go")
}

// skipsOf looks for each name of a list in the Makefile in the sources, by a pattern.
func skipsOf(t *testing.T, variable, pattern string, paths ...string) {
	t.Helper()
	makefile, err := read("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(makefile, "\n"+variable+" =")
	list, _, found := strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	if !found {
		t.Fatalf("no list %s in the Makefile", variable)
	}
	var sources strings.Builder
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			t.Fatal(err)
		}
		sources.WriteString(text)
	}
	for _, name := range strings.Fields(list) {
		name = strings.ReplaceAll(name, "_", " ") // as go test writes the name of a part
		if !regexp.MustCompile(fmt.Sprintf(pattern, name)).MatchString(sources.String()) {
			t.Errorf("%s in the Makefile has %s, which does not exist", variable, name)
		}
	}
}
