package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
)

// A caller during a call is not answered by it: the call may have been decided earlier.
func TestCallersDoNotJoinACallUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		first := asks(s, "a", 1)
		alone := g.next(t).is(t, "1×1 a")
		second, third := asks(s, "a", 1), asks(s, "a", 1)
		alone.letGo()
		first.wants(t, 1, 4)
		second.waits(t)
		both := g.next(t).is(t, "2×1 a")
		fourth := asks(s, "a", 1)
		both.letGo()
		second.wants(t, 1, 3)
		third.wants(t, 1, 2)
		fourth.waits(t)
		g.next(t).is(t, "1×1 a").letGo()
		fourth.wants(t, 1, 1)
		g.none(t)
	})
}

// As many waiting callers are granted as fit, the first ones first.
func TestCallersAreGrantedInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		asks(s, "a", 1)
		alone := g.next(t)
		var callers []*caller
		for range 6 {
			callers = append(callers, asks(s, "a", 1))
		}
		alone.letGo()
		g.next(t).is(t, "6×1 a").letGo()
		for i, want := range []int64{3, 2, 1, 0} {
			callers[i].wants(t, 1, want)
		}
		callers[4].wants(t, 0, 0)
		callers[5].wants(t, 0, 0)
	})
}

// busy starts callers of other keys until further callers must wait. Their calls are held.
func busy(t *testing.T, g *gated, s *coalesce.Store) (calls []*call) {
	t.Helper()
	for i := range coalesce.EnoughTrips {
		asks(s, fmt.Sprint("busy-", i), 1)
		calls = append(calls, g.next(t).is(t, fmt.Sprint("1×1 busy-", i)))
	}
	return calls
}

func letGo(calls []*call) {
	for _, c := range calls {
		c.letGo()
	}
}

// Other keys and other costs are other requests of the same batch, and so are other numbers under the same name.
func TestDifferentClaimsAreSeparateRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		a1, b, a2, a3 := asks(s, "a", 1), asks(s, "b", 1), asks(s, "a", 2), asks(s, "a", 1)
		go s.Decide(context.Background(), []weir.Claim{{Key: "b", Limit: hour, Cost: 1}}, 1, nil) // wants no decision
		synctest.Wait()
		anew := weir.MustLimit("limit", weir.FixedWindow{Limit: 50, Window: time.Hour})
		go s.Decide(context.Background(), []weir.Claim{{Key: "a", Limit: anew, Cost: 1}}, 1, nil)
		synctest.Wait()
		held[0].letGo()
		batch := g.next(t).is(t, "2×1 a 2×1 b 1×2 a 1×1 a")
		if batch.requests[3].Decisions != nil || batch.requests[3].Claims[0].Limit != anew {
			t.Errorf("the last request is %+v", batch.requests[3])
		}
		batch.letGo()
		a1.wants(t, 1, 4)
		a3.wants(t, 1, 3)
		a2.wants(t, 1, 1)
		b.wants(t, 1, 4)
		letGo(held[1:])
	})
}

// Callers of different keys do not wait for each other while few calls are under way; those of one key do.
func TestConcurrentRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		held[0].letGo()
		waits := asks(s, "busy-1", 1)
		g.none(t)
		asks(s, "other", 1)
		g.next(t).is(t, "1×1 other").letGo()
		batch := g.next(t).is(t, "1×1 busy-1")
		letGo(held[1:])
		waits.waits(t)
		again := asks(s, "busy-1", 1)
		g.none(t)
		costs := asks(s, "busy-1", 2)
		g.next(t).is(t, "1×2 busy-1").letGo()
		costs.wants(t, 1, 2)
		g.next(t).is(t, "1×1 busy-1").letGo()
		again.wants(t, 1, 1)
		batch.letGo()
		waits.wants(t, 1, 0)
	})
}

