package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const unitRules = `
rules:
  - {name: tokens, preset: openai, match: {path: /v1/**}, key: [header.X-Team], limit: fixed_window 100000/1h}
  - name: money
    preset: openai
    match: {path: /v1/**}
    key: [header.X-Team]
    unit: USD/1000000
    cost: {from: 10 * json.max_tokens, max: 500000, settle: 2.5 * json.usage.prompt_tokens + 10 * json.usage.completion_tokens}
    limit: calendar 500000000/month in UTC
`

// A model answers with the tokens that a request's header says. A request that is to wait is answered after release is
// closed.
type model struct{ release chan struct{} }

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.Copy(io.Discard, r.Body)
	if r.Header.Get("X-Wait") != "" {
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		<-m.release
	}
	fmt.Fprintf(w, `{"usage": {"prompt_tokens": 0, "completion_tokens": %[1]s, "total_tokens": %[1]s}}`, r.Header.Get("X-Tokens"))
}

// TestUnitsAreShown: with their name, reserved beside spent, with the biggest spenders and the cost of each request.
func TestUnitsAreShown(t *testing.T) {
	t.Parallel()
	m := &model{make(chan struct{})}
	upstream := httptest.NewServer(m)
	defer upstream.Close()
	defer close(m.release)
	s := start(t, unitRules, "--gateway", "127.0.0.1:0", "--upstream", upstream.URL, "--audit", filepath.Join(t.TempDir(), "audit.log"))
	ask := func(team string, tokens int, wait string) {
		t.Helper()
		request, err := http.NewRequest("POST", s.url+"/v1/chat/completions", strings.NewReader(`{"max_tokens": 1995}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"X-Team": {team}, "X-Tokens": {fmt.Sprint(tokens)}, "X-Wait": {wait}, "X-Request-Id": {fmt.Sprint(team, "-", tokens)}}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if wait != "" {
			t.Cleanup(func() { answer.Body.Close() })
			return
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	for i := range 20 {
		ask(fmt.Sprint("small", i%4), 10, "")
	}
	ask("large", 1500, "")
	for range 3 {
		ask("waiting", 7, "yes")
	}
	for range 60 {
		ask("refused", 1990, "") // 50 fit
	}
	b := open(t, &server{url: s.http, process: s.process})
	for _, look := range []struct{ lang, theme, spent, reserved, spenders, cost string }{
		{"en", "light", "101K tokens", "6,000", "Biggest spenders", "1,500 of 2,000 tokens"},
		{"zh", "dark", "10.1万 tokens", "6,000", "消耗最多的键", "1,500（预估 2,000 tokens）"},
	} {
		b.look(1280, look.theme)
		b.goTo("?lang=" + look.lang)
		b.see(look.spent)
		b.see("USD")
		b.wideAndNarrow("units-overview-"+look.lang, look.theme, "rgb(16, 20, 24)")
		b.look(1280, look.theme)
		b.goTo("/rules/tokens?lang=" + look.lang)
		b.see(look.spent)
		b.see(look.reserved)
		b.see(look.spenders)
		b.until(`[...document.querySelectorAll('.panel')].find((one) => one.ariaLabel === '` + look.spenders + `').querySelector('tbody th').innerText === 'refused'`)
		b.wideAndNarrow("units-rule-"+look.lang, look.theme, "rgb(16, 20, 24)")
		b.look(1280, look.theme)
		b.goTo("/requests?outcome=cost&key=large&lang=" + look.lang)
		b.see(look.cost)
		b.see("0.015")
		b.wideAndNarrow("units-requests-"+look.lang, look.theme, "rgb(16, 20, 24)")
		b.look(1280, look.theme)
		b.goTo("/key?q=large&lang=" + look.lang)
		b.see("98,500 tokens")
		b.see("499.985 USD")
		b.wideAndNarrow("units-key-"+look.lang, look.theme, "rgb(16, 20, 24)")
	}
	b.look(1280, "light")
	b.goTo("/requests?request_id=large-1500&lang=en")
	b.see("1,500 of 2,000 tokens")
	b.goTo("/requests?lang=en")
	b.see("limit exceeded")
	if b.is(`document.body.innerText.includes('1,500 of 2,000')`) {
		t.Error("costs are among the refusals")
	}
}
