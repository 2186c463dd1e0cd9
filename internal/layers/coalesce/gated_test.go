package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/memstore"
)

// A gated store holds each call until the test lets it go on.
type gated struct {
	*memstore.Store
	calls  chan *call
	sent   []weir.Request // of the last batch
	closed int
}

// A call reached the store. Its claims were copied on arrival.
type call struct {
	ctx      context.Context
	requests []weir.Request
	do       func() // instead of deciding
	goOn     chan struct{}
}

func newGated() *gated {
	return &gated{Store: memstore.New(memstore.WithClock(still)), calls: make(chan *call, 1000)}
}

// hold returns when the call may go on, and whether it is still to be decided.
func (g *gated) hold(ctx context.Context, requests []weir.Request) bool {
	c := &call{ctx: ctx, goOn: make(chan struct{})}
	for _, r := range requests {
		r.Claims = slices.Clone(r.Claims)
		for i := range r.Claims {
			r.Claims[i].Key = strings.Clone(r.Claims[i].Key)
		}
		c.requests = append(c.requests, r)
	}
	g.calls <- c
	<-c.goOn
	if c.do != nil {
		c.do()
	}
	return c.do == nil
}

func (g *gated) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if !g.hold(ctx, []weir.Request{{Claims: claims, Times: times}}) {
		return 0, errors.New("the call's own error")
	}
	return g.Store.Decide(ctx, claims, times, decisions)
}

func (g *gated) DecideBatch(ctx context.Context, requests []weir.Request) {
	g.sent = requests
	if g.hold(ctx, requests) {
		g.Store.DecideBatch(ctx, requests)
	}
}

func (g *gated) Close() error {
	g.closed++
	return g.Store.Close()
}

// next is the call that reached the store and has not been looked at.
func (g *gated) next(t *testing.T) *call {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-g.calls:
		return c
	default:
		t.Fatal("no call reached the store")
		return nil
	}
}

// all are the calls that reached the store and have not been looked at.
func (g *gated) all(t *testing.T) (calls []*call) {
	t.Helper()
	for synctest.Wait(); len(g.calls) > 0; {
		calls = append(calls, g.next(t))
	}
	return calls
}

func (g *gated) none(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(g.calls) > 0 {
		t.Fatalf("a call reached the store: %s", (<-g.calls).text())
	}
}

func (c *call) text() (text string) {
	for _, r := range c.requests {
		text += fmt.Sprintf("%d×%d %s ", r.Times, r.Claims[0].Cost, r.Claims[0].Key)
	}
	return strings.TrimSpace(text)
}

// is fails unless the call is that: "3×1 a 1×2 b" are three requests of one unit of a, and
// one request of two units of b.
func (c *call) is(t *testing.T, want string) *call {
	t.Helper()
	if got := c.text(); got != want {
		t.Fatalf("a call of %q, want %q", got, want)
	}
	return c
}

func (c *call) letGo() {
	close(c.goOn)
	synctest.Wait()
}

// A caller is a goroutine that asks once.
type caller struct {
	cancel   context.CancelFunc
	done     bool
	granted  int64
	decision weir.Decision
	err      error
	panicked any
	key      []byte // its buffer, which it reuses, as it does its claims
}

var hour = weir.MustLimit("limit", weir.FixedWindow{Limit: 5, Window: time.Hour})

// asks starts a caller and returns when it waits for something.
func asks(s weir.Store, key string, cost int64) *caller {
	ctx, cancel := context.WithCancel(context.Background())
	return asksIn(ctx, cancel, s, key, cost)
}

// aliased is a key in a buffer that its caller will use for something else.
func aliased(buffer []byte) string { return unsafe.String(unsafe.SliceData(buffer), len(buffer)) }

func asksIn(ctx context.Context, cancel context.CancelFunc, s weir.Store, key string, cost int64) *caller {
	c := &caller{cancel: cancel, key: []byte(key)}
	go func() {
		defer func() { c.done, c.panicked = true, recover() }()
		var decisions [1]weir.Decision
		claims := []weir.Claim{{Key: aliased(c.key), Limit: hour, Cost: cost}}
		c.granted, c.err = s.Decide(ctx, claims, 1, decisions[:])
		c.decision = decisions[0]
		copy(c.key, strings.Repeat("#", len(c.key)))
		clear(claims)
	}()
	synctest.Wait()
	return c
}

// wants fails unless a caller was answered so.
func (c *caller) wants(t *testing.T, granted, remaining int64) {
	t.Helper()
	if !c.done || c.err != nil || c.granted != granted || c.decision.Remaining != remaining {
		t.Errorf("done %v, granted %d, error %v, %d remain; want %d granted and %d left", c.done, c.granted, c.err,
			c.decision.Remaining, granted, remaining)
	}
}

func (c *caller) waits(t *testing.T) {
	t.Helper()
	if c.done {
		t.Errorf("has its answer already: granted %d, error %v", c.granted, c.err)
	}
}

// gaveUp checks the error of a caller that gave up.
func (c *caller) gaveUp(t *testing.T, reason error, says string) {
	t.Helper()
	if !c.done || !errors.Is(c.err, weir.ErrUnavailable) || !errors.Is(c.err, reason) ||
		!strings.Contains(c.err.Error(), says) || c.granted != 0 {
		t.Errorf("done %v, granted %d, error %v; want ErrUnavailable, %v and %q", c.done, c.granted, c.err, reason,
			says)
	}
}

const (
	notExecuted = "the call was not executed"
	unknown     = "it is unknown whether the call was executed"
)

func inBubble(t *testing.T, test func(t *testing.T, g *gated, s *coalesce.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := coalesce.NewLanes(g, 1)
		test(t, g, s)
		if batches, calls := s.Waiting(); batches != 0 || calls != 0 {
			t.Errorf("%d batches wait and %d calls are under way when all is over", batches, calls)
		}
	})
}