// Full batches do not wait for a call to end, but neither are they sent without bound.
func TestFullBatchesAreSent(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		for i := range coalesce.MostClaims {
			asks(s, fmt.Sprint("key-", i), 1)
		}
		g.none(t)
		asks(s, "key-0", 1)
		g.none(t)
		asks(s, "one more", 1)
		full := g.next(t)
		if len(full.requests) != coalesce.MostClaims || full.requests[0].Times != 2 {
			t.Errorf("a batch of %d requests, the first for %d; want %d and 2", len(full.requests),
				full.requests[0].Times, coalesce.MostClaims)
		}
		held[0].letGo() // as many are under way as before, so the one more waits
		g.none(t)
		held = append(held[1:], full)
		for i := range 2 * coalesce.MostTrips * coalesce.MostClaims {
			asks(s, fmt.Sprint("flood-", i), 1)
		}
		held = append(held, g.all(t)...)
		if batches, _ := s.Waiting(); len(held) != coalesce.MostTrips || batches != coalesce.MostTrips+5 {
			t.Errorf("%d calls are under way and %d batches wait, want %d and %d", len(held), batches,
				coalesce.MostTrips, coalesce.MostTrips+5)
		}
		for len(held) > 0 {
			held[0].letGo()
			if held = append(held[1:], g.all(t)...); len(held) > coalesce.MostTrips {
				t.Fatalf("%d calls are under way", len(held))
			}
		}
	})
}

// A batch is as large as its claims are many, not its requests.
func TestBatchesAreFullByClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		for i := range 10 {
			var claims []weir.Claim
			for j := range 7 {
				claims = append(claims, weir.Claim{Key: fmt.Sprint(i, j), Limit: hour, Cost: 1})
			}
			go s.Decide(context.Background(), claims, 1, nil)
			synctest.Wait()
		}
		full := g.next(t)
		held[0].letGo()
		if len(full.requests) != 9 {
			t.Errorf("%d requests in a batch, want 9", len(full.requests))
		}
		letGo(append(held[1:], full))
		g.next(t).letGo()
	})
}

// So many callers of so large a cost that their product would be no number.
func TestCostTimesCallersFits(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		var callers []*caller
		for range 2*coalesce.MostMerged + 1 {
			callers = append(callers, asks(s, "a", weir.MaxUnits))
		}
		held = append(held, g.next(t), g.next(t))
		letGo(held)
		g.next(t).is(t, fmt.Sprintf("1×%d a", int64(weir.MaxUnits))).letGo()
		for _, c := range callers {
			if c.wants(t, 0, 5); c.decision.RetryAfter != weir.Never {
				t.Fatalf("decision %+v", c.decision)
			}
		}
	})
}

// The first caller of a request may leave: the others are decided, and move up.
func TestCallerLeavingWhileWaitingIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		var callers []*caller
		for range 8 {
			callers = append(callers, asks(s, "a", 1))
		}
		other := asks(s, "b", 1)
		for _, i := range []int{0, 3, 4} {
			callers[i].cancel()
			synctest.Wait()
			callers[i].gaveUp(t, context.Canceled, notExecuted)
		}
		other.cancel()
		synctest.Wait()
		other.gaveUp(t, context.Canceled, notExecuted)
		held[0].letGo()
		g.next(t).is(t, "5×1 a").letGo()
		for i, want := range map[int]int64{1: 4, 2: 3, 5: 2, 6: 1, 7: 0} {
			callers[i].wants(t, 1, want)
		}
		letGo(held[1:])
	})
}

func TestAbandonedBatchIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		for range 3 {
			a, b := asks(s, "a", 1), asks(s, "a", 1)
			a.cancel()
			b.cancel()
			synctest.Wait()
			a.gaveUp(t, context.Canceled, notExecuted)
			b.gaveUp(t, context.Canceled, notExecuted)
		}
		c := asks(s, "b", 1)
		stays := asks(s, "c", 1)
		c.cancel()
		again := asks(s, "b", 1) // in the place of who left
		held[0].letGo()
		g.next(t).is(t, "1×1 b 1×1 c").letGo()
		stays.wants(t, 1, 4)
		again.wants(t, 1, 4)
		letGo(held[1:])
		g.none(t)
	})
}

// While the store hangs, waiting callers come and go, and nothing grows.
func TestLeavingCallersLeaveNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		stays := asks(s, "stays", 1)
		for i := range 5 * coalesce.MostMerged {
			for _, key := range []string{"stays", fmt.Sprint("key-", min(i, 5*coalesce.MostClaims))} {
				asks(s, key, 1).cancel()
				synctest.Wait()
			}
		}
		for len(g.calls) > 0 { // batches that were full of who left, but for one
			held = append(held, g.next(t).is(t, "1×1 stays"))
		}
		if batches, _ := s.Waiting(); batches > 1 || len(held) > coalesce.EnoughTrips+1 {
			t.Errorf("%d batches wait for nobody, %d calls are under way", batches, len(held))
		}
		letGo(held)
		letGo(g.all(t))
		stays.wants(t, 1, 4)
	})
}

