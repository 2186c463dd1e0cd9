package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

const classRules = `
rules:
  - name: shop
    match: {path: /shop/**}
    limit: fixed_window 20/1h
    reserve:
      classes: {checkout: 0%, browse: 20%, export: 50%}
      match: {checkout: {path: /shop/checkout/**}, export: {path: /shop/export/**}}
      otherwise: browse
`

// TestClassesAreShown: with what each leaves to others, and how often it is refused.
func TestClassesAreShown(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	s := start(t, classRules, "--gateway", "127.0.0.1:0", "--upstream", upstream.URL)
	for _, one := range []struct {
		path  string
		times int
	}{{"/shop/export/all", 17}, {"/shop/shoes", 10}, {"/shop/checkout/cart", 5}} { // 10, 6 and 4 pass
		for range one.times {
			answer, err := http.Get(s.url + one.path)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}
	b := open(t, &server{url: s.http, process: s.process})
	for _, look := range []struct{ lang, theme, title string }{{"en", "light", "Classes"}, {"zh", "dark", "类别"}} {
		b.look(1280, look.theme)
		b.goTo("/rules/shop?lang=" + look.lang)
		b.see(look.title)
		b.until(`[...document.querySelectorAll('.panel')].find((one) => one.ariaLabel === '` + look.title + `')
			?.querySelector('tbody').innerText.replace(/\s+/g, ' ').trim() === 'checkout 0% 1 8.3% browse 20% 4 33% export 50% 7 58%'`)
		b.wideAndNarrow("classes-rule-"+look.lang, look.theme, "rgb(16, 20, 24)")
	}
}
