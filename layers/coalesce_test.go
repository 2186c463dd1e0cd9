package layers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/storetest"
)

// newCoalescerAt is New with places of the test's.
func newCoalescerAt(next weir.Store, timeout time.Duration, places int, place func([]weir.Claim) int) *coalescer {
	s := coalescerOf(next, places)
	s.place, s.timeout = place, timeout
	return s
}

// newShards is New with a number of shards.
func newShards(next weir.Store, shards int) *coalescer { return coalescerOf(next, shards) }

// Shards is the number of shards.
func (s *coalescer) Shards() int { return len(s.shards) }

// Waiting are the lengths of the shards' queues together, and the calls under way.
func (s *coalescer) Waiting() (batches, calls int) {
	for i := range s.shards {
		l := &s.shards[i]
		l.mu.Lock()
		batches += len(l.queue)
		calls += len(l.calls)
		l.mu.Unlock()
	}
	return batches, calls
}

// A batched store sends every decision in a batch, even single ones.
type batched struct{ *coalescer }

// Decide takes a waiter where Store's would ask the store below.
func (s batched) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if s.closed.Load() || times != 1 || weir.Check(claims, times, decisions) != nil || anyLease(claims) {
		return s.coalescer.Decide(ctx, claims, times, decisions)
	}
	l := &s.shards[0]
	l.mu.Lock()
	at := l.join(s.hash(claims), claims, decisions != nil)
	b := l.take()
	l.mu.Unlock()
	if b != nil {
		go s.send(l, b)
	}
	return at.wait(ctx, decisions)
}

var five = weir.MustLimit("limit", weir.FixedWindow{Limit: 5, Window: time.Hour})

// Hashes may be equal where claims are not.
func TestHashCollisionsAreNotMerged(t *testing.T) {
	a := weir.Claim{Key: "a", Limit: five, Cost: 1}
	b, anew, two := a, a, a
	b.Key, anew.Limit, two.Cost = "b", weir.MustLimit("limit", weir.FixedWindow{Limit: 6, Window: time.Hour}), 2
	batch := newSharedBatch(time.Time{})
	for want, claims := range [][]weir.Claim{{a}, {b}, {anew}, {two}, {a, b}, {b, a}} {
		for range 2 {
			if group, _, ok := batch.join(7, claims, true); !ok || group != want {
				t.Errorf("%v is in group %d, want %d", claims, group, want)
			}
		}
	}
}

// A decision is charged, so a caller whose context has ended gets it all the same.
func TestDecisionBeatsEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		l := &shard{}
		at := l.join(1, []weir.Claim{{Key: "a", Limit: five, Cost: 1}}, false)
		b := l.take()
		b.requests[0].Granted = 1
		close(b.done)
		if granted, err := at.wait(ctx, nil); granted != 1 || err != nil {
			t.Fatalf("granted %d, error %v", granted, err)
		}
	}
}

// A batch released by all callers keeps no key, no limit, and no oversized memory.
func TestBatchesAreForgotten(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &shard{}
	var entries []waiter
	for range maxMerged {
		entries = append(entries, l.join(1, []weir.Claim{{Key: "a", Limit: five, Cost: 1},
			{Key: "b", Limit: five, Cost: 1}}, true))
	}
	b := l.take()
	for _, at := range entries {
		if _, err := at.wait(ctx, nil); !errors.Is(err, weir.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if n := b.holders.Load(); n != 1 {
		t.Fatalf("%d hold the batch, want the sender alone", n)
	}
	groups, claims, requests := b.groups, b.groups[0].claims, b.requests
	b.recycle()
	if claims[0] != (weir.Claim{}) || claims[1] != (weir.Claim{}) || requests[0].Claims != nil || groups[0].hash != 0 {
		t.Errorf("a forgotten batch remembers %v, %v, %v", groups, claims, requests)
	}
	if b.decisions != nil {
		t.Errorf("room for %d decisions is kept", cap(b.decisions))
	}
}

var plenty = weir.MustLimit("plenty", weir.TokenBucket{Capacity: 1_000_000, Refill: 1_000_000, Period: time.Second})

// busy starts callers of other keys until further callers must wait. Their calls are held.
func busy(t *testing.T, g *gated, s *coalescer) (calls []*heldCall) {
	t.Helper()
	for i := range enoughCalls {
		asks(s, fmt.Sprint("busy-", i), 1)
		calls = append(calls, g.next(t).is(t, fmt.Sprint("1×1 busy-", i)))
	}
	return calls
}

func letGo(calls []*heldCall) {
	for _, c := range calls {
		c.letGo()
	}
}

// Other keys and other costs are other requests of the same batch, and so are other numbers under the same name.
func TestDifferentClaimsAreSeparateRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		for i := range maxBatchClaims {
			asks(s, fmt.Sprint("key-", i), 1)
		}
		g.none(t)
		asks(s, "key-0", 1)
		g.none(t)
		asks(s, "one more", 1)
		full := g.next(t)
		if len(full.requests) != maxBatchClaims || full.requests[0].Times != 2 {
			t.Errorf("a batch of %d requests, the first for %d; want %d and 2", len(full.requests),
				full.requests[0].Times, maxBatchClaims)
		}
		held[0].letGo() // as many are under way as before, so the one more waits
		g.none(t)
		held = append(held[1:], full)
		for i := range 2 * maxCalls * maxBatchClaims {
			asks(s, fmt.Sprint("flood-", i), 1)
		}
		held = append(held, g.all(t)...)
		if batches, _ := s.Waiting(); len(held) != maxCalls || batches != maxCalls+5 {
			t.Errorf("%d calls are under way and %d batches wait, want %d and %d", len(held), batches,
				maxCalls, maxCalls+5)
		}
		for len(held) > 0 {
			held[0].letGo()
			if held = append(held[1:], g.all(t)...); len(held) > maxCalls {
				t.Fatalf("%d calls are under way", len(held))
			}
		}
	})
}

