package accesslog

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/access-logs.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestThePageKnowsTheFormats: each format has a row, which says what the samples of the format are read as.
func TestThePageKnowsTheFormats(t *testing.T) {
	rows := make(map[string][]string)
	for line := range strings.Lines(page(t)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_-]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = cells[3:5]
		}
	}
	for _, sample := range samples {
		cells := rows[sample.format]
		if cells == nil {
			t.Errorf("%s has no row", sample.format)
			continue
		}
		if sample.format != "json" && !strings.HasPrefix(strings.TrimSpace(cells[0])+" ", string(sample.timeIs)) && !(sample.timeIs == Order && strings.Contains(cells[0], string(Order))) ||
			!strings.Contains(cells[1], sample.resolution.String()) && sample.format != "json" {
			t.Errorf("%s: the page says %q; it is %s, %s", sample.format, cells, sample.timeIs, sample.resolution)
		}
	}
}

// TestTheExamplesOfThePage: the format, a line, and what it is read as.
func TestTheExamplesOfThePage(t *testing.T) {
	examples := regexp.MustCompile("```console\n(.*)\n(.*)\n→ (.*)\n```").FindAllStringSubmatch(page(t), -1)
	if len(examples) != 3 {
		t.Fatalf("the page has %d examples", len(examples))
	}
	for _, example := range examples {
		o := Options{Format: example[1]}
		if places, found := strings.CutPrefix(example[1], "--map "); found {
			o = Options{Map: places}
		}
		if got, _ := first(t, example[2]+"\n", o); got != example[3] {
			t.Errorf("%s:\n got %s\nthe page says %s", example[1], got, example[3])
		}
	}
}

func TestThePageNamesWhatCanBeMapped(t *testing.T) {
	text := page(t)
	for _, name := range MapFields() {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
	for name := range nginxVariables {
		if v := nginxVariables[name]; v.field != skip && !strings.Contains(text, "$"+name) && !strings.Contains("uri_and_args document_uri query_string http_user_agent", name) {
			t.Errorf("the page does not name $%s", name)
		}
	}
}
