package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the commands say into testdata")

// TestTranscripts runs each story of testdata: files, then what a user types and sees.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			files, transcript, ok := strings.Cut(string(text), "-- transcript --\n")
			if !ok {
				t.Fatal("no line -- transcript --")
			}
			unpack(t, dir, files)
			got := replay(t, dir, transcript)
			if *update {
				if err := os.WriteFile(name, []byte(files+"-- transcript --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != transcript {
				t.Errorf("got\n%s\nwant\n%s", got, transcript)
			}
		})
	}
}

// unpack writes "-- name --" and the lines below it.
func unpack(t *testing.T, dir, text string) {
	t.Helper()
	name, body := "", ""
	for line := range strings.Lines(text + "-- --\n") {
		rest, begins := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		next, ends := strings.CutSuffix(rest, "--")
		if !begins || !ends {
			body += line
			continue
		}
		if name != "" {
			write(t, dir, name, body)
		}
		name, body = strings.TrimSpace(next), ""
	}
}

// replay types each line after a $, and tells what came of it.
func replay(t *testing.T, dir, transcript string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(transcript) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		r := call{dir: dir}.shell(t, "exec 2>&1; "+command)
		b.WriteString(line + r.out)
		if r.code != 0 {
			fmt.Fprintf(&b, "[exit %d]\n", r.code)
		}
	}
	return b.String()
}
