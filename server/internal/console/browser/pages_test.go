package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

const someRules = `
rules:
  - {name: login, label: Sign-in form, match: {path: /login}, key: [client.ip], limit: 5/1m}
  - {name: per-ip, key: [client.ip], limit: 100/1m, candidate: {limit: 60/1m}}
  - {name: upload, match: {path: /upload}, key: [client.ip], limit: 10/1h, mode: shadow}
`

// pages are all of the console, with a text that each has in English and in Chinese.
var pages = []struct{ name, path, english, chinese string }{
	{"overview", "", "Rules by harm", "规则（按影响排序）"},
	{"rule", "/rules/login", "login", "login"},
	{"key", "/key", "Key", "键"},
	{"requests", "/requests", "Records", "记录"},
	{"health", "/health", "Health", "健康"},
	{"services", "/services", "There are no services", "没有服务"},
	{"changes", "/changes", "Changes", "变更"},
}

func TestEveryPageInBothLanguagesAndThemes(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules, "--audit", filepath.Join(t.TempDir(), "audit.log")))
	for _, page := range pages {
		for _, look := range []struct{ lang, theme, text string }{{"en", "light", page.english}, {"zh", "dark", page.chinese}} {
			what := fmt.Sprintf("%s-%s-%s", page.name, look.lang, look.theme)
			b.look(1280, look.theme)
			b.goTo(page.path + "?lang=" + look.lang)
			b.see(look.text)
			if lang := map[string]string{"en": "en", "zh": "zh-CN"}[look.lang]; !b.is(fmt.Sprintf(`document.documentElement.lang === %q`, lang)) {
				t.Errorf("%s is in another language", what)
			}
			b.wideAndNarrow(what, look.theme, "rgb(16, 20, 24)")
		}
	}
}

func TestUnknownPageLeadsBack(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules))
	b.goTo("/health/../rules/no-such-rule")
	b.expect("404")
	if b.is(`document.title === ''`) {
		t.Error("the tab has no title")
	}
	b.click("a", "Overview")
	b.see("Rules by harm")
}

func TestSwitchesAndShortcuts(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules))
	b.goTo("?span=6h")
	b.click("button", "中文")
	b.see("总览")
	if url := b.url(); !strings.Contains(url, "lang=zh") || !strings.Contains(url, "span=6h") {
		t.Errorf("the URL is %s", url)
	}
	b.keys("z")
	b.see("Overview")
	b.keys("t")
	b.until(`document.documentElement.dataset.theme === 'light'`)
	b.keys("t")
	b.until(`document.documentElement.dataset.theme === 'dark'`)
	b.keys("?")
	b.see("Keyboard shortcuts")
	b.keys(kb.Escape)
	b.until(`!document.querySelector('dialog')`)
	b.keys("gh")
	b.until(`location.pathname === '/console/health'`)
	b.keys("/")
	b.until(`document.activeElement.type === 'search'`)
	b.fill("input[type=search]", "203.0.113.7\r")
	b.until(`location.pathname === '/console/key' && new URLSearchParams(location.search).get('q') === '203.0.113.7'`)
	b.goTo("")
	b.until(`document.documentElement.dataset.theme === 'dark'`) // kept
}

const (
	writer = "a-token-that-may-write"
	reader = "a-token-that-may-read"
)

func startWithTokens(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	var flags []string
	for flag, line := range map[string]string{"server.admin.token_file": "ann:" + writer, "server.admin.read_token_file": "ben:" + reader} {
		file := filepath.Join(dir, strings.Trim(flag, "-"))
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--set", flag+"="+file)
	}
	return start(t, someRules, flags...)
}

func TestLoginAndLogout(t *testing.T) {
	t.Parallel()
	b := open(t, startWithTokens(t))
	b.expect("401")
	b.load("/rules/login?lang=en")
	b.see("Token of an operator")
	b.usable("login")
	b.picture("login")
	b.fill("input[type=password]", "a-token-that-is-wrong")
	b.click("button", "Log in")
	b.see("This token is not known.")
	b.fill("input[type=password]", reader)
	b.click("button", "Log in")
	b.settled()
	b.see("read-only")
	if !strings.Contains(b.url(), "/console/rules/login") {
		t.Errorf("after the login another page is shown: %s", b.url())
	}
	if b.is(`document.cookie !== ''`) {
		t.Error("a script can read the cookie")
	}
	b.click("button", "Log out")
	b.see("Token of an operator")
	b.fill("input[type=password]", writer)
	b.click("button", "Log in")
	b.settled()
	if b.is(`document.body.innerText.includes('read-only')`) {
		t.Error("a token that may write is shown as read-only")
	}
}
