//go:build unix

package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

const byASet = "deny: {client.ip: {redis: weir:blocked}}\nrules: [{name: a, limit: fixed_window 1000000/1h}]\n"

// announce is what an operator types after a change of a set.
const announce = "PUBLISH weir:lists weir:blocked"

func (p *process) denies() {
	p.t.Helper()
	redistest.Await(p.t, "a denial", func() bool { return status(p.t, p.at("gateway")+"/") == 403 })
}

func (p *process) serves() {
	p.t.Helper()
	redistest.Await(p.t, "an answer", func() bool { return status(p.t, p.at("gateway")+"/") == 200 })
}

// stays fails if an answer is another one until done.
func (p *process) stays(code int, done func() bool) {
	p.t.Helper()
	redistest.Await(p.t, "the end of what must change nothing", func() bool {
		if got := status(p.t, p.at("gateway")+"/"); got != code {
			p.t.Fatalf("it answers %d, not %d; its logs:\n%s", got, code, p.logs())
		}
		return done()
	})
}

func (p *process) says(text string) func() bool {
	return func() bool { return strings.Contains(p.logs(), text) }
}

// TestBlockingByRedisCLI: an operator blocks and lifts on three nodes.
func TestBlockingByRedisCLI(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "weir.yaml", byASet)
	var nodes []*process
	for range 3 {
		nodes = append(nodes, gatewayBy(t, "--config", file, "--store", redis.URL()))
	}
	all := func(each func(*process)) {
		t.Helper()
		for _, p := range nodes {
			each(p)
		}
	}
	all((*process).serves)
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8 192.0.2.0/24")
	redisCLI(t, redis, announce)
	all((*process).denies)
	redisCLI(t, redis, "SREM weir:blocked 127.0.0.0/8")
	redisCLI(t, redis, announce)
	all((*process).serves)
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.1 192.0.2.300 '# ann: scanning'")
	redisCLI(t, redis, announce)
	all((*process).denies)
	all(func(p *process) {
		p.logged(`deny.client.ip: the set \"weir:blocked\" has \"192.0.2.300\", which is left out`)
		p.counts(`weir_source_good{source="sets"} 0`)
	})
	redisCLI(t, redis, "SADD weir:blocked 192.0.2.9")
	redisCLI(t, redis, "SREM weir:blocked 127.0.0.1")
	redisCLI(t, redis, announce)
	all(func(p *process) {
		p.serves()
		if n := strings.Count(p.logs(), "which is left out"); n != 1 {
			t.Errorf("it is told %d times that a member is left out", n)
		}
	})
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.1")
	redisCLI(t, redis, announce)
	all((*process).denies)
	redisCLI(t, redis, "DEL weir:blocked") // and announced: it is meant
	redisCLI(t, redis, announce)
	all((*process).serves)
	all(func(p *process) { p.counts(`weir_source_good{source="sets"} 1`); p.end() })
}

func TestLostAnnouncementIsReadAtTheRefresh(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "weir.yaml", "store: "+redis.URL()+"\n"+byASet)
	p := gatewayBy(t, "--config", file, "--store-timeout", "5s", "--rules-refresh", "200ms")
	p.serves()
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8 192.0.2.1")
	p.denies()
	redisCLI(t, redis, "SREM weir:blocked 127.0.0.0/8")
	p.serves()
	p.end()
}

// TestSetsOutliveTheirRedis: who is blocked stays so while Redis is gone, when it comes back
// without its data, and while something else stands in the set's place.
func TestSetsOutliveTheirRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "weir.yaml", byASet)
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8")
	p := gatewayBy(t, "--config", file, "--rules", redis.URL(), "--rules-refresh", "200ms")
	p.denies()
	redis.Kill()
	p.stays(403, p.says(`rules cannot be read: the last valid rules stay in force" source=sets`))
	p.counts(`weir_source_up{source="sets"} 0`)
	redis.Restart() // without its data
	p.stays(403, p.says("weir:blocked: is gone without an announcement; if it was deleted on purpose, announce it: PUBLISH weir:lists weir:blocked; its last members (1) stay in force"))
	p.logged("rules of the source are in force again") // and yet not all is well
	p.counts(`weir_source_up{source="sets"} 1`)
	p.counts(`weir_source_good{source="sets"} 0`)
	redisCLI(t, redis, "SET weir:blocked 192.0.2.1")
	p.stays(403, p.says("weir:blocked: is not a set; allowed: a set, such as SADD makes; its last members (1) stay in force"))
	redisCLI(t, redis, "DEL weir:blocked")
	redisCLI(t, redis, "SADD weir:blocked 192.0.2.1")
	p.serves()
	p.counts(`weir_source_good{source="sets"} 1`)
	p.end()
}

