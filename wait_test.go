package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// counting counts calls of a store whose Decide takes a while.
type counting struct {
	weir.Store
	takes   atomic.Int64 // ns
	calls   atomic.Int64
	refunds atomic.Int64
	fails   atomic.Bool
	stuck   string // calls for this key do not return in an hour
}

func (c *counting) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64,
	error) {
	c.calls.Add(1)
	time.Sleep(time.Duration(c.takes.Load()))
	if claims[0].Key == c.stuck {
		time.Sleep(time.Hour)
	}
	if c.fails.Load() {
		return 0, weir.ErrUnavailable
	}
	return c.Store.Decide(ctx, claims, times, decisions)
}

func (c *counting) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, decisions []weir.Decision) error {
	c.refunds.Add(1)
	return c.Store.Refund(ctx, claims, at, decisions)
}

// passing records which callers passed, in order, and when.
type passing struct {
	sync.WaitGroup
	mu    sync.Mutex
	start time.Time
	names []string
	at    map[string]time.Duration
	errs  map[string]error
}

func newPassing() *passing {
	return &passing{start: time.Now(), at: make(map[string]time.Duration), errs: make(map[string]error)}
}

// wait starts a caller and returns once it blocks, so that callers arrive in order.
func (p *passing) wait(name string, wait func() error) {
	p.Go(func() {
		err := wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at[name], p.errs[name] = time.Since(p.start), err
		if err == nil {
			p.names = append(p.names, name)
		}
	})
	synctest.Wait()
}

// A thousand waiters of one key take two calls for each grant at most, also of a slow store, and
// whether the units come back one by one or all at once.
func TestWaitersShareCalls(t *testing.T) {
	const waiters = 1000
	for name, spec := range map[string]weir.Spec{
		"bucket": weir.PerSecond(100), "fraction": weir.GCRA(7, 300, time.Second),
		"window":  weir.FixedWindow{Limit: 50, Window: time.Second},
		"log":     weir.SlidingLog{Limit: 50, Window: time.Second},
		"counter": weir.SlidingCounter{Limit: 50, Window: time.Second, Slices: 10},
		"queue":   weir.LeakyQueue(100, time.Second, 50),
	} {
		for _, takes := range []time.Duration{0, 5 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				store := &counting{Store: memstore.New()}
				store.takes.Store(int64(takes))
				l := limiterOn(t, store, spec)
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						if err := l.Wait(t.Context(), "key"); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				synctest.Wait()
				if calls := store.calls.Load(); calls > 2*waiters || l.Queues() != 0 {
					t.Errorf("%s, %v away: %d calls for %d waiters, %d queues are left", name, takes, calls, waiters,
						l.Queues())
				}
				t.Logf("%s, %v away: %d calls", name, takes, store.calls.Load())
			})
		}
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := limiterOn(t, memstore.New(), weir.PerSecond(10)), newPassing()
		allow(t, l, 10)
		var want []string
		random := rand.New(rand.NewPCG(1, 0))
		for i := range 50 {
			name, n := fmt.Sprint(i), 1+random.Int64N(5)
			want = append(want, name)
			p.wait(name, func() error { return l.WaitN(t.Context(), "key", n) })
			time.Sleep(time.Millisecond)
		}
		p.Wait()
		if !slices.Equal(p.names, want) {
			t.Errorf("passed in the order %v", p.names)
		}
	})
}

// An endless sequence of small requests does not overtake a large one.
func TestALargeWaitDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := limiterOn(t, memstore.New(), weir.PerSecond(10)), newPassing()
		ctx, stop := context.WithCancel(t.Context())
		for i := range 3 {
			p.wait(fmt.Sprint("small", i), func() error {
				for l.Wait(ctx, "key") == nil {
				}
				return ctx.Err()
			})
		}
		time.Sleep(5 * time.Second)
		p.wait("large", func() error { return l.WaitN(ctx, "key", 10) })
		time.Sleep(2 * time.Second)
		stop()
		p.Wait()
		if took := p.at["large"] - 5*time.Second; p.errs["large"] != nil || took > 1300*time.Millisecond {
			t.Errorf("WaitN(10) ended after %v: %v", took, p.errs["large"])
		}
	})
}