// A caller that leaves during the call does not learn the result, and may reuse its buffer while the store
// still reads the key.
func TestCallerLeavingDuringTheCallIsCharged(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		leaves := asksIn(ctx, cancel, s, "a", 1)
		stays := asks(s, "a", 1)
		held[0].letGo()
		batch := g.next(t).is(t, "2×1 a")
		time.Sleep(time.Second)
		synctest.Wait()
		leaves.gaveUp(t, context.DeadlineExceeded, unknown)
		stays.waits(t)
		if string(leaves.key) != "#" {
			t.Fatal("the buffer was not reused")
		}
		batch.letGo()
		stays.wants(t, 1, 3)
		letGo(held[1:])
		last := asks(s, "a", 1)
		g.next(t).letGo()
		last.wants(t, 1, 2)
	})
}

// A single call has its caller's context; a batch has none of them.
func TestContexts(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		first := asks(s, "a", 1)
		alone := g.next(t)
		second, third := asks(s, "a", 1), asks(s, "a", 1)
		first.cancel()
		if alone.ctx.Err() == nil {
			t.Error("a lone caller's context is not that of its call")
		}
		alone.do = func() {}
		alone.letGo()
		both := g.next(t).is(t, "2×1 a")
		second.cancel()
		synctest.Wait()
		second.gaveUp(t, context.Canceled, unknown)
		if _, bounded := both.ctx.Deadline(); both.ctx.Err() != nil || bounded {
			t.Error("a batch has the context of a caller")
		}
		both.letGo()
		third.wants(t, 1, 3)

		late := asksIn(alone.ctx, first.cancel, s, "a", 1)
		late.gaveUp(t, context.Canceled, notExecuted)
		g.none(t)
	})
}

// A panic of the store, or the end of its goroutine, leaves no caller waiting.
func TestPanics(t *testing.T) {
	for name, ends := range map[string]func(){"panic": func() { panic("broken") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
				first := asks(s, "a", 1)
				alone := g.next(t)
				second, third := asks(s, "a", 1), asks(s, "a", 1)
				alone.do = ends
				alone.letGo()
				if !first.done || (first.panicked != nil) != (name == "panic") {
					t.Errorf("the lone caller's panic is %v", first.panicked)
				}
				both := g.next(t).is(t, "2×1 a")
				fourth := asks(s, "a", 1)
				both.do = ends
				both.letGo()
				for _, c := range []*caller{second, third} {
					if !c.done || c.granted != 0 || !errors.Is(c.err, weir.ErrUnavailable) ||
						!strings.Contains(c.err.Error(), unknown) {
						t.Errorf("done %v, granted %d, error %v", c.done, c.granted, c.err)
					}
					if name == "panic" && !strings.Contains(fmt.Sprint(c.err), "broken") {
						t.Errorf("the error does not say what the panic was: %v", c.err)
					}
				}
				g.next(t).letGo()
				fourth.wants(t, 1, 4)
			})
		})
	}
}

// An error of a request reaches its callers and no others.
func TestErrorsReachTheirCallers(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		broken := errors.New("broken")
		held := busy(t, g, s)
		a, b, c := asks(s, "a", 1), asks(s, "a", 1), asks(s, "c", 1)
		held[0].letGo()
		batch := g.next(t).is(t, "2×1 a 1×1 c")
		batch.do = func() {
			g.sent[0].Granted, g.sent[0].Err = 2, broken
			g.Store.DecideBatch(context.Background(), g.sent[1:])
		}
		batch.letGo()
		for _, c := range []*caller{a, b} {
			if !c.done || c.err != broken || c.granted != 0 {
				t.Errorf("done %v, granted %d, error %v; want the request's error", c.done, c.granted, c.err)
			}
		}
		c.wants(t, 1, 4)
		letGo(held[1:])
	})
}

