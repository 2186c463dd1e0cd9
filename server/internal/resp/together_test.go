package resp_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// TestPipelineTakesFewCalls: commands that arrive together go to Redis together, and those of one key
// are decided in the order in which they came, whatever their numbers.
func TestPipelineTakesFewCalls(t *testing.T) {
	server := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	c := openOn(t, store).dial()
	calls := func() int {
		_, rest, _ := strings.Cut(server.Info("commandstats")["cmdstat_evalsha"], "calls=")
		number, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(number)
		return n
	}
	pipeline := func(key func(i int) string) {
		t.Helper()
		var raw strings.Builder
		for i := range 640 {
			raw.WriteString(wire("CL.THROTTLE", key(i), "999", "1", "3600"))
		}
		c.send(raw.String())
		seen := make(map[string]int)
		for i := range 640 {
			seen[key(i)]++
			if got, want := c.reply(), fmt.Sprintf("[0 1000 %d -1 ", 1000-seen[key(i)]); !strings.HasPrefix(got, want) {
				t.Fatalf("reply %d is %s, want %s…", i, got, want)
			}
		}
	}
	pipeline(func(i int) string { return fmt.Sprint("warm", i) })
	before := calls()
	pipeline(func(i int) string { return fmt.Sprint("key", i) })
	if got := calls() - before; got > 40 { // one for 64 of them, more where reads cut the pipeline
		t.Errorf("640 commands take %d calls of Redis, want at most 40", got)
	}
	pipeline(func(i int) string { return fmt.Sprint("few", i%3) })

	// Other quantities, a wrong command and one that is not for the store, in between.
	c.send(wire("CL.THROTTLE", "mix", "9", "1", "3600") + wire("CL.THROTTLE", "mix", "9", "1", "3600", "5") + wire("CL.THROTTLE", "mix", "9", "x", "3600") +
		wire("WEIR.DECIDE", "LIMIT", "cl.throttle", "1/1h burst 10", "mix") + wire("PING") + wire("CL.THROTTLE", "mix", "9", "1", "3600", "4") + wire("CL.THROTTLE", "mix", "9", "1", "3600"))
	for i, want := range []string{"[0 10 9 -1 3600]", "[0 10 4 -1 ", "-Cell error: Store error: Couldn't parse as integer: x", "[granted 1 ", "PONG", "[1 10 3 ", "[0 10 2 -1 "} {
		if got := c.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("reply %d is %s, want %s…", i, got, want)
		}
	}
}

// A blocking store counts its batches, which wait until let is closed.
type blocking struct {
	weir.Store
	now, most, calls atomic.Int64
	arrived, let     chan struct{}
}

func (s *blocking) DecideBatch(ctx context.Context, requests []weir.Request) {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	s.calls.Add(1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.arrived <- struct{}{}
	<-s.let
	for i := range requests {
		r := &requests[i]
		if r.Claims[0].Key == "broken" {
			r.Err = weir.ErrForeignState
			continue
		}
		r.Granted, r.Err = s.Store.Decide(ctx, r.Claims, r.Times, r.Decisions)
	}
}

// TestWaitingBatchesAreJoined: at most 16 batches are at the store at a time, and those that wait
// share a call, each with its own answers and errors.
func TestWaitingBatchesAreJoined(t *testing.T) {
	const conns, most = 100, 16
	store := &blocking{Store: memstore.New(), arrived: make(chan struct{}, conns), let: make(chan struct{})}
	d := openOn(t, store)
	var lines []*line
	for i := range conns {
		c := d.dial()
		key := fmt.Sprint("k", i)
		c.send(strings.Repeat(wire("CL.THROTTLE", key, "999", "1", "3600"), 1+i%3) + wire("CL.THROTTLE", "broken", "9", "1", "3600"))
		lines = append(lines, c)
		if i < most {
			<-store.arrived
		}
	}
	redistest.Await(t, "the other connections to wait", func() bool { return resp.Waiting(d.server) == conns-most })
	close(store.let)
	for i, c := range lines {
		for n := range 1 + i%3 {
			if got, want := c.reply(), fmt.Sprintf("[0 1000 %d -1 ", 999-n); !strings.HasPrefix(got, want) {
				t.Fatalf("connection %d: the reply is %s, want %s…", i, got, want)
			}
		}
		if got := c.reply(); !strings.HasPrefix(got, "-WRONGTYPE") {
			t.Fatalf("connection %d: the reply is %s, want an error", i, got)
		}
	}
	if got := store.most.Load(); got > most {
		t.Errorf("%d batches were at the store at once, want at most %d", got, most)
	}
	if got := store.calls.Load(); got > most+6 { // 84 waiting batches of 2 to 4 commands, 64 in a call
		t.Errorf("%d batches took %d calls of the store, want at most %d", conns, got, most+6)
	}
}
