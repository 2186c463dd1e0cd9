package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

const refusingRules = `
services: [{name: away, addresses: http://127.0.0.1:1}]
routes: [{name: away, path: /away, service: away}]
deny: {query.who: mallory}
rules:
  - {name: plain, match: {path: /plain}, limit: fixed_window 1/1000h}
  - name: told
    match: {path: /told}
    limit: fixed_window 1/1000h
    message:
      en: "<b>Too many</b> payments at once: try again in {retry_after}. We keep your basket."
      zh: "<b>支付</b>请求过多，请在{retry_after}后重试。购物车已保留。"
`

// TestRefusedPagesOfTheGateway are readable in both languages and themes, and ask for nothing else, so that they are not
// counted twice.
func TestRefusedPagesOfTheGateway(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, refusingRules, "--gateway", "127.0.0.1:0", "--upstream", "demo"))
	for _, status := range []string{"403", "429", "502"} {
		b.expect("the server responded with a status of " + status)
	}
	for _, look := range []struct{ lang, theme, plain, told, away string }{
		{"en", "light", "Too Many Requests", "<b>Too many</b> payments at once: try again in 41 days", "Bad Gateway"},
		{"zh-CN", "dark", "请求过多", "<b>支付</b>请求过多，请在41天", "网关错误"},
	} {
		headers := network.Headers{"Accept-Language": look.lang}
		call(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: headers})
		b.look(1280, look.theme)
		b.do(chromedp.Navigate(b.server.url+"/told"), chromedp.Navigate(b.server.url+"/plain"))
		for _, page := range []struct{ name, path, text string }{
			{"plain", "/plain", look.plain}, {"told", "/told", look.told}, {"away", "/away", look.away},
			{"denied", "/?who=mallory", "403"},
		} {
			what := fmt.Sprintf("refused-%s-%s", page.name, look.lang)
			b.look(1280, look.theme)
			b.do(chromedp.Navigate(b.server.url + page.path))
			b.settled()
			b.see(page.text)
			b.wideAndNarrow(what, look.theme, "rgb(18, 22, 29)")
		}
	}
}
