//go:build unix

package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
)

const perIP = "rules:\n  - {name: per-ip, key: [client.ip], limit: fixed_window 1000/1h}\n"

// An operator runs weir's commands for a server.
type operator struct {
	t *testing.T
	call
	server *process
}

func operate(t *testing.T, server *process, env ...string) *operator {
	return &operator{t: t, call: call{dir: t.TempDir(), env: append(env, "WEIR_SERVER="+server.at("http"),
		"WEIR_SERVER_TIMEOUT=10s")}, server: server}
}

// does fails the test unless the command succeeds, and returns what it prints.
func (o *operator) does(args ...string) string {
	o.t.Helper()
	r := o.run(o.t, args...)
	if r.code != 0 {
		o.t.Fatalf("weir %s: %v", strings.Join(args, " "), r)
	}
	return r.out
}

// fails fails the test unless the command fails with that code and text.
func (o *operator) fails(code int, want string, args ...string) {
	o.t.Helper()
	if r := o.run(o.t, args...); r.code != code || !strings.Contains(r.err, want) {
		o.t.Errorf("weir %s: want exit %d and %q: %v", strings.Join(args, " "), code, want, r)
	}
}

// sets a rule from the standard input.
func (o *operator) sets(yaml string, args ...string) ran {
	o.t.Helper()
	c := o.call
	c.in = yaml
	return c.run(o.t, append([]string{"rules", "set"}, args...)...)
}

func login(limit string) string {
	return "name: login\nmatch: {path: /login}\nkey: [client.ip]\nlimit: " + limit + "\n"
}

// nodes are two servers with one Redis and one ledger.
func nodes(t *testing.T) (list []*process) {
	t.Helper()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "rules.yaml", perIP)
	for range 2 {
		list = append(list, call{}.serve(t, "--config", file, "--store", redis.URL(),
			"--ledger", "redis",
			"--gateway", "127.0.0.1:0", "--upstream", "demo"))
	}
	return list
}

func passes(t *testing.T, servers []*process, path string, want int) func() bool {
	return func() bool {
		for _, p := range servers {
			if status(t, p.at("gateway")+path) != want {
				return false
			}
		}
		return true
	}
}

// TestBlockIsInForceOnAllNodes, and ends by itself or by command.
func TestBlockIsInForceOnAllNodes(t *testing.T) {
	t.Parallel()
	servers := nodes(t)
	ann := operate(t, servers[0])
	if out := ann.does("block", "127.0.0.0/8", "--for", "1h", "--why", "scanning"); !strings.Contains(out,
		"block-") || !strings.Contains(out, "in force") {
		t.Errorf("it prints %s", out)
	}
	if got := status(t, servers[0].at("gateway")+"/"); got != 403 { // this node has answered for itself
		t.Errorf("%d", got)
	}
	redistest.Await(t, "the block on both nodes", passes(t, servers, "/", 403))
	list := operate(t, servers[1]).does("override", "list")
	found := regexp.MustCompile(`(block-\w+) +block +- +127\.0\.0\.0/8 .*scanning +in force`).FindStringSubmatch(list)
	if found == nil {
		t.Fatalf("the list is\n%s", list)
	}
	operate(t, servers[1]).does("override", "delete", found[1], "--why", "it was us")
	redistest.Await(t, "no block", passes(t, servers, "/", 200))
	blocked := passes(t, servers, "/", 403)
	redistest.Await(t, "a block before its end", func() bool {
		ann.does("block", "127.0.0.1", "--for", "2s", "--rule", "per-ip")
		return blocked()
	})
	redistest.Await(t, "its end", passes(t, servers, "/", 200))
	if list := ann.does("override", "list"); strings.Contains(list, "block-") {
		t.Errorf("the list is\n%s", list)
	}
	history := ann.does("rules", "history", found[1])
	if !regexp.MustCompile(`(?s)2 .*delete +` + found[1] + ` +it was us.*1 .*set ` +
		`+` + found[1] + ` +scanning`).MatchString(history) {
		t.Errorf("the history is\n%s", history)
	}
	for _, p := range servers {
		p.end()
	}
}

