//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// ruleA is a file with one rule of that many requests an hour.
func ruleA(limit int) string {
	return fmt.Sprintf("rules: [{name: a, limit: fixed_window %d/1h}]\n", limit)
}

const wrongRules = "rules: [{name: a, limit: 5/0s}, {name: b, limit: many}]\n"

// gatewayBy is a gateway by these flags.
func gatewayBy(t *testing.T, args ...string) *process {
	t.Helper()
	return call{}.serve(t, append(args, "--gateway", "127.0.0.1:0", "--upstream", "demo")...)
}

// policy is what the gateway says of the limits of a request, such as "a";q=5;w=3600.
func policy(t *testing.T, p *process) string {
	t.Helper()
	_, fields, _ := get(t, p.at("gateway")+"/")
	return strings.Join(fields["Ratelimit-Policy"], ", ")
}

// obeys waits until requests are decided by rule a with that limit, and 0 is none.
func (p *process) obeys(limit int) {
	p.t.Helper()
	want := ""
	if limit > 0 {
		want = fmt.Sprintf(`"a";q=%d;w=3600`, limit)
	}
	redistest.Await(p.t, "the policy "+want, func() bool { return policy(p.t, p) == want })
}

func (p *process) logged(text string) {
	p.t.Helper()
	redistest.Await(p.t, "the log line "+text, func() bool { return strings.Contains(p.logs(), text) })
}

// counts is a line of the metrics.
func (p *process) counts(line string) {
	p.t.Helper()
	redistest.Await(p.t, "the metric "+line, func() bool {
		_, _, body := get(p.t, p.at("http")+"/metrics")
		return strings.Contains(body, "\n"+line+"\n")
	})
}

func replace(t *testing.T, file, text string) {
	t.Helper()
	write(t, filepath.Dir(file), ".new", text)
	if err := os.Rename(filepath.Join(filepath.Dir(file), ".new"), file); err != nil {
		t.Fatal(err)
	}
}

// TestFileChangesAreNoticed, in whichever way the file is written. Counts are kept.
func TestFileChangesAreNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file)
	p.obeys(5)
	replace(t, file, ruleA(7))
	p.obeys(7)
	write(t, dir, "weir.yaml", ruleA(8)) // in place
	p.obeys(8)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.logged("rules cannot be read: the last valid rules stay in force")
	p.obeys(8)
	p.counts(`weir_source_up{source="config"} 0`)
	write(t, dir, "weir.yaml", ruleA(1)) // all of it is used by now
	redistest.Await(t, "a refusal", func() bool { return status(t, p.at("gateway")+"/") == 429 })
	p.counts(`weir_source_up{source="config"} 1`)
	p.end()
}

// TestTheLogSaysWhichRuleChanged: its name and what changed; at the start nothing has changed.
func TestTheLogSaysWhichRuleChanged(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", "rules: [{name: a, limit: 5/1h}, {name: b, limit: 6/1h}]\n")
	p := call{}.serve(t, "--config", file)
	p.logged("rules in force")
	if strings.Contains(p.logs(), "changes=") {
		t.Errorf("at the start:\n%s", p.logs())
	}
	replace(t, file, "rules: [{name: a, limit: 7/1h}, {name: c, key: [user], limit: 6/1h}]\n")
	p.logged(`changes="1 changed, 1 added, 1 removed" what="a: limit 5/1h -> 7/1h; counts are kept | c: added | b: removed"`)
	p.end()
}

func TestADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "1.yaml", "rules: []")
	p := gatewayBy(t, "--config", dir)
	p.obeys(0)
	write(t, dir, "2.yaml", ruleA(5))
	p.obeys(5)
	replace(t, filepath.Join(dir, "1.yaml"), ruleA(6))
	p.logged(dir + `/1.yaml has it too; rename one of them, because state is stored under the name`)
	p.obeys(5)
	checked := call{}.run(t, "check", dir)
	if checked.code != 1 || !strings.Contains(checked.out, dir+`/2.yaml: rule "a": `) {
		t.Error(checked)
	}
	replace(t, filepath.Join(dir, "2.yaml"), "rules: [{name: b, match: {path: /b/**}, limit: 5/1m}]")
	p.obeys(6)
	if checked := (call{}).run(t, "check", dir); checked.code != 0 || !strings.Contains(checked.out, "2 rules, no mistakes") {
		t.Error(checked)
	}
	explained := call{}.run(t, "explain", "--config", dir, "http://example.com/b")
	if explained.code != 0 || !strings.Contains(explained.out, "5/1m") {
		t.Error(explained)
	}
	p.end()
}