// When a waiter leaves, the others keep their order, nothing stays charged for it, and no queue
// is left.
func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	for leaves, want := range map[string]string{"head": "[middle last]", "middle": "[head last]",
		"last": "[head middle]"} {
		synctest.Test(t, func(t *testing.T) {
			l, p := limiterOn(t, memstore.New(), weir.PerSecond(1)), newPassing()
			allow(t, l, 1)
			for _, name := range []string{"head", "middle", "last"} {
				ctx, leave := context.WithCancel(t.Context())
				if name == leaves {
					time.AfterFunc(500*time.Millisecond, leave)
				}
				defer leave()
				p.wait(name, func() error { return l.Wait(ctx, "key") })
			}
			p.Wait()
			synctest.Wait()
			if got := fmt.Sprint(p.names); got != want || time.Since(p.start) != 2*time.Second ||
				!errors.Is(p.errs[leaves], context.Canceled) {
				t.Errorf("%s left (%v): %s passed, the last after %v", leaves, p.errs[leaves], got, time.Since(p.start))
			}
			if l.Queues() != 0 {
				t.Errorf("%s left: %d queues are left", leaves, l.Queues())
			}
		})
	}
}

// After a large request leaves the head of the queue, a smaller one need not wait as long.
func TestNextWaiterIsTriedWhenALargeOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := limiterOn(t, memstore.New(), weir.PerMinute(60)), newPassing()
		allow(t, l, 60)
		ctx, leave := context.WithCancel(t.Context())
		p.wait("large", func() error { return l.WaitN(ctx, "key", 60) })
		p.wait("small", func() error { return l.Wait(t.Context(), "key") })
		time.Sleep(10 * time.Second)
		leave()
		p.Wait()
		if p.errs["small"] != nil || p.at["small"] != 10*time.Second {
			t.Errorf("the small one passed after %v: %v", p.at["small"], p.errs["small"])
		}
	})
}

// A unit that was granted after its caller left is given back.
func TestUnitsOfCancelledWaitersAreRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		l, p := limiterOn(t, store, weir.PerMinute(60)), newPassing()
		allow(t, l, 60)
		ctx, leave := context.WithCancel(t.Context())
		p.wait("a", func() error { return l.Wait(ctx, "key") })
		store.takes.Store(int64(time.Second))
		time.AfterFunc(1500*time.Millisecond, leave) // the call is under way from 1 s to 2 s
		p.Wait()
		time.Sleep(time.Second)
		store.takes.Store(0)
		if store.refunds.Load() != 1 || remaining(t, l) != 2 || l.Queues() != 0 {
			t.Errorf("%d refunds, %d units after 2.5 s, %d queues", store.refunds.Load(), remaining(t, l), l.Queues())
		}
	})
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New(), stuck: "stuck"}
		l, p := limiterOn(t, store, weir.PerSecond(1)), newPassing()
		for i := range 5 {
			p.wait(fmt.Sprint("stuck", i), func() error { return l.Wait(t.Context(), "stuck") })
			p.wait(fmt.Sprint(i), func() error { return l.Wait(t.Context(), "key") })
		}
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		passed, last := fmt.Sprint(p.names), p.at["4"]
		p.mu.Unlock()
		if passed != "[0 1 2 3 4]" || last != 4*time.Second {
			t.Errorf("%s passed, the last after %v", passed, last)
		}
		p.Wait()
	})
}

func TestStoreErrorEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New()}
		l, p := limiterOn(t, store, weir.PerSecond(1)), newPassing()
		allow(t, l, 1)
		for i := range 9 {
			p.wait(fmt.Sprint(i), func() error { return l.Wait(t.Context(), "key") })
		}
		store.fails.Store(true)
		p.Wait()
		for name, err := range p.errs {
			if !errors.Is(err, weir.ErrUnavailable) || p.at[name] < 2*time.Second || p.at[name] > 3*time.Second {
				t.Errorf("%s: %v after %v", name, err, p.at[name])
			}
		}
		if calls := store.calls.Load(); calls > 30 {
			t.Errorf("%d calls of a store that fails for a second", calls)
		}
		store.fails.Store(false)
		if err := l.Wait(t.Context(), "key"); err != nil || l.Queues() != 0 {
			t.Errorf("afterwards: %v, %d queues", err, l.Queues())
		}
	})
}