// TestOverrideOfRuleInFile: the rule need not be in the ledger.
func TestOverrideOfRuleInFile(t *testing.T) {
	t.Parallel()
	servers := nodes(t)
	ann := operate(t, servers[0])
	ann.does("override", "set", "127.0.0.1", "--rule", "per-ip", "--limit", "fixed_window 2/1h", "--for", "1h",
		"--why", "too much")
	for i, want := range []int{200, 200, 429} {
		if got := status(t, servers[0].at("gateway")+"/"); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	redistest.Await(t, "the override on both nodes", passes(t, servers, "/", 429))
	if out := ann.does("keys", "get", "127.0.0.1", "--rule", "per-ip"); !regexp.MustCompile(`fixed_window 2/1h ` +
		`+0 `).MatchString(out) {
		t.Errorf("it prints\n%s", out)
	}
	if out := ann.does("keys", "reset", "127.0.0.1", "--rule", "per-ip", "--why",
		"tested"); !regexp.MustCompile(`fixed_window 2/1h +2 `).MatchString(out) {
		t.Errorf("it prints\n%s", out)
	}
	for range 2 {
		status(t, servers[0].at("gateway")+"/")
	}
	redistest.Await(t, "the refusal on both nodes", passes(t, servers, "/", 429))
	ann.fails(1, "give --yes", "keys", "reset", "--rule", "search")
	ann.fails(1, `weir: rule is "search"; allowed: one that`, "keys", "reset", "--rule", "search", "--yes")
	if out := ann.does("keys", "reset", "--rule", "per-ip", "--yes"); out != "all keys of per-ip are reset: 1\n" {
		t.Errorf("it prints\n%s", out)
	}
	redistest.Await(t, "the reset on the other node", func() bool { return status(t, servers[1].at("gateway")+"/") == 200 })
	bob := operate(t, servers[1])
	if out := bob.does("rules", "history", "per-ip"); !strings.Contains(out, "reset all keys") {
		t.Errorf("the history is\n%s", out)
	}
	if out := bob.does("rules", "history", "per-ip"); !regexp.MustCompile(`2 +\S+ +somebody at 127\.0\.0\.1 ` +
		`+reset +per-ip +tested +key client\.ip=9:127\.0\.0\.1\n`).MatchString(out) {
		t.Errorf("the history is\n%s", out)
	}
	r := bob.run(t, "override", "set", "127.0.0.1", "--rule", "per-ip", "--limit", "fixed_window 9/1h", "--for", "1h")
	if r.code != 0 || !strings.Contains(r.err, "this replaces override-") || !strings.Contains(r.err, "too much") {
		t.Error(r)
	}
	ann.fails(1, "one that fits: overrides[0].key has 2 values", "override", "set", "127.0.0.1", "x", "--rule",
		"per-ip", "--limit", "9/1h", "--for", "1h")
	ann.fails(1, `rule is "gone"; allowed: one that is in force`, "override", "set", "127.0.0.1", "--rule", "gone",
		"--limit", "9/1h", "--for", "1h")
	ann.fails(2, "--for is missing", "block", "127.0.0.1")
	for _, p := range servers {
		p.end()
	}
}

func TestTwoOperatorsDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	servers := nodes(t)
	ann, bob := operate(t, servers[0]), operate(t, servers[1])
	if r := ann.sets(login("fixed_window 5/1h"), "login", "--why",
		"brute force"); r.code != 0 || !strings.Contains(r.out, "login: added\nrevision 1, in force") {
		t.Fatal(r)
	}
	seen := bob.does("rules", "get", "login")
	if !strings.HasPrefix(seen, "# revision 1, in force, by somebody at 127.0.0.1 on ") || !strings.HasSuffix(seen,
		": brute force\n"+login("fixed_window 5/1h")) {
		t.Errorf("bob sees\n%s", seen)
	}
	if r := ann.sets(login("fixed_window 4/1h"), "login"); r.code != 1 || !strings.Contains(r.err,
		"your text names no revision: use weir rules edit login") {
		t.Error(r)
	}
	if r := ann.sets(strings.Replace(seen, "5/1h", "4/1h", 1), "login"); r.code != 0 || !strings.Contains(r.out,
		"login: limit fixed_window 5/1h -> fixed_window 4/1h; counts are kept\nrevision 2, in force") {
		t.Error(r)
	}
	if r := bob.sets(login("fixed_window 9/1h"), "login", "--revision", "1"); r.code != 1 || !strings.Contains(r.err,
		`rule "login" is at revision 2, not at 1`) {
		t.Error(r)
	}
	if r := bob.sets(strings.Replace(seen, "5/1h", "9/1h", 1), "login"); r.code != 1 || !strings.Contains(r.err,
		`rule "login" is at revision 2, not at 1`) {
		t.Error(r)
	}
	bob.fails(1, "is at revision 2, not at 1", "rules", "disable", "login", "--revision", "1")
	bob.fails(1, "is at revision 2, not at 1", "rules", "delete", "login", "--revision", "1")
	status, _, body := put(t, servers[1].at("http")+"/v1/admin/rules/login", login("fixed_window 9/1h"), "If-Match",
		`"1"`)
	var problem struct{ Current int64 }
	if err := json.Unmarshal([]byte(body), &problem); status != http.StatusPreconditionFailed || err != nil || problem.Current != 2 {
		t.Errorf("%d %s", status, body)
	}
	if r := bob.sets(login("sliding_log 4/1h"), "login", "--revision", "2"); r.code != 1 || !strings.Contains(r.err,
		"login: limit fixed_window 4/1h -> sliding_log 4/1h; counts start anew: limit 1 counts by sliding_log") || !strings.Contains(r.err, "--yes") {
		t.Error(r)
	}
	if r := bob.sets(login("sliding_log 4/1h"), "login", "--yes", "--force"); r.code != 0 {
		t.Error(r)
	}
	if out := ann.does("rules", "rollback", "login", "1", "--yes"); !strings.Contains(out, "revision 4, in force") {
		t.Errorf("it prints %s", out)
	}
	if got := ann.does("rules", "get", "login"); !strings.HasSuffix(got, login("fixed_window 5/1h")) {
		t.Errorf("after the rollback:\n%s", got)
	}
	ann.does("rules", "disable", "login")
	if list := ann.does("rules", "list"); !regexp.MustCompile(`login +fixed_window 5/1h +disabled +ledger `+
		`+5 `).MatchString(list) || !regexp.MustCompile(`per-ip +fixed_window 1000/1h +in force +config `+
		`+- `).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	ann.does("rules", "enable", "login")
	ann.does("rules", "delete", "login", "--why", "over")
	ann.fails(1, "the ledger does not have it", "rules", "get", "login")
	ann.fails(1, "the ledger does not have it", "rules", "enable", "login")
	history := bob.does("rules", "history", "login")
	for _, want := range []string{"7 .*delete +login +over +login: removed", "4 .*rollback to 1 ",
		"1 .*set +login +brute force +login: added"} {
		if !regexp.MustCompile(want).MatchString(history) {
			t.Errorf("the history has no %q:\n%s", want, history)
		}
	}
	for _, p := range servers {
		p.end()
	}
}

