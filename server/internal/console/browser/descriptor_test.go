package browser

import (
	"net/http"
	"strings"
	"testing"
)

const descriptorRules = `
rules:
  - {name: edge.plan_free.user, match: {service: edge, descriptor_keys: [plan=free, user]}, key: [service, entry.1, entry.2], limit: fixed_window 2/1h epoch}
  - {name: tenants, match: {service: mail}, key: [service, descriptor.tenant], limit: fixed_window 1/1h}
`

// decides asks for a decision on descriptors, as an object of JSON.
func (s *server) decides(t *testing.T, service, descriptors string) {
	t.Helper()
	answer, err := http.Post(s.url+"/v1/decide", "application/json", strings.NewReader(`{"request":{"service":"`+service+`","descriptors":`+descriptors+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("a decision: %s", answer.Status)
	}
}

// TestKeysOfDescriptorsAreReadable on each page, and are found by the text that is shown.
func TestKeysOfDescriptorsAreReadable(t *testing.T) {
	t.Parallel()
	s := start(t, descriptorRules)
	for range 6 {
		s.decides(t, "edge", `{"plan":"free","user":"7"}`)
		s.decides(t, "mail", `{"tenant":"acme"}`)
	}
	b := open(t, s)
	for _, lang := range []string{"en", "zh"} {
		b.look(1280, "light")
		b.goTo("?lang=" + lang)
		b.see("edge: plan=free, user=7")
		b.see("mail: tenant=acme")
		b.picture("descriptor-overview-" + lang)
		b.goTo("/rules/edge.plan_free.user?lang=" + lang)
		b.see("edge: plan=free, user=7")
		b.picture("descriptor-rule-" + lang)
		b.click("main table a", "edge: plan=free, user=7")
		b.until(`document.querySelector('h2.mono')?.innerText.startsWith('edge: plan=free, user=7')`)
		b.see("edge.plan_free.user")
		b.picture("descriptor-key-" + lang)
	}
	for _, text := range []string{"edge%3A%20plan%3Dfree%2C%20user%3D7", "7"} { // as it is shown, or by the value that the rule leaves open
		b.goTo("/key?lang=en&q=" + text)
		b.see("Refused now by edge.plan_free.user")
	}
	b.click("button", "Override")
	b.see("edge: plan=free, user=7")
	b.picture("descriptor-override")
	b.usable("the dialog of an override of a descriptor")
}
