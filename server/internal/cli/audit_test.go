package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const trace = "4bf92f3577b34da6a3ce929d0e0e4736"

// audited is what weir audit query prints with these arguments: outcome, rule, key, request id, actor and text of each
// record.
func audited(t *testing.T, args ...string) (list []string) {
	t.Helper()
	r := call{}.run(t, append([]string{"audit", "query", "--json"}, args...)...)
	if r.code != 0 {
		t.Fatal(r)
	}
	for line := range strings.Lines(r.out) {
		var a struct{ Node, Outcome, Rule, Key, Actor, Text, Request_id string }
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err, line)
		}
		if a.Node != "n1" {
			t.Errorf("the node is %q", a.Node)
		}
		list = append(list, strings.Join([]string{a.Outcome, a.Rule, a.Key, a.Request_id, a.Actor, a.Text}, "|"))
	}
	return list
}

// decide asks the API about a client, with headers of its request.
func decide(t *testing.T, server, client, headers string) string {
	t.Helper()
	body := fmt.Sprintf(`{"request": {"client": %q, "path": "/login", "headers": {%s}}}`, client, headers)
	response, err := http.Post(server+"/v1/decide", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.Status
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.Start(t), t.TempDir()
	write(t, dir, "weir.yaml", "rules: [{name: login, key: [client.ip], limit: fixed_window 1/1h, ban: {after: 2 refusals within 1h, for: 1h}}]\n")
	file := filepath.Join(dir, "audit.log")
	p := call{dir: dir}.serve(t, "--config", "weir.yaml", "--store", redis.URL(), "--set", "server.store.timeout=2s", "--audit", "redis,"+file, "--set", "server.node_name=n1")
	server := p.at("http")
	decide(t, server, "203.0.113.7", "")
	decide(t, server, "203.0.113.7", `"X-Request-Id": "r1"`)
	decide(t, server, "203.0.113.7", `"traceparent": "00-`+trace+`-00f067aa0ba902b7-01"`)
	operate := func(args ...string) {
		t.Helper()
		if r := (call{}).run(t, append(args, "--server", server, "--why", "a test")...); r.code != 0 {
			t.Fatal(r)
		}
	}
	operate("block", "203.0.113.9", "--for", "1h")
	decide(t, server, "203.0.113.9", `"X-Request-Id": "r2"`)
	operate("bans", "lift", "login", "203.0.113.7")
	operate("keys", "reset", "203.0.113.7", "--rule", "login")
	write(t, dir, "weir.yaml", "rules: [{name: login, key: [client.ip], limit: fixed_window 2/1h}]\n")
	redistest.Await(t, "the change of the file", func() bool { return strings.Contains(p.logs(), "1 changed") })
	key := "client.ip=11:203.0.113.7"
	want := []string{
		"refused|login|" + key + "|r1||",
		"ban|login|" + key + "|" + trace + "||",
		"refused|login|" + key + "|" + trace + "||",
		"block||203.0.113.9||somebody at 127.0.0.1|for 1h: a test",
		"denied||client.ip=11:203.0.113.9|r2||",
		"lift|login|" + key + "||somebody at 127.0.0.1|ban lifted: a test",
		"reset|login|" + key + "||somebody at 127.0.0.1|key reset: a test",
		"rules|||||config: login: limit fixed_window 1/1h -> fixed_window 2/1h; ban changed; counts are kept",
	}
	stream := func(args ...string) []string { return audited(t, append(args, "--store", redis.URL())...) }
	redistest.Await(t, "all records", func() bool { return len(stream()) == len(want) })
	for where, list := range map[string][]string{"stream": stream(), "file": audited(t, file)} {
		if !slices.Equal(list, want) {
			t.Errorf("the %s has\n%s\nwant\n%s", where, strings.Join(list, "\n"), strings.Join(want, "\n"))
		}
	}
	for args, want := range map[string][]string{
		"--request-id " + trace:                              want[1:3],
		"--key 203.0.113.7 --outcome lift":                   want[5:6],
		"--rule login --outcome refused --since 1h":          {want[0], want[2]},
		"--rule login --most 1 --until 2100-01-01T00:00:00Z": want[6:7],
		"--node n2":  nil,
		"--until 1h": nil,
	} {
		if list := stream(strings.Fields(args)...); !slices.Equal(list, want) {
			t.Errorf("%s: %q, want %q", args, list, want)
		}
	}
	outage(t, redis, p)
	p.end()
	for _, where := range [][]string{{file}, {"--store", redis.URL()}} {
		// On a busy machine there may be more than one outage.
		for word, line := range map[string]string{"degraded": "store is not responding: rules", "recovered": "store is responding again"} {
			list := audited(t, append(where, "--outcome", word)...)
			if n := strings.Count(p.logs(), line); n == 0 || len(list) != n || !strings.Contains(list[0], "store is") {
				t.Errorf("%s: %d outages are recorded as %q", where, n, list)
			}
		}
	}
}

// outage stops the Redis, until the server has noticed it and its end.
func outage(t *testing.T, redis *redistest.Server, p *process) {
	t.Helper()
	for _, step := range []struct {
		do    func()
		until string
	}{{redis.Stop, "store is not responding"}, {redis.Cont, "store is responding again"}} {
		step.do()
		redistest.Await(t, step.until, func() bool {
			decide(t, p.at("http"), "203.0.113.50", "")
			return strings.Contains(p.logs(), step.until)
		})
	}
}

func TestAuditHidesKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "secret", "0123456789abcdef\n")
	for word, want := range map[string]string{"hidden": "", "hashed": "hashed:"} {
		file := filepath.Join(dir, word)
		p := call{}.serve(t, "--limit", "1/1h", "--audit", file, "--set", "server.audit.keys="+word, "--set", "server.hash_key_file="+filepath.Join(dir, "secret"), "--set", "server.node_name=n1")
		decide(t, p.at("http"), "203.0.113.7", "")
		decide(t, p.at("http"), "203.0.113.7", "")
		p.end() // writes what is queued
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "203.0.113.7") || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", word, text, err)
		}
		found := audited(t, file, "--key", "client.ip=11:203.0.113.7", "--hash-key-file", filepath.Join(dir, "secret"))
		if (len(found) == 1) != (word == "hashed") {
			t.Errorf("%s: found %q by the key", word, found)
		}
	}
}