// TestRulesEdit: what was edited is of the revision that the editor was given, and no text is lost.
func TestRulesEdit(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t)
	ann := operate(t, p)
	dir := t.TempDir()
	ann.env = append(ann.env, "TMPDIR="+dir)
	edits := func(script string) *operator {
		path := write(t, t.TempDir(), "editor", "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
		other := *ann
		other.env = append(slices.Clip(ann.env), "EDITOR="+path)
		return &other
	}
	if out := edits("sed -i s,100/1m,5/1m, $1").does("rules", "edit", "login", "--why", "new"); !strings.Contains(out,
		"login: added\nrevision 1, in force") {
		t.Errorf("it prints %s", out)
	}
	if out := edits("sed -i s,5/1m,4/1m, $1").does("rules", "edit", "login"); !strings.Contains(out,
		"revision 2, in force") {
		t.Errorf("it prints %s", out)
	}
	if out := edits("true").does("rules", "edit", "login"); out != "" {
		t.Errorf("it prints %s", out)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(kept) != 0 {
		t.Errorf("files are left: %v %v", kept, err)
	}
	meanwhile := "curl -fsS -X PUT " + p.at("http") + `/v1/admin/rules/login -H 'If-Match: "2"' -H 'Content-Type: application/yaml' --data-binary 'name: login
limit: 7/1m' > /dev/null && `
	edits(meanwhile+"sed -i s,4/1m,3/1m, $1").fails(1, "is at revision 3, not at 2", "rules", "edit", "login", "--yes")
	edits("sed -i s,7/1m,often, $1").fails(1, "your text is kept in "+dir, "rules", "edit", "login")
	kept, err = filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(kept) != 2 {
		t.Errorf("files are left: %v %v", kept, err)
	}
	for _, name := range kept {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), "limit: 3/1m") && !strings.Contains(string(text),
			"limit: often") {
			t.Errorf("%s: %v", text, err)
		}
	}
	edits("exit 3").fails(1, "nothing was changed", "rules", "edit", "login")
	p.end()
}

