package wording

import (
	"cmp"
	"html"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/timewords"
)

// A Page is what people see in a browser in place of the page that they asked for. It has no parts elsewhere and no
// scripts.
type Page struct {
	Status            int
	Message, Language string        // Language of the message, a tag; "" is unknown
	Wait              time.Duration // 0: it is not known, or waiting does not help
	RequestID         string
}

// maxAccept is the longest Accept or Accept-Language that is read, in bytes: browsers send some 200, and a refusal
// must stay cheap.
const maxAccept = 2048

// readable reports whether the lines of a field are short enough to be read.
func readable(lines []string) bool {
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	return bytes <= maxAccept
}

// PrefersPage reports whether the lines of Accept (RFC 9110, section 12.5.1) prefer HTML to JSON. Equal weights, such
// as the weight of */*, are no preference: programs send them.
func PrefersPage(accept []string) bool {
	if len(accept) == 0 || !readable(accept) {
		return false
	}
	page := weight(accept, "text", "html")
	return page > max(weight(accept, "application", "json"), weight(accept, "application", "problem+json"))
}

// weight is the weight of a media type: the weight of the most specific range that has it.
func weight(accept []string, kind, subtype string) (weight float64) {
	best := 0
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			media, parameters, _ := strings.Cut(part, ";")
			left, right, _ := strings.Cut(strings.ToLower(strings.TrimSpace(media)), "/")
			specific := 0
			switch {
			case left == kind && right == subtype:
				specific = 3
			case left == kind && right == "*":
				specific = 2
			case left == "*" && right == "*":
				specific = 1
			}
			if q, ok := rangeQuality(parameters); ok && specific >= max(best, 1) {
				if specific > best || q > weight {
					best, weight = specific, q
				}
			}
		}
	}
	return weight
}

// rangeQuality is the q of a media range. A range with another parameter than the charset of all pages, such as
// level=1, is of representations that there are not.
func rangeQuality(parameters string) (q float64, ok bool) {
	for rest := parameters; rest != ""; {
		var parameter string
		parameter, rest, _ = strings.Cut(rest, ";")
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(parameter)), "=")
		switch {
		case name == "q":
			return quality(parameter), true // what follows is no part of the range
		case name != "" && (name != "charset" || strings.Trim(value, `"`) != "utf-8"):
			return 0, false
		}
	}
	return 1, true
}

const (
	pageStyle = `:root{color-scheme:light dark;--ink:#1d2430;--dim:#5a6474;--back:#f5f6f8;--card:#fff;--line:#d9dde4}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--dim:#a3adbd;--back:#12161d;--card:#1b212b;--line:#343c4a}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--back);color:var(--ink);` +
		`font:1rem/1.6 system-ui,"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif}
main{box-sizing:border-box;width:min(34rem,100% - 2rem);margin:1rem;padding:2rem;background:var(--card);` +
		`border:1px solid var(--line);border-radius:.75rem;overflow-wrap:anywhere}
h1{margin:0 0 .5rem;font-size:1.5rem;line-height:1.3}
p{margin:0 0 1.5rem}
dl{display:grid;grid-template-columns:auto 1fr;gap:.25rem 1rem;margin:0;padding-top:1rem;font-size:.875rem;` +
		`border-top:1px solid var(--line)}
dt{color:var(--dim)}
dd{margin:0}`
	// pagePolicy has the hash of the style. The image is the empty icon, without which browsers ask for one: that
	// request would be counted too.
	pagePolicy = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; " +
		"style-src 'sha256-aja/LHrfQalY+ie2VZtweSrQX7ToIwBZQsSxzM1gn+M='"
)

// pageLabels are the words of the table, in English and Chinese.
var pageLabels = map[string][3]string{"en": {"Status", "Wait", "Request"}, "zh": {"状态码", "需等待", "请求 ID"}}

// Negotiate sets the fields of an answer that is a page for clients who prefer one, and reports whether this client
// does. The answer must be kept by no cache: many do not tell clients apart by Accept.
func Negotiate(h, request http.Header) (page bool) {
	h.Add("Vary", "Accept, Accept-Language")
	if !PrefersPage(request["Accept"]) {
		return false
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	return true
}

// HTML is the page in the language that Accept-Language prefers, about a message that may be in another.
func (p *Page) HTML(accept []string) []byte {
	language := Language(accept)
	tag := map[string]string{"en": "en", "zh": "zh-Hans"}[language]
	labels := pageLabels[language]
	title := cmp.Or(Title(language, p.Status), Title(language, http.StatusTooManyRequests)) // a rule may say 499
	var b strings.Builder
	for _, text := range []string{`<!doctype html>
<html lang="`, tag, `">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>`, title, "</title>\n<style>", pageStyle, "</style>\n<main>\n<h1>", title, "</h1>\n<p", langOf(p.Language), `>`,
		html.EscapeString(p.Message), "</p>\n<dl>\n"} {
		b.WriteString(text)
	}
	row := func(name, value string) {
		b.WriteString("<dt>" + name + "</dt><dd>" + html.EscapeString(value) + "</dd>\n")
	}
	row(labels[0], strconv.Itoa(p.Status))
	if p.Wait > 0 {
		row(labels[1], timewords.Of(language).Wait(p.Wait))
	}
	row(labels[2], p.RequestID)
	b.WriteString("</dl>\n</main>\n</html>\n")
	return []byte(b.String())
}

func langOf(tag string) string {
	if tag == "" {
		return ` dir="auto"`
	}
	return ` dir="auto" lang="` + html.EscapeString(tag) + `"`
}
