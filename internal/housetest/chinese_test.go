package housetest

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	toEnglish = regexp.MustCompile(`\[English\]\(([^)]+)\)`)
	toChinese = regexp.MustCompile(`\[中文\]\(([^)]+)\)`)
	remark    = regexp.MustCompile(`(?m)(^|\s)(#|//) .*$`)
	factual   = regexp.MustCompile(`\b(\d[\d.,]*\d|[A-Z]{4,})\b`)
	title     = regexp.MustCompile(`(?m)(- name:) .*[ \p{Han}].*$`)
)

// translations are the Chinese pages by the English page that their first lines name. A long page may have several.
func translations(t *testing.T) map[string][]string {
	t.Helper()
	of := make(map[string][]string)
	for _, page := range documents(t) {
		if page != "README.zh-CN.md" && !strings.HasPrefix(page, "docs/zh/") {
			continue
		}
		english := linked(t, page, toEnglish)
		if english == "" {
			t.Errorf("%s: its first lines have no link [English](…)", page)
			continue
		}
		of[english] = append(of[english], page)
	}
	return of
}

// linked returns the page that the first lines of a page link to by this text, or "".
func linked(t *testing.T, page string, text *regexp.Regexp) string {
	t.Helper()
	content, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.Join(strings.SplitAfterN(content, "\n", 6)[:5], "")
	found := text.FindStringSubmatch(head)
	if found == nil {
		return ""
	}
	return path.Join(path.Dir(page), strings.Split(found[1], "#")[0])
}

// TestLanguagesLinkToEachOther: a reader who lands on a page of the other language is one click away from it.
func TestLanguagesLinkToEachOther(t *testing.T) {
	for english, chinese := range translations(t) {
		if to := linked(t, english, toChinese); !slices.Contains(chinese, to) {
			t.Errorf("the first lines of %s have a link [中文](…) to %q; its Chinese pages are %v", english, to, chinese)
		}
	}
}

// TestChineseKeepsUp: the examples of an English page, and each field, flag, value, metric and number that it names,
// are on its Chinese page too, so that a change of one page alone fails. Comments and titles of tests are in the page's
// language.
func TestChineseKeepsUp(t *testing.T) {
	pages := translations(t)
	for _, english := range slices.Sorted(maps.Keys(pages)) {
		text, err := read(english)
		if err != nil {
			t.Fatal(err)
		}
		var chinese, examples strings.Builder
		for _, page := range pages[english] {
			translated, err := read(page)
			if err != nil {
				t.Fatal(err)
			}
			chinese.WriteString(oneLine(translated))
			for _, b := range blocks(page, translated) {
				examples.WriteString("\n" + example(b.text))
			}
		}
		for _, b := range blocks(english, text) {
			if !strings.Contains(examples.String(), "\n"+example(b.text)) {
				t.Errorf("%s:%d: this example is not in %v", english, b.line, pages[english])
			}
		}
		prose := outsideFences(text)
		named := factual.FindAllString(link.ReplaceAllString(prose, ""), -1)
		for _, code := range inlineCode.FindAllStringSubmatch(prose, -1) {
			named = append(named, oneLine(code[1]))
		}
		for _, name := range named {
			if !strings.Contains(chinese.String(), name) {
				t.Errorf("%s names `%s`, which is not in %v", english, name, pages[english])
			}
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// example is a block without comments, the spaces before them, and titles of tests.
func example(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(title.ReplaceAllString(remark.ReplaceAllString(text, ""), "$1")) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			kept.WriteString(line + "\n")
		}
	}
	return kept.String()
}
