// Package page writes the report of a backtest as one HTML file, which loads nothing and works offline. It has the
// scripts and the style sheet of the console, whose page of backtests shows the same.
package page

import (
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // of the document
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"
	"sync"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/internal/backtest"
	"github.com/weirproject/weir/internal/static"
)

//go:embed page.html
var document string

// An assets has the parts of each page that do not depend on the report.
type assets struct{ script, style, icon string }

var load = sync.OnceValues(func() (*assets, error) {
	script, err := bundled(static.Files, "file.js")
	if err != nil {
		return nil, err
	}
	style, err := static.Files.ReadFile("style.css")
	if err != nil {
		return nil, err
	}
	icon, err := static.Files.ReadFile("icon.svg")
	return &assets{script: script, style: string(style), icon: base64.StdEncoding.EncodeToString(icon)}, err
})

// Write writes the page. Texts of the log may be anything: the report is compressed data for the script, which makes no
// markup of it, and the page's policy runs that script only and refuses all requests.
func Write(w io.Writer, r *backtest.Report) error {
	a, err := load()
	if err != nil {
		return err
	}
	data, err := packed(slim(r))
	if err != nil {
		return err
	}
	parts := strings.NewReplacer("SCRIPT_HASH", hash(a.script), "STYLE_HASH", hash(a.style),
		"TITLE", title(r), "ICON", a.icon, "STYLE", a.style, "SUMMARY", summary(r), "REPORT", data, "SCRIPT", a.script)
	_, err = parts.WriteString(w, document)
	return err
}

func title(r *backtest.Report) string { return text("Backtest of " + r.Rules) }

// packed is the JSON of a report, compressed, in base64.
func packed(r *backtest.Report) (string, error) {
	var b strings.Builder
	text := base64.NewEncoder(base64.StdEncoding, &b)
	z := gzip.NewWriter(text)
	err := json.MarshalWrite(z, r, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	err = errors.Join(err, z.Close(), text.Close())
	return b.String(), err
}

// hash is what a Content-Security-Policy says of the one script or style that it permits.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

const sparkSteps = 150 // of a rule's series: its picture is as wide as a word

// slim is a report whose series of rules are as long as their pictures need.
func slim(r *backtest.Report) *backtest.Report {
	small := *r
	small.ByRule = make([]backtest.Rule, len(r.ByRule))
	for i, rule := range r.ByRule {
		rule.Series = folded(rule.Series)
		small.ByRule[i] = rule
	}
	return &small
}

// folded adds up neighbours until at most sparkSteps are left.
func folded(series []int64) []int64 {
	each := (len(series) + sparkSteps - 1) / sparkSteps
	var sums []int64
	for i, n := range series {
		if i%each == 0 {
			sums = append(sums, 0)
		}
		sums[len(sums)-1] += n
	}
	return sums
}

// summary are the figures for readers without scripts, such as the previews of CI systems.
func summary(r *backtest.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<main><h1>%s</h1>\n", title(r))
	fmt.Fprintf(&b, "<p class=\"reading\">%s of %d requests would be refused, of %d clients in %d.</p>\n",
		share(r.Total), r.Total.Requests, r.Total.ClientsRefused, r.Total.Clients)
	for _, one := range r.Proposed {
		proposed := "none is proposed"
		if one.Limit != "" {
			proposed = "<b>" + text(one.Limit) + "</b> is proposed"
		}
		fmt.Fprintf(&b, "<p>Limits of %s: %s; it has %s.</p>\n", text(one.Rule), proposed, text(one.Old))
	}
	b.WriteString("<table><caption>Rules</caption>\n" +
		"<thead><tr><th>Rule<th>Limit<th>Would refuse<th>Refused<th>Clients</tr></thead><tbody>\n")
	for _, one := range r.ByRule {
		fmt.Fprintf(&b, "<tr><th>%s<td>%s<td>%d<td>%s<td>%d</tr>\n",
			text(one.Name), text(one.Limit), one.Refused+one.Denied, share(one.Count), one.ClientsRefused)
	}
	b.WriteString("</tbody></table>\n<ul>\n")
	for _, one := range r.Limits {
		fmt.Fprintf(&b, "<li>%s</li>\n", text(one.Text))
	}
	b.WriteString("</ul><p>The charts need JavaScript, in a browser of 2023 or later.</p></main>")
	return b.String()
}

func share(c backtest.Count) string {
	return fmt.Sprintf("%.2f %%", 100*float64(c.Refused+c.Denied)/float64(max(1, c.Requests)))
}

// text is a text as HTML. Characters that are not seen or turn the direction of the text are replaced, as the script
// does it.
func text(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
