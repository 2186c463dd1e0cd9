package console_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	textLine = regexp.MustCompile(`^\t'([\w.]+)': \['((?:[^'\\]|\\.)+)', '((?:[^'\\]|\\.)+)'\],$`)
	value    = regexp.MustCompile(`\{\w+\}`)
	// used is a text in a script: t('name'), or a name that a table or a condition chooses.
	used = regexp.MustCompile(`'([a-z]+(?:\.[A-Za-z]\w*)+)'`)
	// begun is a name whose end is a value: t('mark.' + kind).
	begun  = regexp.MustCompile(`'([a-z]+(?:\.[A-Za-z]\w*)*\.)'`)
	ascii  = regexp.MustCompile(`\p{Han}\s*[,;:!?()]|[,;:!?()]\s*\p{Han}`)
	braces = regexp.MustCompile(`\{[^}]*\}`)
)

// texts are the pairs of all tables, by name.
func texts(t *testing.T) map[string][2]string {
	t.Helper()
	all := make(map[string][2]string)
	names, err := filepath.Glob("../../../internal/static/texts/*.js")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "//") || line == "export default {" || line == "};" || line == "" {
				continue
			}
			found := textLine.FindStringSubmatch(line)
			if found == nil {
				t.Errorf("%s: a line is not a name with a text in English and one in Chinese: %s", name, line)
				continue
			}
			if _, twice := all[found[1]]; twice {
				t.Errorf("%s: %s is there twice", name, found[1])
			}
			all[found[1]] = [2]string{found[2], found[3]}
		}
	}
	return all
}

func TestTextsAreInBothLanguages(t *testing.T) {
	for name, pair := range texts(t) {
		english, _, _ := strings.Cut(pair[0], "|")
		values := func(text string) []string { return slices.Sorted(slices.Values(value.FindAllString(text, -1))) }
		if strings.Contains(pair[0], "|") { // one of them may be written as a word
			continue
		}
		if !slices.Equal(values(english), values(pair[1])) {
			t.Errorf("%s: the languages have other values: %q", name, pair)
		}
	}
}

// TestChinesePunctuation: Chinese text has full-width punctuation.
func TestChinesePunctuation(t *testing.T) {
	for name, pair := range texts(t) {
		if found := ascii.FindString(braces.ReplaceAllString(pair[1], "中")); found != "" {
			t.Errorf("%s: %q in %q", name, found, pair[1])
		}
	}
	if !ascii.MatchString("键,值") || ascii.MatchString("键，值 x, y") {
		t.Error("punctuation is found wrongly")
	}
}

func TestTextsExistAndAreUsed(t *testing.T) {
	all := texts(t)
	seen, prefixes := make(map[string]bool), make(map[string]bool)
	err := filepath.WalkDir("../../../internal/static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".js" || strings.Contains(path, "vendor") || strings.Contains(path, "texts") {
			return err
		}
		script, err := os.ReadFile(path)
		for _, found := range used.FindAllStringSubmatch(string(script), -1) {
			seen[found[1]] = true
		}
		for _, found := range begun.FindAllStringSubmatch(string(script), -1) {
			prefixes[found[1]] = true
		}
		for _, found := range regexp.MustCompile(`\bt\('([\w.]+)'[,)]`).FindAllStringSubmatch(string(script), -1) {
			if _, is := all[found[1]]; !is {
				t.Errorf("%s: there is no text %s", path, found[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !seen[name] && !slices.ContainsFunc(slices.Collect(maps.Keys(prefixes)), begins) {
			t.Errorf("no script uses the text %s", name)
		}
	}
}
