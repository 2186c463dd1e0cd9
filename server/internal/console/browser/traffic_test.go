package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// decide asks for n decisions about a client and a path, and returns how many were refused.
func (s *server) decide(t *testing.T, n int, client, path string) (refused int) {
	t.Helper()
	for range n {
		body := fmt.Sprintf(`{"request": {"client": %q, "path": %q}}`, client, path)
		answer, err := http.Post(s.url+"/v1/decide", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var decision struct{ Allowed bool }
		err = json.NewDecoder(answer.Body).Decode(&decision)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !decision.Allowed {
			refused++
		}
	}
	return refused
}

// exactRules have a limit that no unit comes back to during a test, however busy the machine is.
var exactRules = strings.Replace(someRules, "5/1m", "5/1h", 1)

// TestFiguresMove: what clients are answered is on the page, exactly, without a reload.
func TestFiguresMove(t *testing.T) {
	t.Parallel()
	s := start(t, exactRules)
	b := open(t, s)
	b.goTo("?lang=en")
	b.see("0 requests")
	if refused := s.decide(t, 25, "203.0.113.7", "/login"); refused != 20 {
		t.Fatalf("%d of 25 logins were refused, not 20", refused)
	}
	s.decide(t, 5, "198.51.100.1", "/login")
	b.see("20 requests")
	b.until(`document.querySelector('tbody th a')?.innerText === 'login'`)
	b.see("203.0.113.7")
	if row := b.text("tbody tr"); !strings.Contains(row, "67%") {
		t.Errorf("20 of 30 were refused: %s", row)
	}
	s.decide(t, 10, "203.0.113.7", "/login")
	b.see("30 requests")
}

// TestSixQuestions: each is answered within two clicks from the overview.
func TestSixQuestions(t *testing.T) {
	t.Parallel()
	s := start(t, exactRules)
	s.decide(t, 40, "203.0.113.7", "/login")
	for i := range 30 {
		s.decide(t, 2, fmt.Sprintf("198.51.100.%d", i), "/login")
	}
	b := open(t, s)
	overview := func() {
		b.goTo("?lang=en")
		b.until(`document.querySelector('tbody th a')?.innerText === 'login' && document.body.innerText.includes('35 requests')`)
	}
	overview()
	// 1, 2: the client that is limited, and the rule: no click.
	if row := b.text("tbody tr"); !strings.Contains(row, "login") || !strings.Contains(row, "203.0.113.7") {
		t.Errorf("the first row is %s", row)
	}
	// 3: abuse, or a limit that is too tight: one click.
	b.click("tbody th a", "login")
	b.until(`document.querySelector('[data-reading=abuse]')`)
	if text := b.text(".reading"); !strings.HasPrefix(text, "1 of 31 keys makes 100% of the refusals") {
		t.Errorf("it is read as: %s", text)
	}
	// 4: the state of the limiter itself: one click.
	overview()
	b.click("nav a", "Health")
	b.see("strict")
	// 5: changes: one click.
	overview()
	b.click("nav a", "Changes")
	b.see("Node start")
	// 6: the way to undo it for one customer: two clicks.
	overview()
	b.click("tbody td.key a", "203.0.113.7")
	b.see("5/1h")
	b.click("button", "Reset")
	b.until(`document.querySelector('dialog')`)
}

// TestCandidateIsCompared: a candidate that is typed is counted beside the rule, and the rule's own limit stays.
func TestCandidateIsCompared(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.goTo("/rules/login?lang=en")
	b.edit("limit: 5/1m", "limit: 5/1m\ncandidate: {limit: 50/1m}")
	b.see("login: candidate")
	b.click(".effect button", "Save…")
	b.until(`document.querySelector('dialog .changes')`)
	b.click("dialog button.primary", "Save")
	b.see("Live and candidate")
	if limit := s.limitOf(t, "login"); limit != "5/1m" {
		t.Errorf("the limit in force is %s", limit)
	}
	s.decide(t, 10, "203.0.113.99", "/login")
	b.until(`document.querySelector('.compare')?.innerText.includes('10')`)
}
