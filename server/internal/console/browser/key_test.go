package browser

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

const keyRules = `
rules:
  - {name: login, label: Sign-in form, match: {path: /login}, key: [client.ip], limit: fixed_window 2/1h}
  - {name: guess, match: {path: /guess}, key: [client.ip], limit: fixed_window 1/1h, ban: {after: 1 refusals within 1h, for: 1h}}
  - {name: agents, match: {path: /agent}, key: [header.User-Agent], limit: fixed_window 1/1h}
`

// asks decides a request of a client by forward authentication, and returns the status.
func (s *server) asks(t *testing.T, client, path string, header ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/forward-auth", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-Method", http.MethodGet)
	r.Header.Set("X-Forwarded-Host", "api.example.com")
	r.Header.Set("X-Forwarded-Uri", path)
	r.Header.Set("X-Forwarded-For", client)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

func (s *server) want(t *testing.T, status int, client, path string, header ...string) {
	t.Helper()
	if got := s.asks(t, client, path, header...); got != status {
		t.Errorf("%s from %s: %d, want %d", path, client, got, status)
	}
}

func startForClients(t *testing.T) *server {
	t.Helper()
	return start(t, keyRules, "--trusted-proxies", "127.0.0.1")
}

// TestOverrideByClickingIsInForce for the next request, and so is its undo.
func TestOverrideByClickingIsInForce(t *testing.T) {
	t.Parallel()
	s := startForClients(t)
	const client = "203.0.113.7"
	for _, status := range []int{200, 200, 429} {
		s.want(t, status, client, "/login")
	}
	b := open(t, s)
	b.goTo("/key?lang=en&q=" + client)
	b.see("Refused now by login. The next request passes in")
	b.until(`/\d+ min \d+ s/.test(document.querySelector('.answer [role=timer]').innerText)`)
	b.click("button", "Override")
	b.fill("dialog [name=limit]", "fixed_window 5/1h")
	b.fill("dialog [name=for]", "30m")
	b.usable("the dialog of an override")
	b.fill("dialog [name=why]", "a load test")
	b.click("dialog button", "Override the limit")
	b.until(`document.querySelector('.done .badge.good')?.innerText.includes('in force')`) // the node has it
	s.want(t, 200, client, "/login")
	b.see("a load test")
	b.click("button", "Undo")
	b.see("Undone")
	s.want(t, 429, client, "/login")
	b.until(`!document.body.innerText.includes('Exceptions for this key')`)
}

func TestBlockResetAndLiftByClicking(t *testing.T) {
	t.Parallel()
	s := startForClients(t)
	const client = "203.0.113.7"
	for _, status := range []int{200, 429, 429} {
		s.want(t, status, client, "/guess")
	}
	b := open(t, s)
	b.goTo("/key?lang=en&rule=guess&q=" + url.QueryEscape("client.ip=11:"+client)) // as the overview links it
	b.see("Banned by guess. The ban ends in")
	b.click("button", "Lift ban")
	b.fill("dialog [name=why]", "a mistake")
	b.click("dialog button", "Lift the ban")
	b.see("Refused now by guess")
	b.click("button", "Reset")
	b.click("dialog button", "Reset the counts")
	b.see("The next request passes every rule below")
	s.want(t, 200, client, "/guess")
	b.click("button", "Block")
	b.fill("dialog [name=why]", "scanning")
	b.click("dialog button", "Block")
	b.see("Denied: blocked by")
	s.want(t, 403, client, "/somewhere")
	s.want(t, 200, "203.0.113.8", "/somewhere")
	b.goTo("/key?lang=en")
	b.see("scanning")
	b.usable("the list of exceptions")
	b.click("button", "End")
	b.click("dialog button", "End")
	b.see("is ended")
	b.see("There are none.")
	s.want(t, 200, client, "/somewhere")
	b.click("button", "Undo")
	b.see("scanning")
	s.want(t, 403, client, "/somewhere")
}

// TestExceptionOfAnotherOperatorIsShown before it is replaced; the undo restores it.
func TestExceptionOfAnotherOperatorIsShown(t *testing.T) {
	t.Parallel()
	s := startForClients(t)
	b := open(t, s)
	override := func(limit string) {
		b.goTo("/key?lang=en&q=203.0.113.7")
		b.click("details td button", "Override")
		b.fill("dialog [name=limit]", limit)
		b.fill("dialog [name=why]", "because")
	}
	override("nonsense")
	b.expect("422")
	b.click("dialog button", "Override the limit")
	b.see("This did not work")
	b.fill("dialog [name=limit]", "fixed_window 7/1h")
	b.click("dialog button", "Override the limit")
	b.see("is in force")
	override("fixed_window 9/1h")
	b.see("This replaces override-")
	b.click("dialog button", "Override the limit")
	b.see("fixed_window 9/1h")
	b.click("button", "Undo")
	b.see("fixed_window 7/1h")
	b.goTo("/changes?lang=en")
	b.click("summary", "because")
	b.see("revision 3 · set · override-")
	b.click("button", "End")
	b.see("End override-")
}

