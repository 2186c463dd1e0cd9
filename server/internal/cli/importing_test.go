package cli_test

import (
	"os"
	"strings"
	"testing"
)

// TestPageOfImports runs the commands that docs/howto/import.md shows, each with the file before it, and compares the rules.
func TestPageOfImports(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/howto/import.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written, rest := "", string(page)
	source, ran, shown := "", 0, false // shown: the next block is an output
	for {
		before, body, found := strings.Cut(rest, "\n```")
		if !found {
			break
		}
		kind, body, _ := strings.Cut(body, "\n")
		block, after, _ := strings.Cut(body, "```")
		written += before + "\n```" + kind + "\n"
		if kind == "sh" && strings.Contains(block, " --verify ") {
			verifies(t, block)
			ran++
		} else if command, is := strings.CutPrefix(block, "weir import "); is && kind == "sh" {
			dir := t.TempDir()
			words := strings.Fields(command)
			write(t, dir, words[len(words)-1], source)
			r := call{dir: dir}.run(t, append([]string{"import"}, words...)...)
			if r.code != 0 && r.code != 3 {
				t.Fatalf("%s: exit %d\n%s", block, r.code, r.err)
			}
			ran++
			source, shown = r.out, true
		} else if strings.HasPrefix(block, "# Imported by") || kind == "redis" && shown {
			if block != source && !*update {
				t.Errorf("the page shows\n%s\ninstead of\n%s", block, source)
			}
			block, shown = source, false
		} else {
			source = block
		}
		written += block + "```"
		rest = after
	}
	if *update {
		if err := os.WriteFile(path, []byte(written+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if ran == 0 {
		t.Error("no command was found")
	}
}

// verifies runs a command that compares imported rules with the log of nginx.
func verifies(t *testing.T, command string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "nginx.conf", "http { limit_req_zone $binary_remote_addr zone=one:1m rate=10r/s;\n"+
		"server { location / { limit_req zone=one; } } }\n")
	write(t, dir, "access.log", `192.0.2.7 1795392145.629 "GET / HTTP/1.1" 200 0.001 PASSED`+"\n"+
		`192.0.2.7 1795392145.649 "GET / HTTP/1.1" 503 0.001 REJECTED`+"\n")
	r := call{dir: dir}.shell(t, command)
	if r.code != 0 || !strings.Contains(r.err+r.out, "0 of 2") {
		t.Errorf("%s\n%v", command, r)
	}
}
