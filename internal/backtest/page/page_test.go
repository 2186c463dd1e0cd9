package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"

	"github.com/weirproject/weir/internal/backtest"
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
	found := regexp.MustCompile(`<script type="application/gzip" id="report">([^<]*)</script>`).FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the page has no report")
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(found[1])))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	r := new(backtest.Report)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPageHasTheReport(t *testing.T) {
	r := sample(3)
	got := read(t, write(t, r))
	for i, rule := range got.ByRule {
		var sum, want int64
		for _, n := range rule.Series {
			sum += n
		}
		for _, n := range r.ByRule[i].Series {
			want += n
		}
		if len(rule.Series) > sparkSteps || sum != want {
			t.Errorf("%s: a series of %d with %d refusals, want at most %d with %d",
				rule.Name, len(rule.Series), sum, sparkSteps, want)
		}
		got.ByRule[i].Series = r.ByRule[i].Series
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("the page has another report: %+v", got)
	}
	if len(r.ByRule[0].Series) != 288 {
		t.Error("the caller's report was changed")
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
	for _, raw := range []string{"<script>alert", "<!--", "\u2028", "\u202E", "\x00", "\xff"} {
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
	for rules, most := range map[int]int{0: 100_000, 1: 100_000, 100: 150_000} {
		if size := len(write(t, sample(rules))); size > most {
			t.Errorf("the page of %d rules has %d bytes, want at most %d", rules, size, most)
		}
	}
}

func TestSummaryNeedsNoScript(t *testing.T) {
	page := write(t, sample(1))
	for _, want := range []string{"3.43 % of 1204279 requests would be refused, of 214 clients in 18220",
		"Limits of rule-0: <b>180/1m</b> is proposed; it has 100/1m.", "<th>rule-0<td>100/1m<td>41201",
		"<li>The log&#39;s time is when a request ended."} {
		if !strings.Contains(page, want) {
			t.Errorf("without scripts the page lacks %q", want)
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
