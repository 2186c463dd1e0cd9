//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
)

// examples are those that a command's help shows, with lines that go on joined.
func examples(t *testing.T, command string) (list []string) {
	t.Helper()
	r := call{}.run(t, append(strings.Fields(command), "--help")...)
	if r.code != 0 {
		t.Fatal(r)
	}
	_, text, ok := strings.Cut(r.out, "Examples:\n")
	if !ok {
		t.Fatalf("the help of %s has no examples:\n%s", command, r.out)
	}
	text, _, _ = strings.Cut(text, "\nAvailable Commands:")
	text, _, _ = strings.Cut(text, "\nFlags:")
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "Flags:") && strings.Contains(line, "weir ") {
			list = append(list, line)
		}
	}
	return list
}

// shown are the lines for a shell in the pages about the command.
func shown(t *testing.T) (list []string) {
	t.Helper()
	for _, name := range []string{"reference/weir.md", "howto/deploying.md", "howto/audit.md", "howto/alerts.md"} {
		page, err := os.ReadFile("../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			list = append(list, strings.Split(strings.TrimSpace(strings.ReplaceAll(block[1], "go run ./server/cmd/weir ", "weir ")), "\n")...)
		}
	}
	return list
}

// elsewhere are addresses that examples name and tests must not take.
var elsewhere = regexp.MustCompile(`(0\.0\.0\.0|127\.0\.0\.1):(8443|6380|8081)`)

// operators are the commands of operators, in an order in which each finds what it needs.
var operators = []string{"rules set", "rules", "rules list", "rules get", "rules diff", "rules history", "rules rollback", "rules disable", "rules enable", "rules confirm",
	"block", "allow", "override set", "override", "override list", "override delete", "keys", "keys get", "keys reset", "rules delete",
	"rules compare", "rules promote", "bans", "bans list", "bans lift", "stats"}

// TestExamples runs what the helps show.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := certtest.New(t, dir, "authority")
	authority.Issue("cert", "key")
	write(t, dir, "weir.yaml", "server: {path_form: strict}\nrules:\n  - {name: per-ip, key: [client.ip], limit: 5/10s}\n"+
		"  - {name: login, match: {path: /login}, key: [client.ip], limit: 5/1m, ban: {after: 5 refusals within 10m, for: 15m}}\n")
	write(t, dir, "login.rule", login("5/1m"))
	tested := "rules: [{name: a, limit: 5/10s}]\ntests:\n  - {name: burst, requests: [{repeat: 6, expect: {passed: 5}}]}\n"
	write(t, dir, "login.test.yaml", tested)
	for _, folder := range []string{"tests", "old", "config"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "tests/a.yaml", tested)
	write(t, dir, "old/weir.yaml", "rules: [{name: login, match: {path: /login}, key: [client.ip], limit: 5/1m}]\n")
	access := `192.0.2.7 - - [20/Nov/2026:09:00:00 +0000] "POST /login HTTP/1.1" 200 512 "-" "curl/8"` + "\n"
	write(t, dir, "access.log.1", access)
	for minute := range 120 { // --max-refused asks for a hundred requests
		access += strings.Replace(access[:strings.Index(access, "\n")+1], "09:00:00",
			fmt.Sprintf("%02d:%02d:30", 9+minute/60, minute%60), 1)
	}
	write(t, dir, "access.log", access)
	write(t, dir, "config/ratelimit.yaml", "domain: site\ndescriptors: []\n")
	write(t, dir, "nginx.conf", "http {}\n")
	write(t, dir, "recorded.json", `{"domain": "site", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}`+"\n")
	write(t, dir, "token", "0123456789abcdef")
	write(t, dir, "audit.log", `{"at":"2026-11-22T17:00:00Z","node":"a","outcome":"refused","rule":"login"}`+"\n")
	if err := os.MkdirAll(filepath.Join(dir, ".local/share/bash-completion/completions"), 0o700); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	here := call{dir: dir, env: []string{"HOME=" + dir, "WEIR_HTTP=127.0.0.1:0", "WEIR_GATEWAY=127.0.0.1:0"}}
	running := here.serve(t, "--http", "127.0.0.1:0", "--gateway", "off", "--config", "weir.yaml")
	all := 0
	for _, command := range slices.Concat([]string{"", "serve", "check", "test", "schema", "import", "backtest", "explain", "health", "schema", "version", "completion", "man", "audit", "audit query", "audit tail"}, operators) {
		list := examples(t, command)
		if command == "" {
			list = append(list, shown(t)...)
		}
		if len(list) == 0 {
			t.Errorf("the help of %s shows no example", command)
		}
		for _, line := range list {
			all++
			line = strings.ReplaceAll(elsewhere.ReplaceAllString(line, "127.0.0.1:0"), "redis://127.0.0.1:6379", redis.URL())
			if strings.HasPrefix(line, "weir serve") {
				if !strings.Contains(line, "--upstream") {
					line = "unset WEIR_GATEWAY; " + line
				}
				here.start(t, "bash", "-c", strings.Replace(line, "weir ", "exec weir ", 1)).end()
				continue
			}
			if line, ok := runnable(line, running.at("http")); ok {
				if r := here.shell(t, line); r.code != 0 {
					t.Errorf("%s\n%v", line, r)
				}
			}
		}
	}
	if all < 20 {
		t.Errorf("only %d examples were found", all)
	}
	running.end()
}

