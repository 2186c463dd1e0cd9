//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