// TestControlCharactersAreRefused by the ledger, and never reach a terminal.
func TestControlCharactersAreRefused(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t)
	ann := operate(t, p)
	if r := ann.sets("name: login\nlimit: 5/1m # \u009b31m\n", "login"); r.code != 1 || !strings.Contains(r.err,
		`\u009b31m`) || strings.Contains(r.err, "\u009b") {
		t.Error(r)
	}
	p.end()
}

func put(t *testing.T, url, body string, fields ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "PUT", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/yaml")
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	return do(t, request)
}

// TestOperatorPermissions: tokens with names, of which some may only read; what they do is told.
func TestOperatorPermissions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "operators", "ann:an-operators-token\nbob:another-token-of-one\n")
	write(t, dir, "api", "the-token-of-the-api")
	p := call{dir: dir, env: []string{"WEIR_ADMIN_READ_TOKEN=viewer:who-only-looks-on"}}.serve(t, "--token-file",
		"api", "--admin-token-file", "operators")
	ann, viewer := operate(t, p, "WEIR_TOKEN=an-operators-token"), operate(t, p,
		"WEIR_ADMIN_TOKEN=viewer:who-only-looks-on")
	if r := ann.sets(login("5/1m"), "login", "--why", "night"); r.code != 0 {
		t.Fatal(r)
	}
	if out := viewer.does("rules", "history"); !regexp.MustCompile(`1 +\S+Z +ann +set +login ` +
		`+night`).MatchString(out) {
		t.Errorf("the history is\n%s", out)
	}
	viewer.does("rules", "list", "--json")
	if r := viewer.sets(login("6/1m"), "login", "--force"); r.code != 1 || !strings.Contains(r.err,
		"viewer may only read") {
		t.Error(r)
	}
	viewer.fails(1, "viewer may only read", "block", "10.0.0.1", "--for", "1h")
	viewer.fails(1, "viewer may only read", "keys", "reset", "10.0.0.1", "--rule", "login")
	operate(t, p).fails(1, "this needs a token of an operator", "rules", "list")
	operate(t, p, "WEIR_TOKEN=the-token-of-the-api").fails(1, "the token is not known here", "rules",
		"list") // which applications have
	_, _, text := get(t, p.at("http")+"/metrics")
	if !strings.Contains(text, `weir_unknown_tokens_total{api="admin"} 1`) {
		t.Errorf("the token is not counted:\n%s", text)
	}
	url := p.at("http") + "/v1/admin/rules/login"
	if status, _, body := put(t, url, login("7/1m"), "If-Match", `"1"`, "Authorization",
		"Bearer another-token-of-one", "X-Weir-Actor", "carol"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if out := viewer.does("rules", "history"); !strings.Contains(out, "carol by bob") {
		t.Errorf("the history is\n%s", out)
	}
	p.end()
	if logs := p.logs(); !strings.Contains(logs, "a rule was changed") || !strings.Contains(logs,
		"who=ann why=night") || !strings.Contains(logs, "has a token that is not known here") || strings.Contains(logs, "an-operators-token") {
		t.Errorf("the logs are\n%s", logs)
	}
}

// TestAPITokenIsNoOperatorToken: where applications show a token, operators need their own.
func TestAPITokenIsNoOperatorToken(t *testing.T) {
	t.Parallel()
	p := call{env: []string{"WEIR_TOKEN=the-token-of-the-api"}}.serve(t)
	operate(t, p, "WEIR_TOKEN=the-token-of-the-api").fails(1, "the admin API has no credentials", "rules", "list")
	p.end()
}

