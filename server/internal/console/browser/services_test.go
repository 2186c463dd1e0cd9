package browser

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestServicesShowTheirLimit: a service at its limit, its latency, and who is refused.
func TestServicesShowTheirLimit(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan bool), make(chan bool)
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- true
		<-leave
	}))
	t.Cleanup(service.Close)
	t.Cleanup(func() { close(leave) })
	s := start(t, `
rules: []
services: [{name: search, addresses: `+service.URL+`, concurrency: {adaptive: gradient, min: 2, max: 2,
  reserve: {by: header.X-Criticality, classes: {critical: 0%, batch: 50%}}}}]
routes: [{name: all, service: search}]
server: {trusted_proxies: [127.0.0.1]}
`, "--gateway", "127.0.0.1:0")
	go http.Get(s.url)
	<-inside
	for range 3 {
		response, err := http.Get(s.url)
		if err != nil || response.StatusCode != 503 {
			t.Fatal(response, err)
		}
		response.Body.Close()
	}
	b := open(t, &server{url: s.http, process: s.process})
	b.goTo("/services?lang=en")
	b.see("by latency, 2 to 2")
	b.until(`[...document.querySelectorAll('tbody tr')].some((one) => one.innerText.includes('search') && one.innerText.includes('75%'))`)
	b.usable("services")
	b.picture("services-en")
	b.look(390, "dark")
	b.goTo("/services?lang=zh")
	b.see("随服务变化的并发限额")
	b.fits("services, narrow")
	b.picture("services-zh-narrow")
}
