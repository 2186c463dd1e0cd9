//go:build unix

package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

// TestEvictionPolicyThatIsSetLaterIsNoticed, and its end, each once.
func TestEvictionPolicyThatIsSetLaterIsNoticed(t *testing.T) {
	redis, log := redistest.Start(t), new(bytes.Buffer)
	e := new(Engine)
	e.Store, e.Log = redis.URL(), slog.New(slog.NewTextHandler(log, nil))
	conn, err := redisconn.Open(t.Context(), redis.URL(), redisconn.Config{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e.conn = conn.(inspector)
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
	opened := connections(t, redis)
	for range 2 {
		if e.lookAtPolicy(t.Context()); e.evicts() != nil {
			t.Errorf("the problems are %q", e.evicts())
		}
	}
	if now := connections(t, redis); now != opened+1 { // that of the count
		t.Errorf("two looks took %d connections", now-opened-1)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || strings.Count(text, "level=INFO") != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

// connections is how many connections the server has had.
func connections(t *testing.T, redis *redistest.Server) (n int) {
	info := fmt.Sprint(redis.Do("INFO", "stats"))
	_, count, _ := strings.Cut(info, "total_connections_received:")
	if _, err := fmt.Sscan(count, &n); err != nil {
		t.Fatalf("%v: %s", err, info)
	}
	return n
}