// A store that fails once ends no wait, though many callers are asked for in one call.
func TestOneStoreErrorEndsNoWait(t *testing.T) {
	for name, spec := range map[string]weir.Spec{"bucket": weir.GCRA(100, 50, time.Second),
		"queue": weir.LeakyQueue(100, time.Second, 50), "slots": weir.Concurrency{Limit: 3, TTL: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			store := &counting{Store: memstore.New()}
			l, p := limiterOn(t, store, spec), newPassing()
			for i := range 500 {
				p.wait(fmt.Sprint(i), func() error {
					if name != "slots" {
						return l.Wait(t.Context(), "key")
					}
					lease, err := l.AcquireWait(t.Context(), "key")
					if err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
					return lease.Release(t.Context())
				})
			}
			store.fails.Store(true)
			time.Sleep(50 * time.Millisecond)
			store.fails.Store(false)
			p.Wait()
			for caller, err := range p.errs {
				if err != nil {
					t.Errorf("%s: caller %s: %v", name, caller, err)
				}
			}
		})
	}
}

// Wait(5) under a limit that may borrow takes its turn at once, and then calls by the limit that may not come after it.
func TestWaitThatBorrowsIsServedBesideAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		polls, waits := limiterOn(t, store, weir.PerSecond(5)), limiterOn(t, store, weir.Borrowing(5, 5, time.Second, 5))
		ctx, stop := context.WithCancel(t.Context())
		var poller sync.WaitGroup
		defer poller.Wait()
		defer stop()
		poller.Go(func() {
			for ctx.Err() == nil {
				polls.Allow(ctx, "key")
				time.Sleep(10 * time.Millisecond)
			}
		})
		time.Sleep(5 * time.Second)
		begun := time.Now()
		if err := waits.WaitN(ctx, "key", 5); err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("WaitN(5) of 5 a second ended after %v: %v", time.Since(begun), err)
		}
	})
}

// The units wanted ahead are known: a waiter whose deadline comes before its turn fails at once.
func TestWaitBehindOthersFailsAtOnceIfTheDeadlineIsTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := limiterOn(t, memstore.New(), weir.PerSecond(1)), newPassing()
		allow(t, l, 1)
		for i := range 3 {
			p.wait(fmt.Sprint(i), func() error { return l.Wait(t.Context(), "key") })
		}
		for name, limit := range map[string]time.Duration{"too short": 4 * time.Second, "enough": 4*time.Second + 1} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			p.wait(name, func() error { return l.Wait(ctx, "key") })
		}
		p.Wait()
		var refused *weir.RefusedError
		short := p.errs["too short"]
		if !errors.Is(short, weir.ErrTooLong) || !errors.As(short, &refused) ||
			refused.Answer.RetryAfter < 4*time.Second || p.at["too short"] != 0 {
			t.Errorf("4 s for the fourth: %v after %v", short, p.at["too short"])
		}
		if p.errs["enough"] != nil || p.at["enough"] != 4*time.Second {
			t.Errorf("more than 4 s: %v after %v", p.errs["enough"], p.at["enough"])
		}
	})
}

// A request that is never granted does not join the queue, and Reset ends the wait.
func TestWaitersOfAResetKeyPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := limiterOn(t, memstore.New(), weir.PerHour(2)), newPassing()
		allow(t, l, 2)
		p.wait("first", func() error { return l.Wait(t.Context(), "key") })
		if err := l.WaitN(t.Context(), "key", 3); !errors.Is(err, weir.ErrNever) || time.Since(p.start) != 0 {
			t.Errorf("more than the limit: %v after %v", err, time.Since(p.start))
		}
		if err := l.WaitN(t.Context(), "key", -1); !isInput(err) {
			t.Errorf("-1: %v", err)
		}
		time.Sleep(time.Second)
		if err := l.Reset(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		if p.errs["first"] != nil || p.at["first"] != time.Second {
			t.Errorf("after Reset: %v after %v", p.errs["first"], p.at["first"])
		}
	})
}