// TestInvalidEditChangesNothing, and all its mistakes are logged, once.
func TestInvalidEditChangesNothing(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file)
	p.obeys(5)
	p.counts("weir_config_last_load_successful 1")
	replace(t, file, wrongRules)
	p.logged("at=" + file + ":1:26")
	p.logged("at=" + file + ":1:50")
	p.logged("rules are invalid: the last valid rules stay in force")
	p.counts("weir_config_last_load_successful 0")
	p.counts(`weir_source_good{source="config"} 0`)
	p.counts("weir_rules 1")
	p.obeys(5)
	if code, _, body := get(t, p.at("http")+"/readyz"); code != 200 || !strings.Contains(body, "the previous rules are in force") {
		t.Errorf("readyz: %d %s", code, body)
	}
	replace(t, file, "rules: []\n")
	p.logged("it has no rules any more")
	p.obeys(5)
	replace(t, file, ruleA(5))
	p.counts("weir_config_last_load_successful 1")
	if _, _, body := get(t, p.at("http")+"/readyz"); strings.Contains(body, "degraded") {
		t.Errorf("readyz: %s", body)
	}
	p.end()
	if n := strings.Count(p.logs(), "at="+file+":1:26"); n != 1 {
		t.Errorf("the mistake is told %d times:\n%s", n, p.logs())
	}
}

// TestAllowEmpty: with --set server.allow_empty=true a source may lose all its rules.
func TestAllowEmpty(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file, "--set", "server.allow_empty=true")
	p.obeys(5)
	replace(t, file, "rules: []\n")
	p.obeys(0)
	p.end()
}

// TestSIGHUPReloads all sources at once, and logs mistakes each time.
func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file)
	p.signal(syscall.SIGHUP)
	p.logged("reload: all rules are in force")
	replace(t, file, wrongRules)
	p.logged("rules are invalid")
	p.signal(syscall.SIGHUP)
	p.logged("reload: not all rules are in force")
	replace(t, file, ruleA(6))
	p.obeys(6)
	p.end()
	none := call{}.serve(t)
	none.signal(syscall.SIGHUP)
	none.logged("reload: all rules are in force")
	none.end()
}

func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const token, reader = "a-token-that-may-write", "a-token-that-may-read"
	file := write(t, dir, "weir.yaml", ruleA(5))
	p := call{env: []string{"WEIR_TOKEN=" + token, "WEIR_READ_TOKEN=" + reader}}.serve(t, "--config", file, "--gateway", "127.0.0.1:0", "--upstream", "demo")
	reload := func(bearer string) (int, map[string]any) {
		status, fields, body := post(t, p.at("http")+"/-/reload", "", "Authorization", "Bearer "+bearer)
		var answer map[string]any
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if want := map[bool]string{true: "application/json", false: "application/problem+json"}[status == 200]; fields.Get("Content-Type") != want {
			t.Errorf("%d has the type %s", status, fields.Get("Content-Type"))
		}
		return status, answer
	}
	for bearer, want := range map[string]int{"": 401, "another-token-entirely": 401, reader: 403, token: 200} {
		if status, answer := reload(bearer); status != want {
			t.Errorf("with %q: %d %v, want %d", bearer, status, answer, want)
		}
	}
	_, before := reload(token)
	replace(t, file, ruleA(6))
	status, after := reload(token)
	if status != 200 || policy(t, p) != `"a";q=6;w=3600` { // at once
		t.Errorf("%d %v, and the policy is %s", status, after, policy(t, p))
	}
	if before["revision"] == after["revision"] || after["rules"] != 1.0 {
		t.Errorf("before %v, after %v", before, after)
	}
	replace(t, file, wrongRules)
	status, wrong := reload(token)
	mistakes, _ := wrong["mistakes"].([]any)
	if status != 422 || len(mistakes) != 2 || mistakes[0].(map[string]any)["line"] != 1.0 || mistakes[1].(map[string]any)["field"] != "rules[1].limit[0]" {
		t.Errorf("%d %v", status, wrong)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status, gone := reload(token); status != 503 {
		t.Errorf("%d %v", status, gone)
	}
	p.obeys(6)
	if status, fields, _ := get(t, p.at("http")+"/-/reload", "Authorization", "Bearer "+token); status != 405 || fields.Get("Allow") != "POST" {
		t.Errorf("GET: %d", status)
	}
	p.end()
}

