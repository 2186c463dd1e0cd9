package redisconn

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/respguard"
)

// charge counts its calls, and answers with the count and a text.
func charge() *Script { return ScriptOf(`return {redis.call('INCRBY', KEYS[1], ARGV[1]), 'ok'}`) }

// open opens a Conn that the test's end closes. It is patient, as the machine may be busy.
func open(t testing.TB, url string, config Config) *rueidisConn {
	t.Helper()
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := openConn(ctx, url, config, respguard.Decisions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// run runs the script of charge once, with much time.
func run(t testing.TB, c Conn, key string) ([]Value, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Run(ctx, charge(), []string{key}, []string{"1"}, nil)
}

// mustRun is run where nothing may go wrong.
func mustRun(t testing.TB, c Conn, key string) int64 {
	t.Helper()
	reply, err := run(t, c, key)
	if err != nil {
		t.Fatal(err)
	}
	return reply[0].Int
}