// TestRequestIsFoundByItsID on any server that reads the audit log, and one that never was does not pass.
func TestRequestIsFoundByItsID(t *testing.T) {
	t.Parallel()
	s := start(t, keyRules, "--trusted-proxies", "127.0.0.1", "--audit", filepath.Join(t.TempDir(), "audit.log"))
	for _, status := range []int{200, 200, 429} {
		s.want(t, status, "203.0.113.7", "/login", "X-Request-Id", "req-1")
	}
	b := open(t, s)
	b.goTo("/key?lang=en&q=req-2")
	b.see("No rule has counted this as a key lately")
	if b.is(`document.body.innerText.includes('passes every rule')`) {
		t.Error("an unknown request passes every rule")
	}
	b.click("a", "Search the requests of all nodes")
	b.see("No such record since ")
	b.goTo("/requests?lang=en&request_id=req-1")
	b.until(`document.querySelector('tbody tr')`)
	if row := b.text("tbody tr"); !strings.Contains(row, "203.0.113.7") || !strings.Contains(row, "limit exceeded") ||
		!strings.Contains(row, "GET /login") {
		t.Error(row)
	}
	b.goTo("/requests?lang=en&path=/export*")
	b.see("No such record since ")
	b.goTo("/requests?lang=en&path=/log*&key=203.0.113.7")
	b.see("GET /login")
	b.usable("requests")
	b.picture("requests-en")
	b.look(390, "light")
	b.goTo("/requests?lang=zh&request_id=req-1")
	b.see("拒绝、封禁与变更")
	b.fits("requests, narrow")
	b.picture("requests-zh-narrow")
}

// TestOverrideIsOfTheRuleInUse, or of the one that the link names, and never of one that the key has not met.
func TestOverrideIsOfTheRuleInUse(t *testing.T) {
	t.Parallel()
	const client = "203.0.113.7"
	s := start(t, "rules:\n  - {name: plan-free, match: {path: /free}, key: [client.ip], limit: 9/1m}\n"+
		"  - {name: plan-pro, match: {path: /pro}, key: [client.ip], limit: fixed_window 90/1h}\n", "--trusted-proxies", "127.0.0.1")
	b := open(t, s)
	chosen := func(path string) string {
		b.goTo(path)
		b.click(".verdict button", "Override")
		b.until(`document.querySelector('dialog select')`)
		return value[string](b, `document.querySelector('dialog select').selectedOptions[0].innerText`)
	}
	if got := chosen("/key?lang=en&q=" + client); got != "choose a rule" {
		t.Errorf("of a key that no rule has counted: %s", got)
	}
	if !b.is(`document.querySelector('dialog button.primary').disabled`) {
		t.Error("an override of no rule can be made")
	}
	if got := chosen("/key?lang=en&rule=plan-pro&q=" + client); got != "rule plan-pro only" {
		t.Errorf("of the rule in the link: %s", got)
	}
	s.want(t, 200, client, "/pro")
	if got := chosen("/key?lang=en&q=" + client); got != "rule plan-pro only" {
		t.Errorf("of the rule in use: %s", got)
	}
	b.see("Last 24 hours")
	b.usable("a key with its history")
	b.picture("key-history-en")
	b.look(390, "light")
	b.goTo("/key?lang=zh&q=" + client)
	b.see("最近 24 小时")
	b.fits("a key with its history, narrow")
	b.picture("key-history-zh-narrow")
}

func TestReadersSeeNoActions(t *testing.T) {
	b := open(t, startWithTokens(t))
	b.expect("401")
	b.load("/key?lang=en&q=203.0.113.7")
	b.fill("input[type=password]", reader)
	b.click("button", "Log in")
	b.see("The next request passes")
	if b.is(`[...document.querySelectorAll('main button')].some((one) => /Override|Block|Allow|Reset/.test(one.innerText))`) {
		t.Error("a reader is offered changes")
	}
}

// TestHostileTextIsText: keys are chosen by clients, reasons by operators.
func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	const hostile = `<img src=x onerror="document.title='owned'"><script>alert(1)</script>'"${1}{{1}}`
	s := startForClients(t)
	agent := []string{"User-Agent", hostile}
	s.want(t, 200, "203.0.113.7", "/agent", agent...)
	s.want(t, 429, "203.0.113.7", "/agent", agent...)
	b := open(t, s)
	b.goTo("/key?lang=en&q=" + url.QueryEscape(hostile))
	b.see("Refused now by agents")
	b.see(`<img src=x onerror="document.title='owned'">`)
	b.click("button", "Block")
	b.fill("dialog [name=why]", hostile)
	b.click("dialog button", "Block")
	b.see("Denied: blocked by")
	for _, page := range []string{"/key", "/changes", "", "/rules/" + url.PathEscape(hostile)} {
		b.expect("404") // of the last
		b.goTo(page + "?lang=en")
		if b.is(`document.title === 'owned' || document.querySelector('main img, main script')`) {
			t.Errorf("%q: a text became an element", page)
		}
	}
}