func TestReloadRefusesOtherSites(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t)
	ask := func(host, origin string) int {
		request := httptest.NewRequest("POST", p.at("http")+"/-/reload", nil)
		request.RequestURI = ""
		if host != "" {
			request.Host = host
		}
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		status, _, _ := do(t, request)
		return status
	}
	for _, test := range []struct {
		host, origin string
		want         int
	}{{"", "", 200}, {"localhost:8080", "", 200}, {"rebound.example", "", 403}, {"", "http://other.example", 403}} {
		if got := ask(test.host, test.origin); got != test.want {
			t.Errorf("host %q, origin %q: %d, want %d", test.host, test.origin, got, test.want)
		}
	}
	p.end()
}

// TestURLIsPolled, and its last good content stays in force.
func TestURLIsPolled(t *testing.T) {
	t.Parallel()
	var text atomic.Value
	text.Store(ruleA(5))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer a-token-for-the-rules" || text.Load() == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, text.Load())
	}))
	defer server.Close()
	token := write(t, t.TempDir(), "token", "a-token-for-the-rules\n")
	p := gatewayBy(t, "--config", server.URL+"/weir.yaml", "--set", "server.config.token_file="+token, "--set", "server.config.poll=1s")
	p.obeys(5)
	text.Store(ruleA(6))
	p.obeys(6)
	text.Store("")
	p.logged("rules cannot be read")
	p.obeys(6)
	text.Store(ruleA(7))
	p.signal(syscall.SIGHUP)
	p.obeys(7)
	p.end()
	text.Store("")
	r := call{}.run(t, "serve", "--config", server.URL, "--set", "server.rules.wait=1s", "--http", "127.0.0.1:0")
	if r.code != 1 || !strings.Contains(r.err, "could not be read within 1s") || !strings.Contains(r.err, "503") {
		t.Error(r)
	}
	text.Store(wrongRules)
	if r := (call{}).run(t, "check", server.URL); r.code != 1 || !strings.Contains(r.out, "503") {
		t.Error(r) // it has no token
	}
}

// TestChangedSettingsAreLogged: these fields take effect only at the next start.
func TestChangedSettingsAreLogged(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file, "--set", "server.client_header=X-Forwarded-For")
	replace(t, file, "server: {store: redis://:secret@127.0.0.1:1, trusted_proxies: [10.0.0.0/8], client_header: Forwarded}\n"+ruleA(6))
	p.obeys(6)
	p.logged("store changed: takes effect at the next start")
	p.logged("trusted_proxies changed: takes effect at the next start")
	p.end()
	if strings.Contains(p.logs(), "client_header was changed") || strings.Contains(p.logs(), "secret") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}

// TestLintWarningsAreLogged: all of a file at the start, and after a change only new ones.
func TestLintWarningsAreLogged(t *testing.T) {
	t.Parallel()
	const odd = "server: {path_form: strict}\nrules: [{name: a, limit: fixed_window %d/1h}, {name: b, match: {path: /a%%2fb}, limit: 5/1h}%s]\n"
	file := write(t, t.TempDir(), "weir.yaml", fmt.Sprintf(odd, 5, ""))
	p := gatewayBy(t, "--config", file)
	p.logged("a%2fb")
	replace(t, file, fmt.Sprintf(odd, 6, ", {name: c, match: {path: /c%2fd}, limit: 5/1h}"))
	p.logged("c%2fd")
	p.end()
	if n := strings.Count(p.logs(), "a%2fb"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, p.logs())
	}
}
