package housetest

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const sizePage = "docs/why/size.md"

var sizeRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9,]+) \\| .+ \\|$")

// sizes are the largest numbers of lines that the page allows, by package.
func sizes(t *testing.T) map[string]int {
	t.Helper()
	page, err := read(sizePage)
	if err != nil {
		t.Fatal(err)
	}
	list := make(map[string]int)
	for _, row := range sizeRow.FindAllStringSubmatch(page, -1) {
		n, err := strconv.Atoi(strings.ReplaceAll(row[2], ",", ""))
		if err != nil || list[row[1]] > 0 {
			t.Fatalf("%s: the row of %s: %v", sizePage, row[1], err)
		}
		list[row[1]] = n
	}
	return list
}

// TestPackagesStayTheirSize: every line is read by somebody for years. A package that grows past its row in the page
// needs a change there, which says for whom.
func TestPackagesStayTheirSize(t *testing.T) {
	lines := make(map[string]int)
	for name, text := range sources(t) {
		if !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") {
			lines[path.Dir(name)] += strings.Count(text, "\n")
		}
	}
	allowed := sizes(t)
	for dir, n := range lines {
		switch most, ok := allowed[dir]; {
		case !ok:
			t.Errorf("%s has %d lines and no row in %s: whose question does it answer?", dir, n, sizePage)
		case n > most:
			t.Errorf("%s has %d lines, and %s allows %d: delete some, or change the row and say for whom", dir, n, sizePage, most)
		}
	}
	for dir := range allowed {
		if lines[dir] == 0 {
			t.Errorf("%s has a row for %s, which is gone", sizePage, dir)
		}
	}
}