// TestServerStartsWithoutItsSets, decides by the other rules, and is not ready until the sets are read.
func TestServerStartsWithoutItsSets(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	file := write(t, t.TempDir(), "weir.yaml", byASet)
	p := gatewayBy(t, "--config", file, "--rules", redis.URL(), "--rules-wait", "100ms")
	p.serves()
	p.logged(`the set \"weir:blocked\" was not read, and has no members`)
	if code := status(t, p.at("http")+"/readyz"); code != 503 {
		t.Errorf("readyz: %d", code)
	}
	redis.Restart()
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8")
	redistest.Await(t, "the server to be ready", func() bool { return status(t, p.at("http")+"/readyz") == 200 })
	redisCLI(t, redis, announce)
	p.denies()
	p.end()
}

// TestFileThatNamesSetsLater: when a watched file begins to name sets, they are read before its rules are in force.
func TestFileThatNamesSetsLater(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8")
	redisCLI(t, redis, "SADD weir:others 127.0.0.1")
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", "deny: {client.ip: 127.0.0.1}\nrules: []\n")
	p := gatewayBy(t, "--config", file, "--store", redis.URL())
	p.denies()
	replace(t, file, byASet)
	p.stays(403, func() bool { return strings.Count(p.logs(), "rules in force") >= 2 })
	redisCLI(t, redis, "SREM weir:blocked 127.0.0.0/8")
	redisCLI(t, redis, announce)
	p.serves()
	redisCLI(t, redis, "SADD weir:blocked 127.0.0.0/8")
	redisCLI(t, redis, announce)
	p.denies()
	replace(t, file, "rules: [{name: a, limit: fixed_window 1000000/1h, deny: {client.ip: {redis: weir:others}}}]\n")
	p.stays(403, func() bool { return strings.Contains(p.logs(), "changes=\"2 changed\"") })
	redisCLI(t, redis, "SREM weir:others 127.0.0.1")
	redisCLI(t, redis, "PUBLISH weir:lists weir:others")
	p.serves()
	redisCLI(t, redis, "DEL weir:blocked") // which nobody names any more
	if code, _, body := post(t, p.at("http")+"/-/reload", ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	p.counts(`weir_source_good{source="sets"} 1`)
	replace(t, file, "deny: {client.ip: {redis: 'redis://127.0.0.1/'}}\nrules: []\n")
	p.logged("the key of a set, such as weir:blocked, without the address of its Redis")
	p.end()
}

// TestOnlyFilesMayNameSets, and only where there is a Redis to read them from.
func TestOnlyFilesMayNameSets(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", byASet)
	if r := (call{}).run(t, "check", file); r.code != 0 || !strings.Contains(r.out, "no mistakes") {
		t.Error(r)
	}
	if r := (call{}).run(t, "check", dir); r.code != 0 || !strings.Contains(r.out, "no mistakes") {
		t.Error(r)
	}
	if r := (call{in: byASet}).run(t, "check", "-"); r.code != 0 {
		t.Error(r)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, byASet) }))
	defer server.Close()
	if r := (call{}).run(t, "check", server.URL); r.code != 1 || !strings.Contains(r.out, "not in a URL or in a database") {
		t.Error(r)
	}
	if r := (call{}).run(t, "serve", "--config", file, "--http", "127.0.0.1:0"); r.code != 1 || !strings.Contains(r.err, `the set "weir:blocked", but there is no Redis`) {
		t.Error(r)
	}
	if r := (call{in: "name: b\ndeny: {user: {redis: weir:blocked}}\nlimit: 5/1m\n"}).run(t, "check", "-"); r.code != 1 {
		t.Error(r)
	}
	p := gatewayBy(t, "--config", file, "--store", redis.URL(), "--ledger", "redis")
	set := call{in: "name: b\ndeny: {user: {redis: weir:blocked}}\nlimit: 5/1m\n"}.run(t, "rules", "set", "b", "--server", p.at("http"), "-")
	if set.code == 0 || !strings.Contains(set.out+set.err, "not in a URL or in a database") {
		t.Error(set)
	}
	p.end()
	alone := gatewayBy(t, "--config", write(t, t.TempDir(), "weir.yaml", "rules: []\n"))
	replace(t, alone.config(), byASet)
	alone.logged("but there is no Redis")
	alone.end()
}