// runnable is an example as bash on any machine can run it: other shells' scripts are only
// printed, and servers are where the test has one.
func runnable(line, server string) (string, bool) {
	if regexp.MustCompile(`^(WEIR_TOKEN=\S+ .*\) )?(docker|kubectl|helm) `).MatchString(line) {
		return "", false
	}
	if strings.HasPrefix(line, "weir completion") && !strings.Contains(line, "bash") {
		line, _, _ = strings.Cut(line, " > ")
		line, _, _ = strings.Cut(line, " | ")
	}
	if strings.HasPrefix(line, "weir stats --watch") { // it ends when it is killed
		return "export WEIR_SERVER=" + server + "; timeout 1 " + line + " || [ $? = 124 ]", true
	}
	if regexp.MustCompile(`weir (rules|override|block|allow|keys|bans|stats)\b`).MatchString(line) {
		return "export WEIR_SERVER=" + server + "; " + line, true
	}
	if strings.HasPrefix(line, "weir audit tail") { // it ends when it is killed
		return "timeout 1 " + line + " || [ $? = 124 ]", true
	}
	line = strings.ReplaceAll(line, "--server http://127.0.0.1:8080", "--server "+server)
	if strings.HasPrefix(line, "weir health") {
		return "weir health --server " + server, !strings.Contains(line, "unix:")
	}
	return line, true
}

var (
	flagLine  = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	flagShown = regexp.MustCompile("(?:`|weir [^`\n]* )--([a-z][a-z-]+)")
)

// TestFlagsOfThePagesExist: the helps are the reference of flags, and the pages name no other ones.
func TestFlagsOfThePagesExist(t *testing.T) {
	t.Parallel()
	var known []string
	for _, command := range slices.Concat([]string{"serve", "check", "test", "schema", "import", "backtest", "explain", "health", "rules restore", "rules edit", "audit query", "audit tail", "verify-proxy"}, operators) {
		_, text, _ := strings.Cut(call{}.run(t, append(strings.Fields(command), "--help")...).out, "Flags:\n")
		for _, flag := range flagLine.FindAllStringSubmatch(text, -1) {
			known = append(known, flag[1])
		}
	}
	pages, err := filepath.Glob("../../../docs/*/*.md")
	if err != nil || len(pages) < 15 {
		t.Fatal(pages, err)
	}
	found := 0
	for _, page := range append(pages, "../../../README.md", "../../../README.zh-CN.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range flagShown.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.Contains(known, flag[1]) {
				t.Errorf("%s names the flag --%s, which no command has", page, flag[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d flags were found", found)
	}
}