// Close waits for earlier callers, refuses later ones, and closes once.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		first := asks(s, "a", 1)
		alone := g.next(t)
		second := asks(s, "a", 1)
		closed := false
		go func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed = true
		}()
		synctest.Wait()
		late := asks(s, "b", 1)
		if !late.done || late.err != weir.ErrClosed {
			t.Errorf("after Close: done %v, error %v", late.done, late.err)
		}
		alone.letGo()
		if first.wants(t, 1, 4); closed {
			t.Error("Close did not wait for who waits")
		}
		g.next(t).letGo()
		second.wants(t, 1, 3)
		if !closed || g.closed != 1 {
			t.Errorf("Close returned: %v; the store below was closed %d times", closed, g.closed)
		}
		if err := s.Close(); err != nil || g.closed != 1 {
			t.Errorf("closed again: error %v, closed %d times", err, g.closed)
		}
	})
}

// A caller between its two checks does not get past Close.
func TestCloseDuringDecide(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		_, err := s.Decide(closing{context.Background(), s}, []weir.Claim{{Key: "a", Limit: hour, Cost: 1}}, 1, nil)
		if err != weir.ErrClosed {
			t.Errorf("error %v, want ErrClosed", err)
		}
		g.none(t)
	})
}

// closing is a context that closes a store when it is asked whether it is over.
type closing struct {
	context.Context
	store *coalesce.Store
}

func (c closing) Err() error { return c.store.Close() }

// Peeks, several times at once, leases and batches are not shared and do not wait.
func TestPassThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		waits := asks(s, "a", 1)
		claims := []weir.Claim{{Key: "a", Limit: hour, Cost: 1}}
		leased := []weir.Claim{{Key: "a", Limit: weir.MustLimit("held", weir.Concurrency{Limit: 1, TTL: time.Hour}),
			Cost: 1, Lease: "lease"}}
		for _, pass := range []func() error{
			func() error { _, err := s.Decide(t.Context(), claims, 0, nil); return err },
			func() error { _, err := s.Decide(t.Context(), claims, 2, nil); return err },
			func() error { _, err := s.Decide(t.Context(), leased, 1, nil); return err },
			func() error {
				requests := []weir.Request{{Claims: claims, Times: 1}}
				s.DecideBatch(t.Context(), requests)
				return requests[0].Err
			},
		} {
			var err error
			go func() { err = pass() }()
			g.next(t).letGo()
			if err != nil {
				t.Error(err)
			}
		}
		for _, err := range []error{s.Charge(t.Context(), claims, nil), s.Refund(t.Context(), claims, epoch, nil),
			s.Reset(t.Context(), claims)} {
			if err != nil {
				t.Error(err)
			}
		}
		waits.waits(t)
		held[0].letGo()
		g.next(t).is(t, "1×1 a").letGo()
		waits.wants(t, 1, 4)
		letGo(held[1:])
	})
}

// Operators read the layer's use from these counters.
func TestStats(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		held := busy(t, g, s)
		for range 3 {
			asks(s, "a", 1)
		}
		asks(s, "b", 1)
		asks(s, "c", 1).cancel() // left before it was sent
		synctest.Wait()
		held[0].letGo()
		g.next(t).is(t, "3×1 a 1×1 b").letGo()
		if got, want := s.Stats(), (coalesce.Stats{Decisions: coalesce.EnoughTrips + 4,
			Requests: coalesce.EnoughTrips + 2, Trips: coalesce.EnoughTrips + 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		letGo(held[1:])
	})
}

// A request of more claims than share a script with others waits for none of them, but callers with its very claims
// share its call, and callers of few claims do not wait for it.
func TestWideRequestsPassOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalesce.Store) {
		ask := func(name string, n int) {
			go func() {
				claims := make([]weir.Claim, n)
				for i := range claims {
					claims[i] = weir.Claim{Key: fmt.Sprint(name, i), Limit: plenty, Cost: 1}
				}
				if granted, err := s.Decide(t.Context(), claims, 1, nil); granted != 1 || err != nil {
					t.Errorf("%s: granted %d, %v", name, granted, err)
				}
			}()
		}
		for i := range 20 {
			ask(fmt.Sprint("wide-", i, "-"), 9)
		}
		held := g.all(t)
		if len(held) != 20 {
			t.Errorf("%d of 20 requests reached the store", len(held))
		}
		ask("few-", 1)
		held = append(held, g.next(t))
		ask("wide-0-", 9)
		ask("wide-0-", 9)
		g.none(t)
		letGo(held)
		if next := g.next(t); len(next.requests) != 1 || next.requests[0].Times != 2 {
			t.Errorf("the next call is %s", next.text())
		} else {
			letGo([]*call{next})
		}
	})
}