// TestBlockOnAllNodesByDefault: a server that counts in Redis and was told nothing else blocks on all nodes.
func TestBlockOnAllNodesByDefault(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var servers []*process
	for range 2 {
		servers = append(servers, call{}.serve(t, "--store", redis.URL(), "--gateway",
			"127.0.0.1:0", "--upstream", "demo"))
	}
	operate(t, servers[0]).does("block", "127.0.0.1", "--for", "1h")
	redistest.Await(t, "the block on both", passes(t, servers, "/", 403))
	if out := operate(t, servers[1]).does("override", "list"); !strings.Contains(out, "127.0.0.1") {
		t.Errorf("the list is\n%s", out)
	}
	for _, p := range servers {
		p.end()
	}
}

// TestUnmarkedLedgerIsNotUsed by a server without --ledger; one with --ledger redis marks it for the servers after it.
func TestUnmarkedLedgerIsNotUsed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	theirs, err := redissource.OpenLedger(redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if _, err := theirs.Set(t.Context(), "theirs", "name: theirs\nlimit: 1/1h\n", 0,
		ledger.Author{Who: "carol"}); err != nil {
		t.Fatal(err)
	}
	serve := func(args ...string) (*process, *operator) {
		p := call{}.serve(t, append([]string{"--store", redis.URL()}, args...)...)
		return p, operate(t, p)
	}
	p, ann := serve()
	ann.fails(1, "is not marked as this store's: start the server with --ledger redis to use it", "block",
		"127.0.0.1", "--for", "1h")
	if status := ready(t, p); status != 200 {
		t.Errorf("the server is not ready: %d", status)
	}
	if _, _, err := theirs.Exceptions(t.Context()); err != nil {
		t.Error(err)
	}
	p.end()
	if !strings.Contains(p.logs(), "is not marked as this store's") {
		t.Errorf("the logs are\n%s", p.logs())
	}
	for _, args := range [][]string{{"--ledger", "redis"}, nil} {
		p, ann := serve(args...)
		if out := ann.does("rules", "list"); !regexp.MustCompile(`theirs +1/1h +in force`).MatchString(out) {
			t.Errorf("%q: the rules are\n%s", args, out)
		}
		p.end()
	}
}

func ready(t *testing.T, p *process) int {
	t.Helper()
	return status(t, p.at("http")+"/readyz")
}

// TestRedisUserWithoutLedgerAccess: the server is ready, and says once what it lacks.
func TestRedisUserWithoutLedgerAccess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do("ACL", "SETUSER", "counter", "on", ">secret", "~weir:*", "resetchannels", "&weir:*", "+@all")
	url := strings.Replace(redis.URL(), "://", "://counter:secret@", 1)
	file := write(t, t.TempDir(), "rules.yaml", perIP+"server: {store: \""+url+"\"}\n")
	p := call{}.serve(t, "--config", file, "--set", "server.store.timeout=5s")
	if status := ready(t, p); status != 200 {
		t.Errorf("the server is not ready: %d", status)
	}
	operate(t, p).fails(1, "--ledger none", "block", "127.0.0.1", "--for", "1h")
	p.end()
	if n := strings.Count(p.logs(), "--ledger none"); n != 1 {
		t.Errorf("it says %d times what to do:\n%s", n, p.logs())
	}
}

// TestServerWithoutLedger runs the commands that need no ledger; the start names those that do.
func TestServerWithoutLedger(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "rules.yaml", strings.Replace(perIP, "}",
		", ban: {after: 1 refusals within 1m, for: 1h}}", 1))
	p := call{}.serve(t, "--config", file, "--store", redis.URL(), "--ledger", "none")
	ann := operate(t, p)
	if out := ann.does("rules", "list"); !strings.Contains(out, "per-ip") {
		t.Errorf("the rules are\n%s", out)
	}
	ann.does("rules", "get", "per-ip")
	ann.does("keys", "reset", "127.0.0.1", "--rule", "per-ip", "--why", "our mistake")
	ann.does("bans", "lift", "per-ip", "--value", "127.0.0.1")
	for _, line := range []string{"rules history", "rules disable per-ip", "rules delete per-ip --revision 1",
		"override list", "allow 127.0.0.1 --for 1h"} {
		ann.fails(1, "this server has --ledger none", strings.Fields(line)...)
	}
	if r := ann.sets(login("5/1m"), "login"); r.code != 1 || !strings.Contains(r.err, "--ledger none") {
		t.Error(r)
	}
	p.end()
	for _, want := range []string{"(--ledger none)", "a key was reset", "our mistake", "a ban was lifted"} {
		if !strings.Contains(p.logs(), want) {
			t.Errorf("the logs have no %q:\n%s", want, p.logs())
		}
	}
}

