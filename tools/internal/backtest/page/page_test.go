package page

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"

	"github.com/weirproject/weir/tools/internal/backtest"
)

func write(t *testing.T, r *backtest.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// read returns the report in a page.
func read(t *testing.T, page string) *backtest.Report {
	t.Helper()
	found := regexp.MustCompile(`<script type="application/json" id="report">([^<]*)</script>`).FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the page has no report")
	}
	r := new(backtest.Report)
	if err := json.Unmarshal([]byte(found[1]), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPageHasTheReport(t *testing.T) {
	r := sample(3)
	if got := read(t, write(t, r)); !reflect.DeepEqual(got, r) {
		t.Errorf("the page has another report: %+v", got)
	}
}

// TestPageRunsItsScriptOnly: the policy names the hashes of the script and the style that are there, and nothing is
// loaded from anywhere.
func TestPageRunsItsScriptOnly(t *testing.T) {
	page := write(t, sample(1))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	script := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	if policy == nil || len(script) != 1 || len(style) != 1 {
		t.Fatalf("policy %v, %d scripts, %d styles", policy, len(script), len(style))
	}
	want := "default-src 'none'; script-src '" + hash(script[0][1]) + "'; style-src '" + hash(style[0][1]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'"
	if policy[1] != want {
		t.Errorf("the policy is %q, want %q", policy[1], want)
	}
	if found := regexp.MustCompile(`(?i)(src|href)="(https?:|//|/)[^"]*|@import|url\(`).FindString(page); found != "" {
		t.Errorf("the page loads %q", found)
	}
}

func TestTextsOfTheLogAreNoMarkup(t *testing.T) {
	const hostile = "</script><script>alert(1)</script><!--\u2028\u202Etxt.exe\x00\xff\"'&"
	r := sample(1)
	r.Rules, r.Limits, r.ByRule[0].Limit = hostile, []backtest.Note{{Text: hostile, Chinese: hostile}}, hostile
	r.Clients[0].Agent, r.Log.Files[0].Name, r.Log.Files[0].Examples[0].Text = hostile, hostile, hostile
	r.Proposed[0].Limit, r.Proposed[0].Old = hostile, hostile
	page := write(t, r)
	for _, raw := range []string{"<script>alert", "<!--", "\u2028", "\x00", "\xff"} {
		if strings.Contains(page, raw) {
			t.Errorf("the page has %q as it was in the log", raw)
		}
	}
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d scripts end", n)
	}
	if agent, want := read(t, page).Clients[0].Agent, strings.ToValidUTF8(hostile, "\uFFFD"); agent != want {
		t.Errorf("the report has %q, want %q", agent, want)
	}
}

func TestPageIsSmall(t *testing.T) {
	for rules, most := range map[int]int{0: 100_000, 100: 600_000} {
		if size := len(write(t, sample(rules))); size > most {
			t.Errorf("the page of %d rules has %d bytes, want at most %d", rules, size, most)
		}
	}
}

func TestBundleRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, text := range map[string]string{
		"star": "import * as all from './b.js';", "two lines": "import {\n\ta } from './b.js';", "bare": "import { a } from 'b';",
		"export from": "export * from './b.js';", "missing": "import { a } from './c.js';", "end of script": "const a = '</script>';",
	} {
		files := fstest.MapFS{"a.js": {Data: []byte(text + "\n")}, "b.js": {Data: []byte("export const a = 1;\n")}}
		if script, err := bundled(files, "a.js"); err == nil {
			t.Errorf("%s: %s", name, script)
		}
	}
}
