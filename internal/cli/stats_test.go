//go:build unix

package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/telemetry"
)

// reports is a server with known figures: of the rule login, 30 of 100 requests are refused.
func reports(t *testing.T, healthy bool) (url string) {
	t.Helper()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	worst := telemetry.KeyRate{Key: "client.ip=11:203.0.113.7", Passed: 2, Refused: 27, Share: 0.9}
	login := telemetry.RuleSummary{Name: "login", Mode: "enforce", Limits: []string{"5/1m"},
		Counts: telemetry.Counts{Passed: 70, Refused: 30}, WorstKey: &worst}
	overview := telemetry.Overview{From: at, To: at.Add(time.Hour), Step: time.Minute, Total: telemetry.Counts{Passed: 970, Refused: 30},
		Rules: []telemetry.RuleSummary{login}, More: 3, Nodes: []telemetry.Node{{Name: "n1", StoreUp: healthy}}}
	mux := http.NewServeMux()
	answer := func(path string, report any) {
		mux.HandleFunc("GET /v1/admin/telemetry/"+path, func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("from") == "" || r.FormValue("node") == "unknown" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_ = json.NewEncoder(w).Encode(report)
		})
	}
	answer("overview", &overview)
	answer("rules/login", &telemetry.RuleReport{RuleSummary: login, Distinct: 12, Top: []telemetry.KeyRate{worst}})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestStatsPrintsTablesAndJSON(t *testing.T) {
	t.Parallel()
	url := reports(t, true)
	here := call{env: []string{"WEIR_SERVER=" + url}}
	for _, c := range []struct {
		args string
		want []string
	}{
		{"stats --check", []string{"1 node, 1000 requests: 3.0% refused, 0.0% denied",
			"login  enforce  5/1m   70      30       30.0%  203.0.113.7", "and 3 more rules"}},
		{"stats login", []string{"login, enforce, 5/1m: 30 of 100 requests refused (30.0%), about 12 keys",
			"\n203.0.113.7  2       27       90.0%"}},
		{"stats --json", []string{`"rules":[{"name":"login"`}},
	} {
		r := here.run(t, strings.Fields(c.args)...)
		for _, want := range c.want {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("weir %s: no %q in %v", c.args, want, r)
			}
		}
	}
}

func TestExitCodesOfStats(t *testing.T) {
	t.Parallel()
	sick := reports(t, false)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"stats --check --server " + sick, 3, "! n1: the store is not responding"},
		{"stats --check --json --server " + sick, 3, `"store_up":false`},
		{"stats --server " + sick, 0, "! n1"},
		{"stats other --server " + sick, 1, "404 Not Found"},
		{"stats --node unknown --server " + sick, 1, "404 Not Found"},
		{"stats --server http://127.0.0.1:1", 1, "http://127.0.0.1:1 is not responding"},
		{"top --server http://127.0.0.1:1", 1, "http://127.0.0.1:1 is not responding"},
		{"stats --last 25h", 2, "--last is 25h0m0s; allowed: 1m to 24h"},
		{"stats --check login", 2, `--check is about the whole server, but the argument "login" names a rule`},
		{"top --every 1ms", 2, "--every is 1ms; allowed: 1s to 1h"},
	} {
		r := call{}.run(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("weir %s: want exit %d and %q: %v", c.args, c.code, c.want, r)
		}
	}
}

// A terminal is one of tmux, with a shell in it.
type terminal struct {
	t      *testing.T
	socket string
}

func openTerminal(t *testing.T, env ...string) *terminal {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // shorter than t.TempDir(): a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	term := &terminal{t, filepath.Join(dir, "tmux")}
	shell := append([]string{"env", "-i", "PS1=ready> ", "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"),
		"TERM=screen-256color", "LC_ALL=C.UTF-8"}, env...)
	term.tmux(append([]string{"-f", os.DevNull, "new-session", "-d", "-x", "80", "-y", "24"}, append(shell, "sh")...)...)
	t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// types sends keys by tmux's names, and waits until the screen has a text, and another is gone.
func (term *terminal) types(want, gone string, keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
	redistest.Await(term.t, want+" on the screen", func() bool {
		text := term.tmux("capture-pane", "-p")
		return strings.Contains(text, want) && (gone == "" || !strings.Contains(text, gone))
	})
}

// restored checks that the shell has its screen again, its modes and its cursor.
func (term *terminal) restored() {
	term.t.Helper()
	term.types("before top", "WORST KEY")
	term.types("saved equals now", "", `[ "$saved" = "$(stty -g)" ] && echo saved equals "n"ow`, "Enter")
	if got := term.tmux("display", "-p", "#{cursor_flag} #{alternate_on} #{mouse_any_flag}"); got != "1 0 0\n" {
		term.t.Errorf("cursor, alternate screen, mouse: %s", got)
	}
}

func TestTopInTerminal(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	term := openTerminal(t, "WEIR_SERVER="+reports(t, true))
	term.types("before top", "", `saved=$(stty -g); echo before "top"`, "Enter")
	start := func() {
		term.types("90% 203.0.113.7", "before top", "sh -c 'echo $$ >"+pid+"; exec weir top'", "Enter")
	}
	start()
	term.types("about 12 keys", "", "Enter")
	term.tmux("resize-window", "-x", "60", "-y", "10")
	term.types("TREND", "about 12 keys", "Escape")
	term.tmux("resize-window", "-x", "80", "-y", "24")
	term.types("ready> ", "WORST KEY", "q")
	term.restored()
	start()
	term.types("ready> ", "WORST KEY", "C-c")
	term.restored()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		start()
		text, err := os.ReadFile(pid)
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			err = syscall.Kill(number, signal)
		}
		if err != nil {
			t.Fatal(err)
		}
		term.restored()
	}
}

func TestTopRespectsNoColor(t *testing.T) {
	t.Parallel()
	red := regexp.MustCompile(`\x1b\[(?:[0-9]*;)*3[0-8]`)
	for _, colours := range []bool{true, false} {
		env := []string{"WEIR_SERVER=" + reports(t, false)}
		if !colours {
			env = append(env, "NO_COLOR=1")
		}
		term := openTerminal(t, env...)
		term.types("! n1: the store is not responding", "", "weir top", "Enter")
		if screen := term.tmux("capture-pane", "-p", "-e"); red.MatchString(screen) != colours {
			t.Errorf("with colours %v the screen is %q", colours, screen)
		}
		term.types("ready> ", "", "q")
	}
}

func TestTopNeedsTerminal(t *testing.T) {
	t.Parallel()
	command := exec.Command(program, "top", "--server", reports(t, true))
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no controlling terminal
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "weir top needs a terminal") || !strings.Contains(string(out), "weir stats prints") {
		t.Errorf("%v: %s", err, out)
	}
}
