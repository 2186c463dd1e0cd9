package housetest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// documents are the pages that are written for people; what they show is tested.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := files(".md")
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 5 {
		t.Fatalf("only %d pages: %v", len(pages), pages)
	}
	return pages
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(outsideFences(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := page
			if target != "" {
				to = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, match[1])
				continue
			}
			if anchor != "" && !hasHeading(t, to, anchor) {
				t.Errorf("%s links to %s, which has no heading of that name", page, match[1])
			}
		}
	}
}

// TestEveryPageIsInTheNavigation: docs/README.md is the list of pages, of which the site makes its navigation. Links in
// the first column of a table are entries there.
func TestEveryPageIsInTheNavigation(t *testing.T) {
	text, err := read("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var entries strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			entries.WriteString(strings.Split(line, "|")[1])
		}
	}
	for _, page := range documents(t) {
		name, inDocs := strings.CutPrefix(page, "docs/")
		if inDocs && name != "README.md" && !strings.Contains(entries.String(), "]("+name+")") {
			t.Errorf("no table of docs/README.md has %s in its first column", name)
		}
	}
}

// maxWords is the length that a reader finishes in one go. Split a longer page by question, or remove repetition.
const maxWords = 1500

// TestPagesAreShort counts the words of every page with its code, except references, which nobody reads as a whole.
func TestPagesAreShort(t *testing.T) {
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		n := wordsOf(text)
		if n > maxWords && !within(page, "docs/reference", "CHANGELOG.md") {
			t.Errorf("%s has %d words; allowed: %d", page, n, maxWords)
		}
	}
}

// wordsOf counts texts between blanks that have a letter or a digit. In Chinese, which has no blanks, two characters
// count as a word.
func wordsOf(text string) (n int) {
	han := 0
	for word := range strings.FieldsSeq(text) {
		counts := false
		for _, r := range word {
			if unicode.Is(unicode.Han, r) {
				han++
			} else if unicode.IsLetter(r) || unicode.IsDigit(r) {
				counts = true
			}
		}
		if counts {
			n++
		}
	}
	return n + han/2
}

func TestWordsOf(t *testing.T) {
	for text, want := range map[string]int{"| a `b-c` | -- | 12 |\n": 3, "限流规则 rate": 3, "": 0, "用 `weir serve` 启动": 3} {
		if got := wordsOf(text); got != want {
			t.Errorf("%q has %d words, not %d", text, got, want)
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// hasHeading compares as GitHub makes anchors of headings.
func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(outsideFences(text)) {
		if strings.HasPrefix(line, "#") {
			heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			if strings.ReplaceAll(notInAnchors.ReplaceAllString(heading, ""), " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// A block is a fenced block of a page.
type block struct {
	page string
	line int // of its first line of text
	kind string
	text string
	end  int // the line after its last
}

func blocks(page, text string) (list []block) {
	var open *block
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{page: page, line: i + 2, kind: strings.TrimSpace(fence)}
		case isFence:
			open.end = i + 1
			list = append(list, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return list
}

func outsideFences(text string) string {
	var outside strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			outside.WriteString(line)
		}
	}
	return outside.String()
}

var target = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)

// TestCommandsExist: each line of a block of sh is one that a stranger can type.
func TestCommandsExist(t *testing.T) {
	makefile, err := read("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, match := range target.FindAllStringSubmatch(makefile, -1) {
		targets[match[1]] = true
	}
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, text) {
			if b.kind == "bash" || b.kind == "shell" || b.kind == "" {
				t.Errorf("%s:%d: a block of kind %q: call commands sh, and what is no command text", page, b.line, b.kind)
			}
			if b.kind != "sh" {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
				checkCommand(t, b, line, targets)
			}
		}
	}
}

// substituted is the output of another command.
var substituted = regexp.MustCompile(`\$\([^)]*\)`)

func checkCommand(t *testing.T, b block, line string, targets map[string]bool) {
	t.Helper()
	command, _, _ := strings.Cut(line, " #")
	words := strings.Fields(substituted.ReplaceAllString(command, "value"))
	for len(words) > 0 && strings.Contains(words[0], "=") { // VARIABLE=value
		words = words[1:]
	}
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "make":
		for _, word := range words[1:] {
			if !strings.Contains(word, "=") && !targets[word] {
				t.Errorf("%s:%d: the Makefile has no target %q", b.page, b.line, word)
			}
		}
	case "go":
		for _, word := range words[1:] {
			if place, ok := strings.CutPrefix(word, "./"); ok {
				if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(place, "..."))); err != nil {
					t.Errorf("%s:%d: %s: %s is not there", b.page, b.line, strings.TrimSpace(command), word)
				}
			}
		}
	case "docker", "kubectl", "helm":
		for _, word := range words[1:] {
			if strings.HasPrefix(word, "deploy/") {
				if _, err := os.Stat(filepath.Join(root, word)); err != nil {
					t.Errorf("%s:%d: %s: %s is not there", b.page, b.line, strings.TrimSpace(command), word)
				}
			}
		}
	case "curl", "git", "cd", "printf":
	case "weir", "sed", "python3": // tests run what the pages show of them
	default:
		t.Errorf("%s:%d: this test does not know the command %q; teach it how to tell whether it works", b.page, b.line, words[0])
	}
}

// TestTheReadmesFirstScreen holds what a stranger looks for before they scroll.
func TestTheReadmesFirstScreen(t *testing.T) {
	text, err := read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	screen := strings.Join(strings.SplitAfter(text, "\n")[:60], "")
	for _, want := range []string{"\ngo run -tags small ./server/cmd/weir serve", "\nmake test"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first screen of README.md has no %q", strings.TrimSpace(want))
		}
	}
}

// TestDiagramsAreOfTheirSources: an SVG names the source that it was drawn from, so that Graphviz is not needed to compare them.
func TestDiagramsAreOfTheirSources(t *testing.T) {
	sources, err := files(".dot")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		text, err := read(source)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := read(strings.TrimSuffix(source, ".dot") + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("<!-- source %x -->", sha256.Sum256([]byte(text))); !strings.Contains(picture, want) {
			t.Errorf("%s was changed and not drawn anew: run make diagrams", source)
		}
	}
}

// TestArchitectureNamesPackages: the page describes what exists.
func TestArchitectureNamesPackages(t *testing.T) {
	page, err := read("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		name := path.Base(p.path())
		if parent := path.Dir(p.path()); parent != "." && parent != "internal" {
			continue // the page names its parent
		}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(page) {
			t.Errorf("ARCHITECTURE.md does not name %s", p.path())
		}
	}
}

var metric = regexp.MustCompile(`\bweir_[a-z][a-z_]+[a-z]\b`)

// TestPagesNameMetricsThatExist: an alert on a misspelled metric never fires.
func TestPagesNameMetricsThatExist(t *testing.T) {
	var code strings.Builder
	for name, text := range sources(t) {
		if !strings.HasSuffix(name, "_test.go") {
			code.WriteString(text)
		}
	}
	known := make(map[string]bool)
	for _, name := range metric.FindAllString(code.String(), -1) {
		known[name] = true
	}
	for _, page := range documents(t) {
		text, err := read(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metric.FindAllString(outsideFences(text), -1) {
			if !known[name] {
				t.Errorf("%s names the metric %s, which is not in the code", page, name)
			}
		}
	}
}
