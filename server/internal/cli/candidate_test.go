//go:build unix

package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const search = `name: search # of the shop
match: {path: /search}
key: [client.ip]
limit: fixed_window 4/1h
candidate: {limit: fixed_window 2/1h}
`

// TestPromoteCandidate: compared, told of beforehand, promoted on all nodes, taken back.
func TestPromoteCandidate(t *testing.T) {
	t.Parallel()
	servers := nodes(t)
	ann, bob := operate(t, servers[0]), operate(t, servers[1])
	if r := ann.sets(search, "search"); r.code != 0 {
		t.Fatal(r)
	}
	redistest.Await(t, "the candidate on the second node", func() bool {
		return bob.run(t, "rules", "compare",
			"search").code == 0
	})
	for i, want := range []int{200, 200, 200, 200, 429} {
		if got := status(t, servers[0].at("gateway")+"/search"); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	compared(t, ann, bob)
	const kept = "search: limit fixed_window 4/1h -> fixed_window 2/1h; candidate changed; counts are kept\n"
	if out := ann.does("rules", "promote", "search", "--dry-run"); out != kept {
		t.Errorf("it prints %s", out)
	}
	bob.fails(1, `rule "search" is at revision 1, not at 7`, "rules", "promote", "search", "--revision", "7")
	if out := bob.does("rules", "promote", "search", "--why", "quiet"); out != kept+"revision 2, in force\n" {
		t.Errorf("it prints %s", out)
	}
	if got := ann.does("rules", "get", "search"); !strings.HasSuffix(got,
		": quiet\nname: search # of the shop\nmatch: {path: /search}\nkey: [client.ip]\nlimit: fixed_window 2/1h\n") {
		t.Errorf("the rule is\n%s", got)
	}
	redistest.Await(t, "the end of the candidate on the first node", func() bool {
		return ann.run(t, "rules", "compare",
			"search").code == 1
	})
	ann.fails(1, `there is no rule "search" in force that has a candidate`, "rules", "compare", "search")
	ann.fails(1, "one that has a candidate", "rules", "promote", "search")
	if history := ann.does("rules", "history", "search"); !regexp.MustCompile(`2 .* promote +search +quiet ` +
		`+search: limit .* -> .*; candidate changed; counts are kept`).MatchString(history) {
		t.Errorf("the history is\n%s", history)
	}
	ann.does("rules", "rollback", "search", "1")
	if got := ann.does("rules", "get", "search"); !strings.HasSuffix(got, search) {
		t.Errorf("after the rollback:\n%s", got)
	}
	for _, p := range servers {
		p.end()
	}
}

// compared fails the test unless each node tells of the requests that it decided.
func compared(t *testing.T, ann, bob *operator) {
	t.Helper()
	out := ann.does("rules", "compare", "search")
	for _, want := range []string{`^search: fixed_window 4/1h\ncandidate: fixed_window 2/1h\nrequests to this ` +
		`server since 20\S+Z:\n`,
		`grants +grants +2 +40\.0%`, `grants +refuses +2 +40\.0% +newly refused\n`,
		`refuses +grants +0 +0\.0% +no longer refused\n`, `refuses +refuses +1 +20\.0%`,
		`\nNEWLY REFUSED +REQUESTS\nclient\.ip=9:127\.0\.0\.1 +2\n$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("it has no %s:\n%s", want, out)
		}
	}
	if out := ann.does("rules", "compare", "search", "--keys", "0"); strings.Contains(out, "127.0.0.1") {
		t.Errorf("it prints\n%s", out)
	}
	ann.fails(2, "--keys is 101; allowed: 0 to 100", "rules", "compare", "search", "--keys", "101")
	var answer struct {
		Refused int64 `json:"newly_refused"`
	}
	if err := json.Unmarshal([]byte(bob.does("rules", "compare", "search", "--json")),
		&answer); err != nil || answer.Refused != 0 {
		t.Errorf("the other node: %+v %v", answer, err)
	}
}

// TestPromoteRuleOutsideLedger: it is not copied into the ledger.
func TestPromoteRuleOutsideLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "token", "ann:an-operators-token\n")
	p := call{dir: dir, env: []string{"WEIR_ADMIN_READ_TOKEN=viewer:who-only-looks-on"}}.serve(t,
		"--admin-token-file", "token",
		"--config", write(t, dir, "rules.yaml", "rules:\n  - {name: search, key: [client.ip], limit: 5/1m, "+
			"candidate: {limit: 3/1m, key: [user]}}\n"))
	ann, viewer := operate(t, p, "WEIR_TOKEN=an-operators-token"), operate(t, p, "WEIR_TOKEN=who-only-looks-on")
	if out := viewer.does("rules", "compare", "search"); !strings.Contains(out,
		"candidate: token_bucket 3/1m, by user\n") && !strings.Contains(out, "candidate: 3/1m, by user\n") {
		t.Errorf("it prints\n%s", out)
	}
	ann.fails(1, `rule "search" is from config, and not in the ledger: promote it where it is written`, "rules",
		"promote", "search")
	ann.fails(1, "the ledger does not have it", "rules", "promote", "nobody")
	if r := ann.sets("{name: search, key: [client.ip], limit: 5/1m, candidate: {limit: 3/1m, key: [user]}}",
		"search"); r.code != 0 {
		t.Error(r)
	}
	viewer.fails(1, "viewer may only read", "rules", "promote", "search", "--yes")
	ann.fails(1, "counts would be reset; give --yes", "rules", "promote", "search")
	if out := ann.does("rules", "promote", "search", "--yes"); !strings.Contains(out,
		"counts start anew: its key is another\nrevision 2, in force") {
		t.Errorf("it prints %s", out)
	}
	p.end()
}

// TestControlCharactersOfAReasonAreEscaped: it stays one line of a table, and sends nothing to the terminal.
func TestControlCharactersOfAReasonAreEscaped(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", perIP))
	ann := operate(t, p)
	const why, shown = "one\ntwo\x1b[2J", `"one\ntwo\x1b[2J"`
	ann.does("block", "203.0.113.7", "--for", "7d", "--why", why)
	if r := ann.sets(login("5/1m"), "login", "--why", why); r.code != 0 {
		t.Fatal(r)
	}
	list := ann.does("override", "list")
	again := ann.run(t, "block", "203.0.113.7", "--for", "1h", "--why", "shorter")
	for what, text := range map[string]string{"the list": list, "the history": ann.does("rules", "history"),
		"the rule": ann.does("rules", "get", "login"), "the replacement": again.err} {
		if strings.Contains(text, "\x1b") || !strings.Contains(text, shown) {
			t.Errorf("%s is\n%s", what, text)
		}
	}
	p.end()
}

// TestBansAreListedAndLiftedOnAllNodes: the bare value names whose where the key has one component.
func TestBansAreListedAndLiftedOnAllNodes(t *testing.T) {
	t.Parallel()
	servers := nodes(t)
	ann, bob := operate(t, servers[0]), operate(t, servers[1])
	guess := "name: guess\nmatch: {path: /guess}\nkey: [client.ip]\nlimit: fixed_window 2/1h\nban: {after: 1 " +
		"refusals within 1m, for: 1h}\n"
	if r := ann.sets(guess, "guess"); r.code != 0 {
		t.Fatal(r)
	}
	for i, want := range []int{200, 200, 429} {
		if got := status(t, servers[0].at("gateway")+"/guess"); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	const key = "client.ip=9:127.0.0.1"
	row := regexp.MustCompile(`(?m)^guess +` + regexp.QuoteMeta(key) + ` +20\S+Z +20\S+Z +1h0m0s +all nodes$`)
	if list := ann.does("bans", "list"); !row.MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	redistest.Await(t, "the rule on the second node", func() bool {
		return bob.run(t, "keys", "get", "127.0.0.1", "--rule",
			"guess").code == 0
	})
	if list := bob.does("bans", "list"); !row.MatchString(list) {
		t.Errorf("the list of the other node is\n%s", list)
	}
	if out := bob.does("keys", "get", "127.0.0.1", "--rule", "guess"); !regexp.MustCompile(`(?m)^banned for ` +
		`another 3[56]\S+s; weir bans lift`).MatchString(out) {
		t.Errorf("it prints %s", out)
	}
	if bare, raw := bob.does("keys", "get", "127.0.0.1", "--rule", "guess", "--json"), bob.does("keys", "get", key,
		"--rule", "guess", "--json"); !strings.Contains(bare, `"key": "`+key+`"`) || !strings.Contains(raw,
		`"key": "`+key+`"`) {
		t.Errorf("by the value:\n%s\nby the key as it is listed:\n%s", bare, raw)
	}
	bob.does("keys", "reset", key, "--rule", "guess")
	bob.fails(1, "one for each component", "keys", "get", "--rule", "guess")
	if out := bob.does("bans", "lift", "guess", "127.0.0.1", "--why",
		"ours"); out != key+" is no longer banned by guess\n" {
		t.Errorf("it prints %s", out)
	}
	if list := ann.does("bans", "list"); strings.Contains(list, key) {
		t.Errorf("after the lift:\n%s", list)
	}
	if out := bob.does("bans", "lift", "guess", "--value", "127.0.0.1"); !strings.Contains(out,
		key+" was not banned by guess") {
		t.Errorf("it prints %s", out)
	}
	if out := ann.does("bans", "list", "--json"); !strings.Contains(out, `"bans": []`) {
		t.Errorf("it prints %s", out)
	}
	ann.fails(1, `rule is "per-ip"; allowed: one that is in force and has a ban`, "bans", "lift", "per-ip", key)
	ann.fails(1, "allowed: an address", "bans", "lift", "guess", "nobody")
	ann.fails(1, `one for each component`, "bans", "lift", "guess", "--value", "127.0.0.1", "--value", "x")
	ann.fails(2, "give a KEY", "bans", "lift", "guess")
	ann.fails(2, "give a KEY", "bans", "lift", "guess", key, "--value", "127.0.0.1")
	for _, p := range servers {
		p.end()
	}
	if logs := servers[1].logs(); !strings.Contains(logs, "a ban was lifted") || !strings.Contains(logs, "why=ours") {
		t.Errorf("the logs are\n%s", logs)
	}
}
