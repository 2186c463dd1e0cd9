package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestFullPathsAreSaid: once in the log, and as long as it is so for /readyz, the metric and the page Health.
func TestFullPathsAreSaid(t *testing.T) {
	file, err := rules.Parse("rules.yaml", []byte("rules: [{name: a, key: [endpoint], limit: 5/1m}]"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	e := &Engine{Config: Config{Log: slog.New(slog.NewTextHandler(&text, nil))}}
	if e.Gate, err = gate.New(memstore.New(), set, gate.WithLocal(memstore.New())); err != nil {
		t.Fatal(err)
	}
	var v gate.Verdict
	for i := range bounds.Endpoints {
		if why := e.pathsFull(); why != "" {
			t.Fatalf("after %d paths: %s", i, why)
		}
		if err := e.Gate.Decide(t.Context(), &rules.Request{Path: fmt.Sprint("/", i)}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	if why := e.pathsFull(); !strings.Contains(why, "all 1000 paths are taken") || e.paths() != bounds.Endpoints {
		t.Errorf("%d paths: %q", e.paths(), why)
	}
	var logged time.Time
	for range 3 {
		logged = e.lookForFullPaths(logged)
	}
	if n := strings.Count(text.String(), "level=WARN"); n != 1 {
		t.Errorf("%d log lines: %s", n, &text)
	}
}
