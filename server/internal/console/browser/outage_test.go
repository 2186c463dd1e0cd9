package browser

import (
	"encoding/json"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// TestKeyWhileTheStoreIsDown says what this server does by itself, and never that a refused client passes.
func TestKeyWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	const client = "203.0.113.7"
	s := start(t, keyRules+"  - {name: strict, match: {path: /pay}, key: [client.ip], limit: 9/1m, on_store_error: deny}\n",
		"--store", "redis://127.0.0.1:1", "--ledger", "none", "--trusted-proxies", "127.0.0.1")
	b := open(t, s)
	b.expect("503")
	b.goTo("/key?lang=en&q=" + client)
	b.see("Refused: the store does not answer, and strict then refuses all its requests")
	for _, status := range []int{200, 200, 429} {
		s.want(t, status, client, "/login")
	}
	b.until(`[...document.querySelectorAll('tbody tr')].some((one) => one.innerText.includes('login') && one.innerText.includes('own counts') && one.querySelector('.wrong'))`)
	if b.is(`document.body.innerText.includes('passes every rule')`) {
		t.Error("a client that is refused passes every rule")
	}
	b.usable("a key while the store is down")
	b.picture("key-store-down-en")
	b.look(390, "light")
	b.goTo("/key?lang=zh&q=" + client)
	b.see("本服务器自己的计数")
	b.fits("a key while the store is down, narrow")
	b.picture("key-store-down-zh-narrow")
}

// TestHungServer: figures of a server that does not answer any more stand with their time.
func TestHungServer(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.goTo("?lang=en")
	b.see("Rules by harm")
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.process.Signal(syscall.SIGCONT) })
	b.see("The server does not answer within 10 s.")
	if text := b.text(".stale"); !strings.HasPrefix(text, "As of ") {
		t.Error(text)
	}
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.click("button", "Try again")
	b.until(`!document.querySelector('.stale')`)
}

// answers makes documents of the admin API fixed, by the end of their path.
func (b *tab) answers(documents map[string]any) {
	b.t.Helper()
	text, err := json.Marshal(documents)
	if err != nil {
		b.t.Fatal(err)
	}
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `(() => {
		const fixed = ` + string(text) + `, real = fetch;
		window.fetch = (url, options) => {
			const path = Object.keys(fixed).find((one) => String(url).split('?')[0].endsWith(one));
			return path ? Promise.resolve(new Response(JSON.stringify(fixed[path]))) : real(url, options);
		};
	})()`})
}

// TestHealthOfNodesThatDiffer: with different rules nothing is exact, and a node that reads no others knows nothing of
// them.
func TestHealthOfNodesThatDiffer(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules))
	node := func(name, revision string) map[string]any {
		return map[string]any{"name": name, "version": "1", "revision": revision, "store_up": true, "bound": "strict",
			"seen": "2100-01-01T00:00:00Z", "started": "2026-01-01T00:00:00Z", "store_p50_ns": 0, "store_p99_ns": 0, "recall_hits": 0,
			"lease_hits": 0, "keys": 0, "overflow": 0, "clock_offset_ns": 0}
	}
	b.answers(map[string]any{"telemetry/nodes": map[string]any{"nodes": []any{node("a", "ab6b62049ee7173546dd671e+3"),
		node("b", "ab6b62049ee7173546dd671e+4")}}})
	b.goTo("/health?lang=en")
	b.see("Not exact: the nodes have different rules")
	b.see("ab6b6204+4")
	alone := node("a", "x+1")
	alone["alone"], alone["problems"] = true, []string{"the other nodes are not shown"}
	b.answers(map[string]any{"telemetry/nodes": map[string]any{"nodes": []any{alone}}})
	b.goTo("/health?lang=en")
	b.see("the other nodes cannot be read")
	if tiles := b.text(".tiles"); strings.Contains(tiles, "same") || strings.Count(tiles, "not known") != 3 {
		t.Error(tiles)
	}
	b.picture("health-alone-en")
}

// TestAlertsAreWordedByThePage in its language, from their values; beyond three they are folded.
func TestAlertsAreWordedByThePage(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules))
	alert := func(name string, more map[string]any) map[string]any {
		one := map[string]any{"name": name, "text": "the text of the server", "since": "2026-01-01T00:00:00Z", "value": 0.61, "limit": 0.1,
			"total": 5609, "window_ns": 60e9}
		maps.Copy(one, more)
		return one
	}
	alerts := []any{alert("reject_share", map[string]any{"rule": "login", "alone": true}),
		alert("reject_share", map[string]any{"count": 142, "rules": []string{"a", "b", "c"}}),
		alert("reject_share", map[string]any{"rule": "a"}), alert("reject_share", map[string]any{"rule": "b"}), alert("of a later version", nil)}
	b.answers(map[string]any{"telemetry/overview": map[string]any{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:15:00Z",
		"step_ns": 10e9, "total": map[string]any{"passed": 0, "refused": 0, "denied": 0, "failed": 0}, "series": []any{}, "rules": []any{}, "nodes": []any{}, "alerts": alerts}})
	b.goTo("/?lang=en")
	b.see("Rule login refused 61% of 5,609 requests in 1 min, more than 10% (counted on one node")
	b.see("; and 141 more, such as b, c")
	b.see("and 2 more")
	b.until(`document.querySelector('.banner details').open = true`)
	b.see("the text of the server")
	b.usable("alerts")
	b.picture("alerts-en")
	b.goTo("/?lang=zh")
	b.see("规则 login 在 1 min 内拒绝了 5,609 个请求中的 61%，超过 10%")
	b.see("另有 2 项")
	b.picture("alerts-zh")
	if text := b.text(".banner"); strings.Contains(text, "store") || strings.Contains(text, "more") {
		t.Error(text)
	}
}