// A batch is as large as its claims are many, not its requests.
func TestBatchesAreFullByClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		var callers []*caller
		for range 2*maxMerged + 1 {
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

func TestAbandonedBatchIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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

// A caller that leaves during the call does not learn the result, and may reuse its buffer while the store
// still reads the key.
func TestCallerLeavingDuringTheCallIsCharged(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		leaves := asksIn(ctx, cancel, s, "a", 1)
		stays := asks(s, "a", 1)
		held[0].letGo()
		batch := g.next(t).is(t, "2×1 a")
		time.Sleep(time.Second)
		synctest.Wait()
		leaves.gaveUp(t, context.DeadlineExceeded, perhapsExecuted)
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

// The member of a batch that waits is a copy: its first caller may leave, and reuse its buffer for another member.
func TestMemberOfAWaitingBatchIsCopied(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		fair := weir.MustLimit("fair", weir.Fair{Of: weir.FixedWindow{Limit: 5, Window: time.Hour}})
		member := []byte("small")
		claim := weir.Claim{Key: "all", Limit: fair, Cost: 1, Member: aliased(member)}
		ctx, leave := context.WithCancel(context.Background())
		go s.Decide(ctx, []weir.Claim{claim}, 1, nil)
		synctest.Wait()
		claim.Member = "small"
		go s.Decide(context.Background(), []weir.Claim{claim}, 1, nil)
		synctest.Wait()
		leave()
		synctest.Wait()
		copy(member, "large")
		held[0].letGo()
		batch := g.next(t)
		if got := batch.requests[0].Claims[0].Member; got != "small" {
			t.Errorf("a request of the member small is charged to %q", got)
		}
		batch.letGo()
		letGo(held[1:])
		synctest.Wait()
	})
}

// A single call has its caller's context; a batch has none of them.
func TestContexts(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
		second.gaveUp(t, context.Canceled, perhapsExecuted)
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
			inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
						!strings.Contains(c.err.Error(), perhapsExecuted) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	store *coalescer
}

func (c closing) Err() error { return c.store.Close() }

// Peeks, several times at once, leases and batches are not shared and do not wait.
func TestPassThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		for range 3 {
			asks(s, "a", 1)
		}
		asks(s, "b", 1)
		asks(s, "c", 1).cancel() // left before it was sent
		synctest.Wait()
		held[0].letGo()
		g.next(t).is(t, "3×1 a 1×1 b").letGo()
		if got, want := s.Stats(), (coalesceStats{Decisions: enoughCalls + 4,
			Requests: enoughCalls + 2, Trips: enoughCalls + 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		letGo(held[1:])
	})
}

// A request of more claims than share a script with others waits for none of them, but callers with its very claims
// share its call, and callers of few claims do not wait for it.
func TestWideRequestsPassOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
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
			letGo([]*heldCall{next})
		}
	})
}

func coalesceOver(t testing.TB, next weir.Store) *coalescer {
	t.Helper()
	s := newCoalescer(next, coalesceConfig{})
	return s
}

func onMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	memory := memstore.New(memstore.WithClock(clock))
	return storetest.Handle{
		Store: coalesceOver(t, memory),
		Peer:  func() weir.Store { return coalesceOver(t, memory) },
		Keys: func() (live, everlasting int) {
			memory.Sweep()
			return int(memory.Stats().Keys), 0
		},
	}
}

// alwaysBatched is onMemory, but each decision that can goes in a batch.
func alwaysBatched(t testing.TB, clock func() weir.Instant) storetest.Handle {
	h := onMemory(t, clock)
	h.Store = batched{coalescer: h.Store.(*coalescer)}
	return h
}

func TestVectorsBatched(t *testing.T) { storetest.Vectors(t, alwaysBatched) }
func TestStoreBatched(t *testing.T)   { storetest.Run(t, alwaysBatched) }

func still() weir.Instant { return epoch }

// A lone caller costs no memory.
func TestLoneCallerAllocatesNothing(t *testing.T) {
	s := coalesceOver(t, memstore.New())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claims := []weir.Claim{
		{Key: "lone", Limit: weir.MustLimit("a", weir.PerSecond(1000)), Cost: 1},
		{Key: "lone", Limit: weir.MustLimit("b", weir.PerHour(10)), Cost: 1},
	}
	decisions := make([]weir.Decision, len(claims))
	for name, claims := range map[string][]weir.Claim{"one claim": claims[:1], "two claims": claims} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := s.Decide(ctx, claims, 1, decisions[:len(claims)]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}

// A gated store holds each call until the test lets it go on.
type gated struct {
	*memstore.Store
	calls  chan *heldCall
	sent   []weir.Request // of the last batch
	closed int
}

// A heldCall reached the store. Its claims were copied on arrival.
type heldCall struct {
	ctx      context.Context
	requests []weir.Request
	do       func() // instead of deciding
	goOn     chan struct{}
}

func newGated() *gated {
	return &gated{Store: memstore.New(memstore.WithClock(still)), calls: make(chan *heldCall, 1000)}
}

// hold returns when the call may go on, and whether it is still to be decided.
func (g *gated) hold(ctx context.Context, requests []weir.Request) bool {
	c := &heldCall{ctx: ctx, goOn: make(chan struct{})}
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
func (g *gated) next(t *testing.T) *heldCall {
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
func (g *gated) all(t *testing.T) (calls []*heldCall) {
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

func (c *heldCall) text() (text string) {
	for _, r := range c.requests {
		text += fmt.Sprintf("%d×%d %s ", r.Times, r.Claims[0].Cost, r.Claims[0].Key)
	}
	return strings.TrimSpace(text)
}

// is fails unless the call is that: "3×1 a 1×2 b" are three requests of one unit of a, and
// one request of two units of b.
func (c *heldCall) is(t *testing.T, want string) *heldCall {
	t.Helper()
	if got := c.text(); got != want {
		t.Fatalf("a call of %q, want %q", got, want)
	}
	return c
}

func (c *heldCall) letGo() {
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

func inBubble(t *testing.T, test func(t *testing.T, g *gated, s *coalescer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := newShards(g, 1)
		test(t, g, s)
		if batches, calls := s.Waiting(); batches != 0 || calls != 0 {
			t.Errorf("%d batches wait and %d calls are under way when all is over", batches, calls)
		}
	})
}

// slowThird is a Cluster of three, of which the first is frozen: its calls end with their
// timeout, those of the others after a millisecond. A batch ends with the last of its calls.
type slowThird struct{ hanging }

func nodeOf(claims []weir.Claim) int {
	n, _ := strconv.Atoi(claims[0].Key)
	return n % 3
}

func (f *slowThird) Decide(ctx context.Context, claims []weir.Claim, _ int64, _ []weir.Decision) (int64, error) {
	if nodeOf(claims) == 0 {
		return 0, f.hang(ctx)
	}
	select {
	case <-time.After(time.Millisecond):
		return 1, nil
	case <-ctx.Done():
		return 0, weir.ErrUnavailable
	}
}

func (f *slowThird) DecideBatch(ctx context.Context, requests []weir.Request) {
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			r := &requests[i]
			if r.Err = ctx.Err(); r.Err == nil {
				r.Granted, r.Err = f.Decide(ctx, r.Claims, r.Times, r.Decisions)
			}
		})
	}
	all.Wait()
}

// Callers of one server do not wait for another, frozen one.
func TestPlacesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Millisecond
		s := newCoalescerAt(&slowThird{hanging{memstore.New(), timeout * 15 / 16}}, timeout, 3, nodeOf)
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				began, claims := time.Now(), []weir.Claim{{Key: strconv.Itoa(i % 50), Limit: hour, Cost: 1}}
				_, err := s.Decide(t.Context(), claims, 1, nil)
				took := time.Since(began)
				if nodeOf(claims) == 0 {
					if !errors.Is(err, weir.ErrUnavailable) || took > timeout {
						t.Errorf("a key of the frozen server: %v after %v", err, took)
					}
				} else if err != nil || took > 2*time.Millisecond {
					t.Errorf("a key of another server: %v after %v", err, took)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		s.Close()
	})
}

