//go:build unix

package cli_test

import (
	"fmt"
	"io"
	"iter"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// A relay stands between a server and Redis, and delays what is sent there.
type relay struct {
	net.Listener
	delay atomic.Int64
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	r := &relay{Listener: listener}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go r.carry(from, to)
		}
	}()
	return r
}

func (r *relay) carry(from net.Conn, to string) {
	defer from.Close()
	redis, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer redis.Close()
	go io.Copy(from, redis)
	type chunk struct {
		text []byte
		due  time.Time
	}
	chunks := make(chan chunk, 1000)
	defer close(chunks)
	go func() {
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			redis.Write(c.text)
		}
	}()
	for {
		buffer := make([]byte, 64<<10)
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		chunks <- chunk{buffer[:n], time.Now().Add(time.Duration(r.delay.Load()))}
	}
}

// answersWithin yields the status of each answer of the gateway. One of twenty must come within the budget and a half: a
// busy machine is late now and then, but a decision that waits for a second timeout is late each time.
func (p *process) answersWithin(budget time.Duration, path string) iter.Seq[int] {
	return func(yield func(int) bool) {
		p.t.Helper()
		least := time.Hour
		for try := 0; try < 20 && least > budget+budget/2; try++ {
			began := time.Now()
			got := status(p.t, p.at("gateway")+path)
			least = min(least, time.Since(began))
			if !yield(got) {
				return
			}
		}
		if least > budget+budget/2 {
			p.t.Errorf("%s: an answer takes %v at the least, want %v", path, least, budget)
		}
	}
}

// TestStalledRedisKeepsTheBudget: while Redis is slow or stands still, each answer comes within
// server.store.timeout, also where a decision needs many calls.
func TestStalledRedisKeepsTheBudget(t *testing.T) {
	const (
		budget    = 500 * time.Millisecond
		anyAnswer = 0
	)
	text := `
rules:
  - {name: local, match: {path: /local}, limit: 1000/1h, candidate: {limit: 1/1h}}
  - {name: banned, match: {path: /banned}, limit: 1/1h, ban: {after: 100 refusals within 1h, for: 1h}}
  - {name: allow, match: {path: /allow}, limit: 1000/1h, on_store_error: allow}
  - {name: deny, match: {path: /deny}, limit: 1000/1h, on_store_error: deny}
`
	for i := range 8 {
		text += fmt.Sprintf("  - {name: shadow-%d, limit: 1/1h, mode: shadow}\n", i)
	}
	redis := redistest.Start(t)
	wire := newRelay(t, redis.Addr())
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", text), "--store", "redis://"+wire.Addr().String(),
		"--set", "server.store.timeout="+budget.String(), "--gateway", "127.0.0.1:0", "--upstream", "demo", "--set", "server.without=breaker")
	ask := func(when string, wants map[string]int) {
		t.Helper()
		for path, want := range wants {
			for got := range p.answersWithin(budget, path) {
				if got != want && (want != anyAnswer || got != 200 && got != 429 && got != 503) {
					t.Errorf("%s, %s: %d, want %d", when, path, got, want)
				}
			}
		}
	}
	ask("Redis is well", map[string]int{"/local": 200, "/banned": 200, "/allow": 200, "/deny": 200})
	// A request that waits for the call of another one is over its budget then.
	wire.delay.Store(int64(budget / 2))
	ask("Redis is slow", map[string]int{"/local": 200, "/banned": 429, "/allow": 200, "/deny": anyAnswer})
	wire.delay.Store(0)
	redis.Stop()
	defer redis.Cont()
	for range 2 {
		ask("Redis stands still", map[string]int{"/local": 200, "/banned": 429, "/allow": 200, "/deny": 503})
	}
	redis.Cont()
	p.end()
}
