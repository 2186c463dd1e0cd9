package ratelimit_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/ratelimit"
)

// TestFieldsWithoutEffectAreLogged: the service accepts a field at a place where it does not read it.
func TestFieldsWithoutEffectAreLogged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "domain: a\ndescriptors:\n" + strings.Repeat("- {unit: day, key: KEY}\n", 22)
	for strings.Contains(text, "KEY") {
		text = strings.Replace(text, "KEY", "k"+strings.Repeat("x", strings.Count(text, "KEY")), 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	limits := new(ratelimit.Limits)
	source, err := limits.Source(&engine.Config{Server: rules.Server{EnvoyConfig: dir, ConfigPoll: time.Hour},
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	if n := source.Load(t.Context(), false); n.Err != nil {
		t.Fatal(n.Err)
	}
	got := log.String()
	if strings.Count(got, "unit is not read in a descriptor, and has no effect there") != 20 || !strings.Contains(got, "line=3\n") ||
		!strings.Contains(got, "fields=2\n") {
		t.Error(got)
	}
}
