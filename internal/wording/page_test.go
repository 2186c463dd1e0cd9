package wording

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestPagesAreForClientsWhoPreferThem(t *testing.T) {
	const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/*": true, "text/html": true, chromium: true, "TEXT/HTML ; Q=1.0": true,
		"application/json": false, "application/json, text/html": false, "text/html, application/problem+json": false,
		"application/json;q=0.9, text/html": true, "text/html;q=0.9, application/json": false,
		"text/html;q=0": false, "text/html;q=0, */*": false, "text/html;q=2, */*;q=0.1": false, "text/html;q=NaN": false,
		"*/*;q=0.1\ntext/html;q=0.2": true, "text/html;q=0.5, text/*;q=0.1, */*;q=0.3": true,
		"text/*, application/*;q=0.5": true, "application/*, text/html;q=0.5": false,
		"text/html;level=1": false, "text/html;level=1, text/html;q=0.1, */*;q=0.5": false,
		`text/html;charset="UTF-8";q=0.7`: true, "text/html;q=0.7;ext=1": true, `text/html;x="a,text/html;y=b"`: false,
		"text": false, "*": false, "text/htmlx": false, "image/avif,image/webp,*/*;q=0.8": false,
		"text/html, image/gif, *; q=.2, */*; q=.2": true,
		"text/html" + strings.Repeat(",", 3000):    false,
	} {
		if got := PrefersPage(strings.Split(accept, "\n")); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestPageAllowsItsStyle(t *testing.T) {
	sum := sha256.Sum256([]byte(pageStyle))
	if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(pagePolicy, "'sha256-"+hash+"'") {
		t.Errorf("the hash of the style is %s", hash)
	}
}

func TestPageEscapesWhatOthersWrote(t *testing.T) {
	const hostile = `"><script>alert(1)</script>&<img src=x>`
	p := Page{Status: 429, Message: hostile, Language: hostile, Wait: 90 * time.Second, RequestID: hostile}
	for language, words := range map[string][]string{
		"en": {`<html lang="en">`, "<title>Too Many Requests</title>", "<dd>1 minute 30 seconds</dd>"},
		"zh": {`<html lang="zh-Hans">`, "<title>请求过多</title>", "<dt>需等待</dt>"},
	} {
		text := string(p.HTML([]string{language}))
		for _, want := range append(words, `dir="auto" lang="&#34;&gt;`, ">&#34;&gt;&lt;script&gt;alert(1)") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", language, want, text)
			}
		}
		if strings.Contains(text, "<script") || strings.Contains(text, "<img") {
			t.Errorf("%s: the page has foreign markup:\n%s", language, text)
		}
	}
	p.Wait = 0
	if text := string(p.HTML(nil)); strings.Contains(text, "<dt>Wait") {
		t.Errorf("a wait that is not known is shown:\n%s", text)
	}
	p.Status = 499
	if text := string(p.HTML(nil)); !strings.Contains(text, "<h1>Too Many Requests</h1>") {
		t.Errorf("a status without a name has no title:\n%s", text)
	}
}
