package resp_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// A slow store reports each call, and answers on demand or when its context ends.
type slow struct {
	weir.Store
	asked, answer chan struct{}
}

func (s slow) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	s.asked <- struct{}{}
	select {
	case <-s.answer:
		return s.Store.Decide(ctx, claims, times, decisions)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func newSlow() slow {
	return slow{memstore.New(), make(chan struct{}, 10), make(chan struct{})}
}

func TestShutdownAnswersReadCommands(t *testing.T) {
	store := newSlow()
	h := openOn(t, store)
	idle, busy := h.dial(), h.dial()
	idle.want("PONG", "PING")
	busy.send(wire("CL.THROTTLE", "k", "15", "30", "60") + wire("CL.THROTTLE", "k", "15", "30", "60") + "PING\r\n")
	<-store.asked
	down := make(chan error, 1)
	go func() { down <- h.server.Shutdown(t.Context()) }()
	if rest := idle.closed(); rest != "" {
		t.Errorf("an idle connection hears %q", rest)
	}
	if err := <-h.served; !errors.Is(err, resp.ErrClosed) {
		t.Errorf("Serve returns %v", err)
	}
	if nc, err := net.Dial("tcp", h.addr); err == nil {
		nc.Close()
		t.Error("it still listens")
	}
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v while a command was under way", err)
	default:
	}
	close(store.answer)
	for _, want := range []string{"[0 16 15 -1 2]", "[0 16 14 -1 4]", "PONG"} {
		if got := busy.reply(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if rest := busy.closed(); rest != "" {
		t.Errorf("after its answers it hears %q", rest)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown returns %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.server.Serve(listener); !errors.Is(err, resp.ErrClosed) {
		t.Errorf("Serve after it returns %v", err)
	}
}

func TestShutdownEndsAtItsDeadline(t *testing.T) {
	store := newSlow()
	h := openOn(t, store)
	c := h.dial()
	c.words(w("CL.THROTTLE k 15 30 60")...)
	<-store.asked
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := h.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returns %v", err)
	}
	if err := h.server.Shutdown(t.Context()); err != nil {
		t.Errorf("a second one returns %v", err) // it waited: the decision ended with its context
	}
}

// TestDrainEndsAConnectionWithItsAnswer: a client that looks before it sends, as pools do, never sends a command that is
// not answered. Connections that were only set up, and transactions, go on.
func TestDrainEndsAConnectionWithItsAnswer(t *testing.T) {
	h := openOn(t, memstore.New())
	setUp, busy := h.dial(), h.dial()
	busy.want("[0 16 15 -1 2]", w("CL.THROTTLE k 15 30 60")...)
	h.server.Drain()
	setUp.want("PONG", "PING")
	setUp.want("OK", "MULTI")
	setUp.want("QUEUED", w("CL.THROTTLE other 15 30 60")...)
	busy.want("[0 16 14 -1 4]", w("CL.THROTTLE k 15 30 60")...)
	if rest := busy.closed(); rest != "" {
		t.Errorf("after its answer it hears %q", rest)
	}
	setUp.want("[[0 16 15 -1 2]]", "EXEC")
	if rest := setUp.closed(); rest != "" {
		t.Errorf("after EXEC it hears %q", rest)
	}
}

// TestShutdownAnswersWhatIsOnItsWay: an idle connection is open for a moment longer.
func TestShutdownAnswersWhatIsOnItsWay(t *testing.T) {
	h := openOn(t, memstore.New(), resp.WithLimits(resp.Limits{Last: time.Hour}))
	c := h.dial()
	c.want("PONG", "PING")
	down := make(chan error, 1)
	go func() { down <- h.server.Shutdown(t.Context()) }()
	if err := <-h.served; !errors.Is(err, resp.ErrClosed) {
		t.Errorf("Serve returns %v", err)
	}
	c.want("[0 16 15 -1 2]", w("CL.THROTTLE k 15 30 60")...)
	if rest := c.closed(); rest != "" {
		t.Errorf("after its answer it hears %q", rest)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}
