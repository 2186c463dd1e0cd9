package browser

import (
	"net/http"
	"strings"
	"testing"
)

// writes sets the rule export, which has this revision ("": it is new).
func (s *server) writes(t *testing.T, limit, etag string) (next string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+"/v1/admin/rules/export?why=launch", strings.NewReader(
		"name: export\nmatch: {path: /export}\nkey: [client.ip]\nlimit: "+limit))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	if etag == "" {
		r.Header.Set("If-None-Match", "*")
	} else {
		r.Header.Set("If-Match", etag)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	return answer.Header.Get("ETag")
}

// TestChangeIsRolledBackFromItsMark: a change is in the list with its reason, and is taken back there.
func TestChangeIsRolledBackFromItsMark(t *testing.T) {
	t.Parallel()
	s := startForClients(t)
	s.writes(t, "fixed_window 3/1h", s.writes(t, "fixed_window 2/1h", ""))
	b := open(t, s)
	b.goTo("/changes?lang=en&kind=made")
	b.click("summary", "launch") // the latest is the first
	b.see("revision 2")
	b.see("  key: [client.ip]\n- limit: fixed_window 2/1h\n+ limit: fixed_window 3/1h")
	b.usable("an open change")
	b.click("button", "Roll back to revision 1")
	b.see("limit fixed_window 3/1h -> fixed_window 2/1h")
	b.fill("dialog [name=why]", "too many")
	b.click("dialog button", "Roll export back to revision 1")
	b.see("export is changed")
	for _, status := range []int{200, 200, 429} {
		s.want(t, status, "203.0.113.7", "/export")
	}
	b.see("too many")
}