// The place is that of the slot of the last claim's state, also where a key has a tag of its own.
func TestPlace(t *testing.T) {
	seen := make(map[int]bool)
	for i := range 2000 {
		key := strconv.Itoa(i)
		place := queueOf([]weir.Claim{{Key: "GLOBAL"}, {Key: key}})
		if want := int(redisslot.Of("weir:limit:b:{"+key+"}")) * clusterQueues / redisslot.Count; place != want {
			t.Fatalf("the place of %s is %d, want %d", key, place, want)
		}
		if tagged := queueOf([]weir.Claim{{Key: "{" + key + "}:search"}}); tagged != place {
			t.Fatalf("with a tag it is %d, without %d", tagged, place)
		}
		seen[place] = true
	}
	if len(seen) != clusterQueues {
		t.Errorf("2000 keys are in %d places of %d", len(seen), clusterQueues)
	}
}

// TestShardsFollowTheCores: and in a Cluster, the ranges of slots.
func TestShardsFollowTheCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	for _, c := range []struct {
		config coalesceConfig
		want   int
	}{
		{coalesceConfig{}, 4},
		{coalesceConfig{Cluster: true}, clusterQueues},
	} {
		if n := newCoalescer(memstore.New(), c.config).Shards(); n != c.want {
			t.Errorf("%+v: %d shards, want %d", c.config, n, c.want)
		}
	}
}

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
func (r *register) play(s *coalescer, script []byte) (clients []*client) {
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

func (c *client) start(s *coalescer) {
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
		case strings.Contains(c.err.Error(), perhapsExecuted):
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
		s := newShards(r, shards)
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

// A hanging store never answers: each call ends with its own timeout, or its context.
type hanging struct {
	weir.Store
	timeout time.Duration
}

func (f *hanging) hang(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	<-ctx.Done()
	return weir.ErrUnavailable
}

func (f *hanging) Decide(ctx context.Context, _ []weir.Claim, _ int64, _ []weir.Decision) (int64, error) {
	return 0, f.hang(ctx)
}

func (f *hanging) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := f.hang(ctx)
	for i := range requests {
		requests[i].Err = err
	}
}

// TestCallersDoNotWaitTwice: a caller that waited for a hanging call has the rest of its timeout.
func TestCallersDoNotWaitTwice(t *testing.T) {
	const timeout = 64 * time.Millisecond
	for _, keys := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			s := newCoalescer(&hanging{memstore.New(), timeout * 15 / 16}, coalesceConfig{Timeout: timeout})
			limit := weir.MustLimit("limit", weir.PerSecond(1))
			var all sync.WaitGroup
			for i := range 400 {
				all.Go(func() {
					began := time.Now()
					claims := []weir.Claim{{Key: "k" + strconv.Itoa(i%keys), Limit: limit, Cost: 1}}
					_, err := s.Decide(t.Context(), claims, 1, nil)
					if took := time.Since(began); took > timeout || !errors.Is(err, weir.ErrUnavailable) {
						t.Errorf("caller %d of %d keys waited %v: %v", i, keys, took, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			s.Close()
		})
	}
}

// While the store hangs, waiting callers come and go, and nothing grows.
func TestLeavingCallersLeaveNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gated, s *coalescer) {
		held := busy(t, g, s)
		stays := asks(s, "stays", 1)
		for i := range 5 * maxMerged {
			for _, key := range []string{"stays", fmt.Sprint("key-", min(i, 5*maxBatchClaims))} {
				asks(s, key, 1).cancel()
				synctest.Wait()
			}
		}
		for len(g.calls) > 0 { // batches that were full of who left, but for one
			held = append(held, g.next(t).is(t, "1×1 stays"))
		}
		if batches, _ := s.Waiting(); batches > 1 || len(held) > enoughCalls+1 {
			t.Errorf("%d batches wait for nobody, %d calls are under way", batches, len(held))
		}
		letGo(held)
		letGo(g.all(t))
		stays.wants(t, 1, 4)
	})
}
