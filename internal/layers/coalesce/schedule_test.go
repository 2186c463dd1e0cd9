package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
)

// A register is a store that decides nothing: it writes down what reaches it, and answers
// each place of each request so that no two answers are the same.
type register struct {
	weir.Store
	mu    sync.Mutex
	clock int // of what happens, in order
	held  []chan struct{}
	rows  []row
}

// A row is one request that reached the register.
type row struct {
	key    string
	cost   int64
	times  int64
	sentAt int
	taken  map[int64]*client // by place: who got its answer
}

// enter writes requests down and returns when they may go on. The rows begin at first.
func (r *register) enter(requests []weir.Request) (first int) {
	r.mu.Lock()
	first = len(r.rows)
	r.clock++
	for i := range requests {
		claim := requests[i].Claims[0]
		r.rows = append(r.rows, row{strings.Clone(claim.Key), claim.Cost, requests[i].Times, r.clock,
			map[int64]*client{}})
	}
	gate := make(chan struct{})
	r.held = append(r.held, gate)
	r.mu.Unlock()
	<-gate
	return first
}

// grants says how many of times are granted: any number will do, here it differs by row.
func grants(row int, times int64) int64 { return int64(row) * 7 % (times + 1) }

func (r *register) Decide(_ context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	at := r.enter([]weir.Request{{Claims: claims, Times: times}})
	decisions[0] = weir.Decision{At: weir.Instant(at), Remaining: 0}
	return grants(at, times), nil
}

func (r *register) DecideBatch(_ context.Context, requests []weir.Request) {
	first := r.enter(requests)
	for i := range requests {
		requests[i].Granted = grants(first+i, requests[i].Times)
		for place := range requests[i].Decisions {
			requests[i].Decisions[place] = weir.Decision{At: weir.Instant(first + i), Remaining: int64(place)}
		}
	}
}

func (r *register) Close() error { return nil }

// A client asks once.
type client struct {
	cancel   context.CancelFunc
	key      string
	cost     int64
	askedAt  int
	moment   int // several may ask in one
	done     bool
	granted  int64
	decision weir.Decision
	err      error
}

// play runs a script: each byte is a new caller, a leaving one, or the end of a call.
func (r *register) play(s *coalesce.Store, script []byte) (clients []*client) {
	moment := 0
	for _, step := range script {
		r.mu.Lock()
		r.clock++
		now, held := r.clock, len(r.held)
		r.mu.Unlock()
		what, which := step%8, int(step/8)
		switch {
		case what < 5:
			c := &client{key: fmt.Sprint("key-", which%5), cost: int64(1 + which/5%2), askedAt: now, moment: moment}
			clients = append(clients, c)
			c.start(s)
		case what == 5 && len(clients) > 0:
			clients[len(clients)-1-which%len(clients)].cancel()
		case held > 0:
			r.end(which % held)
		}
		if which < 28 { // else what comes next happens at the same moment
			synctest.Wait()
			moment++
		}
	}
	return clients
}

func (c *client) start(s *coalesce.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		decisions := make([]weir.Decision, 1)
		claims := []weir.Claim{{Key: c.key, Limit: hour, Cost: c.cost}}
		c.granted, c.err = s.Decide(ctx, claims, 1, decisions)
		c.decision, c.done = decisions[0], true
	}()
}

func (r *register) end(i int) {
	r.mu.Lock()
	close(r.held[i])
	r.held = append(r.held[:i], r.held[i+1:]...)
	r.mu.Unlock()
}

// finish ends all calls until there are none.
func (r *register) finish() {
	for synctest.Wait(); len(r.held) > 0; synctest.Wait() {
		r.end(0)
	}
}

// check compares the results of all clients with the register.
func (r *register) check(t *testing.T, clients []*client) {
	unknowns := make(map[string]int64) // left under way, by what they asked for
	for i, c := range clients {
		switch {
		case !c.done:
			t.Fatalf("client %d was never answered", i)
		case c.err == nil:
			r.own(t, i, c)
		case !errors.Is(c.err, context.Canceled) || !errors.Is(c.err, weir.ErrUnavailable):
			t.Fatalf("client %d: %v", i, c.err)
		case strings.Contains(c.err.Error(), unknown):
			unknowns[fmt.Sprint(c.cost, c.key)]++
		}
	}
	for i := range r.rows {
		row := &r.rows[i]
		r.inOrder(t, i)
		unknowns[fmt.Sprint(row.cost, row.key)] -= row.times - int64(len(row.taken))
	}
	for what, n := range unknowns {
		if n != 0 {
			t.Fatalf("%s: %+d clients without a known decision, compared with unclaimed decisions", what, n)
		}
	}
}

// own checks that a client's answer is its own: for its claims, sent after it began, and granted if its position was.
func (r *register) own(t *testing.T, i int, c *client) {
	row, place := &r.rows[c.decision.At], c.decision.Remaining
	want := int64(0)
	if place < grants(int(c.decision.At), row.times) {
		want = 1
	}
	switch {
	case row.key != c.key || row.cost != c.cost:
		t.Fatalf("client %d asked for %d of %s and has the answer to %d of %s", i, c.cost, c.key, row.cost, row.key)
	case row.sentAt < c.askedAt:
		t.Fatalf("client %d asked at %d and has an answer to what was sent at %d", i, c.askedAt, row.sentAt)
	case place >= row.times || row.taken[place] != nil:
		t.Fatalf("client %d has place %d of %d, which is somebody else's", i, place, row.times)
	case c.granted != want:
		t.Fatalf("client %d in place %d of %d was granted %d, want %d", i, place, row.times, c.granted, want)
	}
	row.taken[place] = c
}

// inOrder checks that positions are in the order of arrival.
func (r *register) inOrder(t *testing.T, i int) {
	last := 0
	for place := range r.rows[i].times {
		c := r.rows[i].taken[place]
		if c == nil {
			continue
		}
		if c.moment < last {
			t.Fatalf("request %d: place %d has who asked in moment %d, after one of moment %d", i, place, c.moment,
				last)
		}
		last = c.moment
	}
}

// follows plays a script and checks the results.
func follows(t *testing.T, script []byte, shards int) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{}
		s := coalesce.NewLanes(r, shards)
		clients := r.play(s, script)
		r.finish()
		r.check(t, clients)
		for _, c := range clients {
			c.cancel()
		}
		if batches, calls := s.Waiting(); batches != 0 || calls != 0 {
			t.Fatalf("%d batches wait and %d calls are under way when all is over", batches, calls)
		}
	})
}

func TestSchedules(t *testing.T) {
	for n := range uint64(schedules) {
		random := rand.New(rand.NewPCG(3, n))
		script := make([]byte, 1+random.IntN(120))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		if follows(t, script, 1+int(n%3)); t.Failed() {
			t.Fatalf("script %d: %v", n, script)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add([]byte{0, 0, 0, 5, 6, 7, 1, 2, 13, 6, 6})
	f.Fuzz(func(t *testing.T, script []byte) { follows(t, script[:min(len(script), 500)], 1) })
}