func TestOperatorsAreNamedByTheirCertificates(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	a.Issue("ann", "ann-key")
	for _, test := range []struct{ flag, names, want string }{
		{"--set", "server.admin.certs=bob,ann", ""},
		{"--set", "server.admin.read_certs=ann", "may only read"},
		{"--set", "server.admin.certs=bob", "needs a token of an operator"},
	} {
		p := call{}.serve(t, "--http", "127.0.0.1:0", "--set", "server.http.tls_cert="+a.File("server"), "--set", "server.http.tls_key="+a.File("server-key"),
			"--set", "server.http.client_ca="+a.File("ca"), test.flag, test.names)
		ann := operate(t, p)
		tls := []string{"--server-ca", a.File("ca"), "--server-cert", a.File("ann"), "--server-key", a.File("ann-key")}
		r := ann.run(t, append([]string{"block", "10.0.0.1", "--for", "1h"}, tls...)...)
		if (r.code == 0) != (test.want == "") || !strings.Contains(r.err, test.want) {
			t.Errorf("%s %s: %v", test.flag, test.names, r)
		}
		if test.want == "" {
			if out := ann.does(append([]string{"override", "list"}, tls...)...); !strings.Contains(out,
				"certificate ann") {
				t.Errorf("the list is\n%s", out)
			}
		}
		p.end()
	}
}

// TestServerWithoutRedisKeepsALedger in memory, or in a file if --ledger names one.
func TestServerWithoutRedisKeepsALedger(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger")
	for _, ledger := range []string{"memory", file} {
		p := call{}.serve(t, "--ledger", ledger, "--gateway", "127.0.0.1:0", "--upstream", "demo")
		ann := operate(t, p)
		ann.does("block", "127.0.0.1", "--for", "1h")
		if got := status(t, p.at("gateway")+"/"); got != 403 {
			t.Errorf("%d", got)
		}
		if r := ann.sets(login("5/1m"), "login"); r.code != 0 || !strings.Contains(r.out, "revision 2, in force") {
			t.Error(r)
		}
		p.end()
	}
	p := call{}.serve(t, "--ledger", file, "--gateway", "127.0.0.1:0", "--upstream", "demo")
	if got := status(t, p.at("gateway")+"/"); got != 403 {
		t.Errorf("after a restart: %d", got)
	}
	ann := operate(t, p)
	if list := ann.does("rules", "list"); !strings.Contains(list, "login") {
		t.Errorf("after a restart:\n%s", list)
	}
	r := ann.sets("rules: []\n", "login", "--force")
	if r.code != 1 || !strings.Contains(r.err, "unknown field") {
		t.Error(r)
	}
	p.end()
}

func TestDiffOfAFileChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := call{dir: dir}.serve(t, "--config", write(t, dir, "rules.yaml", perIP+"  - {name: old, limit: 5/1m}\n"))
	ann := operate(t, p)
	ann.dir = dir
	write(t, dir, "next.yaml", "rules:\n  - {name: per-ip, key: [client.ip], limit: fixed_window 10/1h}\n  - "+
		"{name: new, limit: 7/1m}\n")
	if out := ann.does("rules", "diff", "next.yaml"); out != "per-ip: limit fixed_window 1000/1h -> fixed_window 10/1h; counts are kept\nnew: "+
		"added\nold: removed\n" {
		t.Errorf("it prints\n%s", out)
	}
	c := ann.call
	c.in = "{name: per-ip, key: [user], limit: fixed_window 10/1h}"
	if r := c.run(t, "rules", "diff", "--rule", "per-ip"); r.code != 0 || r.out != "per-ip: limit fixed_window 1000/1h -> fixed_window 10/1h; key changed; "+
		"counts start anew: its key is another\n" {
		t.Error(r)
	}
	if list := ann.does("rules", "list"); !strings.Contains(list, "fixed_window 1000/1h") {
		t.Errorf("the list is\n%s", list)
	}
	p.end()
}
