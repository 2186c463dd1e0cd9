package housetest

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const columns = 120 // a tab counts 4

// sources are the repository's Go files without data of tests and generated files.
func sources(t *testing.T) map[string]string {
	t.Helper()
	names, err := files(".go")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, name := range names {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, "/testdata/") && !generated.MatchString(text) {
			texts[name] = text
		}
	}
	return texts
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestLinesFit: product code can be read side by side in two windows. Tables of tests and texts of bench may be wider.
func TestLinesFit(t *testing.T) {
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") || within(name, "bench") {
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
			if width := utf8.RuneCountInString(line); width > columns {
				t.Errorf("%s:%d: the line has %d columns; at most %d fit", name, number, width, columns)
			}
		}
	}
}

var (
	commentLine = regexp.MustCompile(`^\s*// ?(.*)$`)
	// roundabout is a sentence whose subject is a clause. Questions and "what if" are fine.
	roundabout = regexp.MustCompile(`(?:^|[.:;!] )((?:Who|Whoever|What|Whatever) [^.?!:;]*)(?:[.!:;]|$)`)
)

// TestSentencesHaveNouns: "Callers wait in order", not "Who waits is served in order". Many readers' first language is
// not English, and such sentences have to be read twice.
func TestSentencesHaveNouns(t *testing.T) {
	for name, text := range sources(t) {
		for line, comment := range comments(text) {
			if found := roundabout.FindStringSubmatch(comment); found != nil {
				t.Errorf("%s:%d: %q: begin with a noun", name, line, found[1])
			}
		}
	}
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		for paragraph := range strings.SplitSeq(outsideFences(text), "\n\n") {
			if found := roundabout.FindStringSubmatch(strings.ReplaceAll(paragraph, "\n", " ")); found != nil {
				t.Errorf("%s: %q: begin with a noun", page, found[1])
			}
		}
	}
}

// comments are the blocks of whole-line comments, each as one line of text, by the number of their first line.
func comments(text string) map[int]string {
	blocks := make(map[int]string)
	number, first := 0, 0
	for line := range strings.Lines(text) {
		number++
		found := commentLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case found == nil:
			first = 0
		case first == 0:
			first = number
			blocks[first] = found[1]
		default:
			blocks[first] += " " + found[1]
		}
	}
	return blocks
}

// retired are words that had a private meaning here, and the words of the field for them. They are written so that they
// do not find themselves.
var retired = []struct {
	word *regexp.Regexp
	use  string
}{
	{private("la" + "ws?"), "rules, rule set"},
	{private("jud" + "ge[sd]?"), "gate, decide"},
	{private("do" + "ors?"), "front end, listener"},
	{private("se" + "ats?"), "place, entry"},
	{private("she" + "l(f|ves)"), "index"},
	{private("de" + "sks?"), "handler"},
	{private("be" + "lls?"), "notification"},
	{private("hear" + "ings?"), "call"},
}

func private(word string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b` + word + `\b`) }

// TestRetiredWords: one meaning, one word, and it is the field's: docs/reference/glossary.md has them.
func TestRetiredWords(t *testing.T) {
	texts := sources(t)
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		if page != "CHANGELOG.md" { // it names what was renamed
			texts[page] = text
		}
	}
	for name, text := range texts {
		for _, old := range retired {
			if at := old.word.FindStringIndex(text); at != nil {
				line := 1 + strings.Count(text[:at[0]], "\n")
				t.Errorf("%s:%d: %q is a retired word: write %s", name, line, text[at[0]:at[1]], old.use)
			}
		}
	}
}

// A term is a row of docs/reference/glossary.md.
type term struct{ word, chinese, retired string }

func terms(t *testing.T) (list []term) {
	t.Helper()
	page, err := read("docs/reference/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 4 || strings.HasPrefix(line, "| word ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		list = append(list, term{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	if len(list) < 60 {
		t.Fatalf("the glossary has %d rows", len(list))
	}
	return list
}

// TestChineseHasOneWordForEachIdea: the glossary names it, and the words that nothing in Chinese says instead.
func TestChineseHasOneWordForEachIdea(t *testing.T) {
	list, of := terms(t), make(map[string]string)
	var instead []string
	for _, term := range list {
		for word := range strings.SplitSeq(term.chinese, "，") {
			if other := of[word]; other != "" {
				t.Errorf("docs/reference/glossary.md: %s is %s and %s", word, other, term.word)
			}
			of[word] = term.word
		}
		for word := range strings.SplitSeq(term.retired, "、") {
			if word != "" {
				instead = append(instead, word, term.chinese)
			}
		}
	}
	names, err := files(".go", ".js", ".md", ".html", ".yaml", ".yml", ".redis")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") || name == "docs/reference/glossary.md" {
			continue
		}
		for i := 0; i < len(instead); i += 2 {
			if before, _, found := strings.Cut(text, instead[i]); found {
				t.Errorf("%s:%d: %s: write %s", name, 1+strings.Count(before, "\n"), instead[i], instead[i+1])
			}
		}
	}
}

// TestBansAndBlocksAreToldApart in both languages: one is weir's, the other an operator's.
func TestBansAndBlocksAreToldApart(t *testing.T) {
	names, err := files(".js")
	if err != nil {
		t.Fatal(err)
	}
	pair, pairs := regexp.MustCompile(`(?m)^\t'[\w.]+': \['(.*)', '(.*)'\],$`), 0
	for _, name := range names {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range pair.FindAllStringSubmatch(text, -1) {
			pairs++
			for _, term := range terms(t) {
				if term.word != "ban" && term.word != "block" {
					continue
				}
				english := regexp.MustCompile(`(?i)\b` + term.word + `(s|ned|ed)?\b`).MatchString(found[1])
				if english != strings.Contains(found[2], term.chinese) {
					t.Errorf("%s: %q is %q, and %s is %s", name, found[1], found[2], term.word, term.chinese)
				}
			}
		}
	}
	if pairs < 400 {
		t.Errorf("only %d texts are found", pairs)
	}
}

func TestLanguageIsSeen(t *testing.T) {
	text := "// Who" + "ever waits is served.\n// It works. What" + " is left goes\n// back.\nx := 1 // What" + " now?\n"
	if found := roundabout.FindAllStringSubmatch(comments(text)[1], -1); len(found) != 2 {
		t.Errorf("found %q", found)
	}
	if roundabout.MatchString("What if it fails? Then it is tried again.") {
		t.Error("a question was found")
	}
	if !retired[0].word.MatchString("the "+"La"+"w of it") || retired[0].word.MatchString("lawn, outlaw") {
		t.Error("words are found wrongly")
	}
}
