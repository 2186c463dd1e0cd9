package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// With server.state a restart is no fresh quota.
func TestStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	left := write(t, dir, "state.123.tmp", "of a process that was killed")
	args := []string{"--set", "server.state=" + file, "--limit", "fixed_window 3/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo"}
	p := call{}.serve(t, args...)
	for range 2 {
		if got := status(t, p.at("gateway")+"/"); got != 200 {
			t.Fatalf("%d", got)
		}
	}
	p.end()
	if _, err := os.Stat(left); err == nil {
		t.Error("what was left is still there")
	}
	p = call{}.serve(t, args...)
	for i, want := range []int{200, 429} {
		if got := status(t, p.at("gateway")+"/"); got != want {
			t.Errorf("request %d after the restart: %d, want %d", i, got, want)
		}
	}
	p.hasMetrics(t, "weir_state_save_errors_total 0")
	if r := (call{}).run(t, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...); r.code != 1 || !strings.Contains(r.err, "by another weir serve") {
		t.Errorf("a second process: exit %d %s", r.code, r.err)
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
	p = call{}.serve(t, args...) // as it was saved at the start
	if got := status(t, p.at("gateway")+"/"); got != 200 {
		t.Errorf("after a kill: %d", got)
	}
	if got := status(t, p.at("gateway")+"/"); got != 429 {
		t.Errorf("after a kill: %d", got)
	}
	p.end()
}

func TestStateThatCannotBeUsedIsNotPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	call{}.serve(t, "--set", "server.state="+file).end()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "torn": string(whole[:len(whole)-5]), "foreign": "PNG\n", "changed": strings.Replace(string(whole), `"keys":0`, `"keys":1`, 1) + "x",
	} {
		write(t, dir, "state", text)
		r := call{}.run(t, "serve", "--http", "127.0.0.1:0", "--set", "server.state="+file)
		if r.code != 1 || !strings.Contains(r.err, "to start with empty counts, move that file away") || !strings.Contains(r.err, file) {
			t.Errorf("%s: exit %d %s", name, r.code, r.err)
		}
	}
	if r := (call{}).run(t, "serve", "--http", "127.0.0.1:0", "--set", "server.state="+filepath.Join(dir, "none", "state")); r.code != 1 || !strings.Contains(r.err, "server.state: ") {
		t.Errorf("a directory that is not there: exit %d %s", r.code, r.err)
	}
	r := call{}.run(t, "serve", "--http", "127.0.0.1:0", "--set", "server.state="+filepath.Join(dir, "other"), "--store", "redis://127.0.0.1:1")
	if r.code != 2 || !strings.Contains(r.err, "leave server.state out") {
		t.Errorf("with a Redis: exit %d %s", r.code, r.err)
	}
}
