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
)

// TestAPipelineIsFewCalls: commands that came together go to Redis together, and those of one key
// are decided in the order in which they came, whatever their numbers.
func TestAPipelineIsFewCalls(t *testing.T) {
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

// counting is a store whose batches wait until they are let go.
type counting struct {
	weir.Store
	now, most atomic.Int64
	came, let chan struct{}
}

func (s *counting) DecideBatch(ctx context.Context, requests []weir.Request) {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.came <- struct{}{}
	<-s.let
	for i := range requests {
		r := &requests[i]
		r.Granted, r.Err = s.Store.Decide(ctx, r.Claims, r.Times, r.Decisions)
	}
}

// TestPipelinesWaitForTheirTurn: the time of the store is for so many batches at once; those of
// more connections wait before it begins.
func TestPipelinesWaitForTheirTurn(t *testing.T) {
	const conns, most = 40, 16
	store := &counting{Store: memstore.New(), came: make(chan struct{}, conns), let: make(chan struct{})}
	d := openOn(t, store)
	var lines []*line
	for range conns {
		c := d.dial()
		c.send(strings.Repeat(wire("CL.THROTTLE", "k", "999", "1", "3600"), 2))
		lines = append(lines, c)
	}
	for range most {
		<-store.came
	}
	close(store.let)
	for _, c := range lines {
		for range 2 {
			if got := c.reply(); !strings.HasPrefix(got, "[0 1000 ") {
				t.Fatalf("the reply is %s", got)
			}
		}
	}
	if got := store.most.Load(); got > most {
		t.Errorf("%d batches were at the store at once, want at most %d", got, most)
	}
}
