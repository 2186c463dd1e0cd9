//go:build unix

package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const guarded = "deny: {client.ip: {file: blocked.txt}}\nrules: [{name: a, limit: fixed_window 1000/1h}]\n"

// TestAListInAFile: who is added to the file is denied by a gateway that runs.
func TestAListInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", guarded)
	list := write(t, dir, "blocked.txt", "# nobody\n")
	p := gatewayBy(t, "--config", file)
	p.obeys(1000)
	replace(t, list, "192.0.2.1\n127.0.0.0/8 # from here\n")
	redistest.Await(t, "a denial", func() bool { return status(t, p.at("gateway")+"/") == 403 })
	replace(t, list, "192.0.2.1\n127.0.0.0.0\n")
	p.logged("127.0.0.0.0")
	if got := status(t, p.at("gateway")+"/"); got != 403 {
		t.Errorf("a bad list let it pass: %d", got)
	}
	replace(t, list, "192.0.2.1\n")
	p.obeys(1000)
	p.end()
}

// TestListsInFilesAreChecked by all commands that read rules.
func TestListsInFilesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", guarded)
	write(t, dir, "blocked.txt", "192.0.2.1\n")
	if r := (call{}).run(t, "check", file); r.code != 0 || !strings.Contains(r.out, "no mistakes") {
		t.Error(r)
	}
	if r := (call{}).run(t, "check", dir); r.code != 0 || !strings.Contains(r.out, "no mistakes") {
		t.Error(r)
	}
	if r := (call{}).run(t, "explain", "--config", file, "--client", "192.0.2.1", "http://example.com/"); !strings.Contains(r.out, "den") {
		t.Error(r)
	}
	if r := (call{in: guarded}).run(t, "check", "-"); r.code != 1 || !strings.Contains(r.out, "only rules from a file") {
		t.Error(r)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, guarded) }))
	defer server.Close()
	if r := (call{dir: dir}).run(t, "check", server.URL); r.code != 1 || !strings.Contains(r.out, "only rules from a file") {
		t.Error(r)
	}
	write(t, dir, "blocked.txt", "192.0.2.1\n 192.0.2.999\n")
	if r := (call{}).run(t, "check", file); r.code != 1 || !strings.Contains(r.out, filepath.Join(dir, "blocked.txt")+":2:2: ") {
		t.Error(r)
	}
	outside := write(t, t.TempDir(), "secret.txt", "192.0.2.1\n")
	if err := os.Remove(filepath.Join(dir, "blocked.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "blocked.txt")); err != nil {
		t.Fatal(err)
	}
	if r := (call{}).run(t, "serve", "--config", file, "--http", "127.0.0.1:0"); r.code == 0 || !strings.Contains(r.err, "escapes") {
		t.Error(r)
	}
}