func TestAuditMistakes(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"query":                             "give the FILE of weir serve --audit FILE, or --store",
		"query none.log":                    "none.log",
		"query redis://127.0.0.1:1":         "the argument is a URL; give it as --store",
		"query --store redis://127.0.0.1:1": "--store redis://127.0.0.1:1",
		"query x --outcome passed":          `--outcome is "passed"; allowed: refused, denied`,
		"query x --since yesterday":         `--since is "yesterday"; allowed: a time ago with its unit`,
		"query x --until -1h":               `--until is "-1h"; allowed`,
		"query x --most 0":                  "--most is 0; allowed: 1 to 1000000",
		"tail a b":                          "takes at most one file, but was given 2 arguments",
	} {
		if r := (call{}).run(t, append([]string{"audit"}, strings.Fields(args)...)...); r.code == 0 || !strings.Contains(r.err, says) {
			t.Errorf("weir audit %s: %v, want %q", args, r, says)
		}
	}
}

// TestAuditTailFollows the file of a server and its stream: the last record before, and those after.
func TestAuditTailFollows(t *testing.T) {
	t.Parallel()
	redis, file := redistest.Start(t), filepath.Join(t.TempDir(), "audit.log")
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--store", redis.URL(), "--set", "server.store.timeout=5s",
		"--audit", "redis,"+file, "--set", "server.node_name=n1")
	refused := func(id string) { decide(t, p.at("http"), "203.0.113.7", `"X-Request-Id": "`+id+`"`) }
	refused("passes")
	refused("r1")
	refused("r2")
	for _, where := range [][]string{{file}, {"--store", redis.URL()}} {
		redistest.Await(t, "the records before", func() bool { return len(audited(t, where...)) == 2 })
	}
	var tails []*process
	for _, where := range [][]string{{file}, {"--store", redis.URL()}} {
		tail := &process{t: t, command: exec.Command(program, append([]string{"audit", "tail", "--most", "1",
			"--outcome", "refused"}, where...)...)}
		tail.command.Env, tail.command.Stdout, tail.command.Stderr = call{}.environ(), &tail.log, &tail.log
		if err := tail.command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			tail.command.Process.Kill()
			tail.command.Wait()
		})
		redistest.Await(t, "the last record before", func() bool { return strings.Contains(tail.logs(), "r2") })
		tails = append(tails, tail)
	}
	refused("r3")
	refused("r4")
	for _, tail := range tails {
		redistest.Await(t, "the records after", func() bool { return strings.Contains(tail.logs(), "r4") })
		lines := strings.Split(strings.TrimSpace(tail.logs()), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "TIME") || !strings.Contains(lines[1], " r2") ||
			!strings.Contains(lines[2], " r3") || !strings.Contains(lines[3], "refused  limit  client.ip=11:203.0.113.7") {
			t.Errorf("weir audit tail printed\n%s", tail.logs())
		}
	}
	p.end()
}

// TestUnconfirmedChangeIsAudited by one of two servers; confirm says that it came too late.
func TestUnconfirmedChangeIsAudited(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := []string{"--limit", "5/1h", "--store", redis.URL(), "--audit", "redis", "--set", "server.node_name=n1"}
	p, other := call{}.serve(t, args...), call{}.serve(t, args...)
	server := []string{"--server", p.at("http")}
	r := call{in: login("5/1m")}.run(t, append([]string{"rules", "set", "login", "--revert-after", "1s"}, server...)...)
	if r.code != 0 || !strings.Contains(r.out, "unless you run weir rules confirm login") {
		t.Fatal(r)
	}
	reverts := func() []string {
		list := audited(t, "--store", redis.URL(), "--rule", "login")
		return slices.DeleteFunc(list, func(one string) bool { return !strings.Contains(one, "|weir|revert: nobody confirmed") })
	}
	redistest.Await(t, "the record", func() bool { return len(reverts()) > 0 })
	if r := (call{}).run(t, append([]string{"rules", "confirm", "login"}, server...)...); r.code == 0 || !strings.Contains(r.err, "it was taken back: make it again") {
		t.Error(r)
	}
	p.end()
	other.end()
	if list := reverts(); len(list) != 1 {
		t.Errorf("the audit log has %q", list)
	}
}
