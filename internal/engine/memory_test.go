package engine

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestMemoryOfRules loads many rules, and then one, and checks what stays on the heap a second after each load: the
// rules in force and their file, nothing of the text, of the YAML nodes, of the check for warnings, or of rules that
// were replaced.
func TestMemoryOfRules(t *testing.T) {
	const n, loaded, replaced = 10_000, 3500, 500 // bytes of each rule: 3,060 are needed
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: r%d, match: {path: /svc%[1]d/items/**}, key: [client.ip], limit: 100/1s}\n", i)
	}
	config := Config{}
	config.Rules, config.Log = filepath.Join(t.TempDir(), "rules.yaml"), slog.New(slog.DiscardHandler)
	config.Given = func(s *rules.Server) { s.Telemetry, s.Alerts = "off", "off" }
	write := func(text string) {
		if err := os.WriteFile(config.Rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(b.String())
	b.Reset()
	before := heap()
	e, settled := settling(t, config)
	e.linting.Lock()
	e.warned = []string{"kept"}
	e.linting.Unlock()
	if got := <-settled; got != n {
		t.Fatalf("%d rules are in force, want %d", got, n)
	}
	if each := (heap() - before) / n; each > loaded {
		t.Errorf("a loaded rule keeps %d bytes, want at most %d", each, loaded)
	}
	e.linting.Lock()
	if !slices.Equal(e.warned, []string{"kept"}) {
		t.Error("a file that has not changed since the start was checked for warnings again")
	}
	e.linting.Unlock()
	write("rules: [{name: a, limit: [5/1m, 10/1m]}]")
	if got := <-settled; got != 1 {
		t.Fatalf("%d rules are in force, want 1", got)
	}
	if each := (heap() - before) / n; each > replaced {
		t.Errorf("a rule that was replaced keeps %d bytes, want at most %d", each, replaced)
	}
	e.linting.Lock()
	defer e.linting.Unlock()
	if len(e.warned) != 1 || !strings.Contains(e.warned[0], "never decides") {
		t.Errorf("the warnings of the changed file are %q", e.warned)
	}
}

// settling opens an engine that sends the number of its rules whenever they have settled.
func settling(t *testing.T, config Config) (*Engine, chan int) {
	t.Helper()
	e, err := Read(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan int, 9)
	e.Settled = func(set *rules.Set) { settled <- len(set.Rules()) }
	if err = e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, settled
}

// heap is the number of bytes in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
