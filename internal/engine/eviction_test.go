//go:build unix

package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestEvictionPolicyThatIsSetLaterIsNoticed, and its end, each once.
func TestEvictionPolicyThatIsSetLaterIsNoticed(t *testing.T) {
	redis, log := redistest.Start(t), new(bytes.Buffer)
	e := &Engine{Setup: &Setup{}}
	e.Store, e.Log = redis.URL(), slog.New(slog.NewTextHandler(log, nil))
	e.lookAtPolicy(t.Context())
	redis.Do("CONFIG", "SET", "maxmemory", "100mb")
	redis.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	for range 2 {
		e.lookAtPolicy(t.Context())
		if got := e.evicts(); len(got) != 1 || !strings.Contains(got[0], " has maxmemory-policy allkeys-lru: ") {
			t.Errorf("the problems are %q", got)
		}
	}
	redis.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	for range 2 {
		if e.lookAtPolicy(t.Context()); e.evicts() != nil {
			t.Errorf("the problems are %q", e.evicts())
		}
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || strings.Count(text, "level=INFO") != 1 {
		t.Errorf("the log is\n%s", text)
	}
}