// config is the file that the process was started with.
func (p *process) config() string {
	args := p.command.Args
	return args[slices.Index(args, "--config")+1]
}

// TestExplainReadsSets if a Redis is given.
func TestExplainReadsSets(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redisCLI(t, redis, "SADD weir:blocked 192.0.2.0/24 no.address")
	file := write(t, t.TempDir(), "weir.yaml", "store: "+redis.URL()+"\n"+byASet)
	explain := func(args ...string) ran {
		t.Helper()
		return call{}.run(t, append(append([]string{"explain", "--config", file, "--client", "192.0.2.1"}, args...), "http://example.com/")...)
	}
	if r := explain("--store", redis.URL(), "--store-timeout", "5s"); r.code != 0 || !strings.Contains(r.out, "on the deny list of the file") || !strings.Contains(r.err, `"no.address", which is left out`) {
		t.Error(r)
	}
	if r := explain("--rules", redis.URL()); r.code != 0 || !strings.Contains(r.out, "on the deny list of the file") {
		t.Error(r)
	}
	if r := explain(); r.code != 0 || !strings.Contains(r.err, `"weir:blocked" was not read, and has no members`) || !strings.Contains(r.err, "sets are not read: name a Redis in --store or --rules") {
		t.Error(r)
	}
	p := gatewayBy(t, "--config", file, "--store-timeout", "5s")
	if r := (call{}).run(t, "explain", "--server", p.at("http"), "--client", "192.0.2.1", "http://example.com/"); r.code != 0 || !strings.Contains(r.out, "deny list") {
		t.Error(r)
	}
	p.end()
}

// TestWrongPasswordOfSetsEndsTheStart: unlike a Redis that is down, it will not appear later.
func TestWrongPasswordOfSetsEndsTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.StartACL(t, "weir", "a-password")
	url := strings.Replace(redis.URL(), "redis://", "redis://weir:another@", 1)
	file := write(t, t.TempDir(), "weir.yaml", byASet)
	r := call{env: []string{"WEIR_RULES=" + url}}.run(t, "serve", "--config", file, "--http", "127.0.0.1:0")
	if r.code != 1 || !strings.Contains(r.err, "WRONGPASS") || strings.Contains(r.err, "another") {
		t.Error(r)
	}
}

// TestPropagationOfSets tells (with -v) how long it takes until three nodes deny, and until
// they serve again, by a small set and by the largest.
func TestPropagationOfSets(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := write(t, t.TempDir(), "weir.yaml", byASet)
	redis.Do("SADD", "weir:blocked", "192.0.2.1")
	propagate(t, redis, file)
	redis.Do("EVAL", "for i = 0, 99997 do redis.call('SADD', 'weir:blocked', string.format('%d.%d.%d.0/28', 1 + math.floor(i / 65536), math.floor(i / 256) % 256, i % 256)) end", "0")
	propagate(t, redis, file)
}

func propagate(t *testing.T, redis *redistest.Server, file string) {
	t.Helper()
	const setChanges = 4
	var nodes []*process
	for range 3 {
		nodes = append(nodes, gatewayBy(t, "--config", file, "--store", redis.URL()))
	}
	for _, p := range nodes {
		p.serves()
	}
	var took []time.Duration
	for i := range setChanges {
		command, reached := "SADD", (*process).denies
		if i%2 == 1 {
			command, reached = "SREM", (*process).serves
		}
		redis.Do(command, "weir:blocked", "127.0.0.0/8")
		began := time.Now()
		redis.Do(strings.Fields(announce)...)
		for _, p := range nodes {
			reached(p)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d members, on all 3 nodes: median %v, most %v of %d changes", redis.Do("SCARD", "weir:blocked"), took[setChanges/2], took[setChanges-1], setChanges)
	for _, p := range nodes {
		p.end()
	}
}
