//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/telemetry"
)

// overviewOf is what a server reports of the last hour.
func overviewOf(t *testing.T, p *process) (o telemetry.Overview) {
	t.Helper()
	status, _, text := get(t, p.at("http")+"/v1/admin/telemetry/overview")
	if err := json.Unmarshal([]byte(text), &o); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v: %s", status, err, text)
	}
	return o
}

func nodeNames(o *telemetry.Overview) (list []string) {
	for i := range o.Nodes {
		list = append(list, o.Nodes[i].Name)
	}
	return list
}

// traffic sends requests of some clients to servers, and returns the answers: passed, and refused.
func traffic(t *testing.T, servers []*process, requests int) (passed, refused uint64) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, p := range servers {
		all.Go(func() {
			for n := range requests {
				body := fmt.Sprintf(`{"request":{"client":"203.0.113.%d"}}`, (i+n)%7)
				status, _, text := post(t, p.at("http")+"/v1/decide", body)
				mu.Lock()
				switch {
				case status != http.StatusOK:
					t.Errorf("%d %s", status, text)
				case strings.Contains(text, `"outcome":"passed"`):
					passed++
				default:
					refused++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return passed, refused
}

// TestEveryNodeReportsAllRequests exactly as the clients have counted them, also those of a server that has stopped and
// of one that was killed after it had shared them.
func TestEveryNodeReportsAllRequests(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var servers []*process
	for i := range 3 {
		servers = append(servers, call{}.serve(t, "--limit", "fixed_window 50/1h", "--store", redis.URL(),
			"--set", "server.node_name="+fmt.Sprint("n", i)))
	}
	passed, refused := traffic(t, servers, 200)
	agrees := func(list []*process) {
		t.Helper()
		for _, p := range list {
			redistest.Await(t, "the sum over the nodes", func() bool {
				o := overviewOf(t, p)
				return o.Total.Passed == passed && o.Total.Refused == refused && o.Rules[0].Counts.Refused == refused
			})
		}
	}
	agrees(servers)
	if names := nodeNames(new(overviewOf(t, servers[1]))); !slices.Equal(names, []string{"n0", "n1", "n2"}) {
		t.Errorf("the nodes are %q", names)
	}
	more, less := traffic(t, servers[2:], 10) // just before its end
	passed, refused = passed+more, refused+less
	servers[2].end()
	servers[1].signal(syscall.SIGKILL)
	<-servers[1].ended
	agrees(servers[:1])
	redistest.Await(t, "the end of the killed node", func() bool {
		return slices.Equal(nodeNames(new(overviewOf(t, servers[0]))), []string{"n0"})
	})
	servers[0].end()
}

// TestStateDirKeepsTheHistory over a restart, and only one process may use it.
func TestStateDirKeepsTheHistory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"--limit", "fixed_window 5/1h", "--set", "server.state_dir=" + dir}
	p := call{}.serve(t, args...)
	passed, refused := traffic(t, []*process{p}, 40)
	if r := (call{}).run(t, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...); r.code != 1 ||
		!strings.Contains(r.err, "server.state_dir: ") {
		t.Errorf("a second process: exit %d %s", r.code, r.err)
	}
	p.end()
	p = call{}.serve(t, args...)
	if o := overviewOf(t, p); o.Total.Passed != passed || o.Total.Refused != refused || refused == 0 {
		t.Errorf("after a restart %+v; want %d and %d", o.Total, passed, refused)
	}
	p.end()
	for flags, says := range map[string]string{
		"--store redis://127.0.0.1:1": "leave server.state_dir out",
		"--set server.telemetry=off":  "leave one of them out",
		"--set server.telemetry=of":   `server.telemetry is "of"; `,
	} {
		r := call{}.run(t, append([]string{"serve", "--http", "127.0.0.1:0", "--set", "server.state_dir=" + dir}, strings.Fields(flags)...)...)
		if r.code != 2 || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit %d %s", flags, r.code, r.err)
		}
	}
}

// TestHiddenKeys are digests everywhere, and telemetry that is off answers nothing.
func TestHiddenKeys(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "fixed_window 5/1h", "--set", "server.telemetry=hidden")
	traffic(t, []*process{p}, 80)
	for _, path := range []string{"overview", "rules/limit", "recent"} {
		if status, _, text := get(t, p.at("http")+"/v1/admin/telemetry/"+path); status != http.StatusOK ||
			strings.Contains(text, "203.0.113") || !strings.Contains(text, `"hidden":true`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	p.end()
	p = call{}.serve(t, "--set", "server.telemetry=off")
	if status, _, text := get(t, p.at("http")+"/v1/admin/telemetry/nodes"); status != http.StatusForbidden {
		t.Errorf("%d %s", status, text)
	}
	p.end()
}
