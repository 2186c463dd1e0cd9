package cli_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestSlowDecisionsAreNoted: check says what a decision of many limits costs Redis.
func TestSlowDecisionsAreNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "rules:"
	for i := range 20 {
		if i%4 == 0 {
			text += fmt.Sprintf("\n- name: r%d\n  limit:", i)
		}
		text += fmt.Sprintf("\n  - sliding_log %d/%ds", 100+i, 1+i)
	}
	write(t, dir, "rules.yaml", text)
	r := (call{dir: dir}).run(t, "check", "rules.yaml")
	if r.code != 0 || !strings.Contains(r.out, "note: rules.yaml: a request that meets the most limits takes about 0.2 ms of Redis") {
		t.Error(r)
	}
}

// TestCeilingsOfWindowsAreNoted: the ceiling is a multiple of what the limit grants at once, which is twice a window.
func TestCeilingsOfWindowsAreNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", "rules:\n- {name: w, limit: fixed_window 10/1h, local_ceiling: 1.2}\n"+
		"- {name: l, limit: sliding_log 10/1h, local_ceiling: 1.2}\n- {name: b, limit: 10/1h, local_ceiling: 1.2}\n")
	r := (call{dir: dir}).run(t, "check", "rules.yaml")
	const want = "note: rules.yaml: rule w: with local_ceiling 1.2 of fixed_window 10/1h one node passes at most 24 at once"
	if r.code != 0 || !strings.Contains(r.out, want) || strings.Count(r.out, "note: ") != 1 {
		t.Error(r)
	}
}

// TestDisabledRulesAreVisible: a server starts whose only rules are disabled, and each command names them.
func TestDisabledRulesAreVisible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", "rules:\n- {name: off, enabled: false, match: {path: /a/**}, limit: 1/1h, "+
		"description: \"Not now\", labels: {team: x}}\n")
	shows := func(want string, args ...string) {
		t.Helper()
		if r := (call{dir: dir}).run(t, args...); r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("want %q:\n%v", want, r)
		}
	}
	shows("note: rules.yaml: rule off is disabled\n1 rule, no mistakes\n", "check", "rules.yaml")
	shows("it is disabled, and would match", "explain", "--config", "rules.yaml", "--path", "/a")
	p := call{dir: dir}.serve(t, "--config", "rules.yaml", "--ledger", dir+"/ledger")
	if !strings.Contains(p.banner, "off (disabled)") {
		t.Errorf("the banner is\n%s", p.banner)
	}
	ann := operate(t, p)
	if out := ann.does("rules", "list"); !strings.Contains(out, "disabled") {
		t.Error(out)
	}
	p.end()
}
