package layers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// A breakerOption changes a configuration.
type breakerOption func(*breakerConfig)

// newBreakerWith is New with options.
func newBreakerWith(next weir.Store, options ...breakerOption) *breaker {
	return newBreaker(next, configured[breakerConfig](options))
}

// withSlow sets Config.Slow.
func withSlow(slow time.Duration) breakerOption { return func(c *breakerConfig) { c.Slow = slow } }

// withObserver sets Config.Changed.
func withObserver(changed func(breakerChange)) breakerOption {
	return func(c *breakerConfig) { c.Changed = changed }
}

// withBurst sets how many failures in a row open the breaker.
func withBurst(n int64) breakerOption { return func(c *breakerConfig) { c.burst = n } }

// withProbes sets the first and the longest interval between probes.
func withProbes(first, most time.Duration) breakerOption {
	return func(c *breakerConfig) { c.first, c.most = first, most }
}

// withRamp sets the time from the first successful probe until all calls are admitted.
func withRamp(d time.Duration) breakerOption { return func(c *breakerConfig) { c.ramp = d } }

func TestFrozenStoreDelaysFewCalls(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		traffic(store, time.Second)
		f.be(frozen)
		waited, away := traffic(store, time.Second)
		// As many as come in one timeout, until five of them have failed.
		if waited < 250 || waited > 256 || waited+away != 5000 {
			t.Errorf("%d waited and %d were turned away of 5,000", waited, away)
		}
		if waited, away = traffic(store, 3*time.Second); waited != 0 || away != 15_000 {
			t.Errorf("%d waited and %d were turned away of 15,000 while it was open", waited, away)
		}
		wantState(t, b, stateOpen)
	})
}

func TestFullServiceWithinTwoSeconds(t *testing.T) {
	for range 5 { // the jitter differs
		in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
			f.be(frozen)
			traffic(store, 3*time.Second)
			f.be(well)
			traffic(store, 2*time.Second)
			wantState(t, b, stateClosed)
			if _, away := traffic(store, time.Second); away != 0 {
				t.Errorf("%d were turned away two seconds after the store was well", away)
			}
		})
	}
}

func TestClosingAdmitsAGrowingShare(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		f.be(well)
		for b.State() == stateOpen {
			time.Sleep(time.Millisecond)
		}
		for quarter := range int64(4) {
			_, away := traffic(store, 62400*time.Microsecond)
			in, want := 312-away, 312*(2*quarter+1)/8
			if in < want-60 || in > want+60 {
				t.Errorf("in quarter %d of half-open %d of 312 were let in, want about %d", quarter, in, want)
			}
		}
		time.Sleep(time.Millisecond) // the quarters are 400 µs short of all of it
		wantState(t, b, stateClosed)
	})
}

// awaitOpen makes the store fail until the breaker is open.
func awaitOpen(t *testing.T, f *faulty, b *breaker, store weir.Store) {
	t.Helper()
	f.be(dead)
	for i := 0; b.State() != stateOpen; i++ {
		if i == 1000 {
			t.Fatalf("it did not open; %+v", b.Stats())
		}
		decide(store)
		time.Sleep(10 * time.Millisecond)
	}
}

// dueWithin is the longest wait for a probe after an outage of so long.
func dueWithin(outage time.Duration) time.Duration {
	return min(max(50*time.Millisecond, outage/20), 500*time.Millisecond)
}

func TestProbesAreSequentialAndSlowDown(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		f.be(frozen)
		opened := time.Now() // 10ms ago at most
		for last, at := opened, int64(0); time.Since(opened) < 30*time.Second; last = time.Now() {
			for f.probes.Load() == at {
				time.Sleep(time.Millisecond)
			}
			gap := time.Since(last)
			if at > 0 { // a probe that hangs is given up after 25ms
				gap -= 25 * time.Millisecond
			}
			most := dueWithin(last.Sub(opened) + 36*time.Millisecond)
			if at > 0 && gap < most/2-3*time.Millisecond || gap > most+2*time.Millisecond {
				t.Errorf("probe %d came after %v, want half to all of %v", at, gap, most)
			}
			if at++; f.probes.Load() != at {
				t.Fatalf("%d probes at a time", f.probes.Load()-at+1)
			}
		}
		if s := b.Stats(); s.Probes < 80 || s.Probes > 160 || s.ProbesLost < s.Probes-1 {
			t.Errorf("%+v, want about 110 probes, all but the last lost", s)
		}
	})
}

func TestProbesWrite(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		f.be(readOnly)
		time.Sleep(10 * time.Second)
		wantState(t, b, stateOpen)
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, stateClosed)
	})
}

func TestSlowProbeFails(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		f.be(slow)
		time.Sleep(10 * time.Second)
		wantState(t, b, stateOpen)
		// The last may be under way still.
		if s := b.Stats(); s.ProbesLost < s.Probes-1 || s.Probes < 10 {
			t.Errorf("%+v, want all of a dozen and more probes lost", s)
		}
	})
}

func TestOpensAgainWhileClosing(t *testing.T) {
	var changes []breakerChange
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		for range 4 { // the store takes a probe, and nothing else
			f.be(well)
			for b.State() != stateHalfOpen {
				time.Sleep(time.Millisecond)
			}
			f.be(frozen)
			waited, _ := traffic(store, 300*time.Millisecond)
			wantState(t, b, stateOpen)
			if waited > 100 { // a tenth of those of the first 50ms, on average half of that
				t.Errorf("%d waited for a store that took only probes", waited)
			}
		}
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, stateClosed)
		// After it has been closed, the intervals are short again.
		awaitOpen(t, f, b, store)
		f.be(well)
		time.Sleep(51 * time.Millisecond)
		wantState(t, b, stateHalfOpen)
	}, withObserver(func(c breakerChange) { changes = append(changes, c) }))
	state, words := stateClosed, ""
	for _, c := range changes {
		if c.From != state || (c.Cause != nil) != (c.To == stateOpen) || c.At.IsZero() {
			t.Errorf("after %v came %+v", state, c)
		}
		state = c.To
		words += state.String() + " "
	}
	if want := strings.Repeat("open half-open ", 5) + "closed open half-open "; words != want {
		t.Fatalf("it was %s, want %s", words, want)
	}
}

// A store that takes probes and nothing else is asked less and less.
func TestFailedRecoveryKeepsProbeIntervals(t *testing.T) {
	var changes []breakerChange
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		f.be(func(context.Context, bool) error {
			if f.probing.Load() > 0 {
				return nil
			}
			return errDead
		})
		traffic(store, 8*time.Second)
	}, withObserver(func(c breakerChange) { changes = append(changes, c) }))
	longest := time.Duration(0)
	for i := 0; i+1 < len(changes); i += 2 {
		wait, most := changes[i+1].At.Sub(changes[i].At), dueWithin(changes[i].At.Sub(changes[0].At))
		if wait < most/2 || wait > most {
			t.Errorf("wait %d was %v, want half to all of %v", i/2, wait, most)
		}
		longest = max(longest, wait)
	}
	if longest < 150*time.Millisecond {
		t.Errorf("after 8 s the longest wait was %v, want 150 ms or more", longest)
	}
}

func TestCallerErrorsAreNotFailures(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		fault fault
	}{
		"wrong input":        {context.Background(), fails(&weir.InputError{Field: "cost"})},
		"foreign state":      {context.Background(), fails(fmt.Errorf("%w: x", weir.ErrForeignState))},
		"a lease that ended": {context.Background(), fails(weir.ErrLeaseGone)},
		"a closed store":     {context.Background(), fails(weir.ErrClosed)},
		"a caller who left":  {gone, fails(fmt.Errorf("%w: %w", weir.ErrUnavailable, context.Canceled))},
		"a short deadline":   {nil, frozen},
		"20 ms of 25": {context.Background(),
			func(context.Context, bool) error { time.Sleep(24 * time.Millisecond); return nil }},
		"someone else's end":  {gone, frozen},
		"an answer":           {context.Background(), well},
		"errors of the store": {context.Background(), fails(errors.New("a reply that nobody understands"))},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
				f.be(c.fault)
				for range 200 {
					ctx, cancel := c.ctx, func() {}
					if ctx == nil {
						ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
					}
					store.Decide(ctx, []weir.Claim{breakerClaim}, 1, nil)
					cancel()
				}
				wantState(t, b, stateClosed)
				if s := b.Stats(); s != (breakerStats{}) {
					t.Errorf("%+v, want nothing counted", s)
				}
			})
		})
	}
}

func TestCallerErrorsDoNotHideFailures(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		time.Sleep(time.Second)
		for range 5 {
			f.be(fails(&weir.InputError{Field: "cost"}))
			decide(store)
			f.be(dead)
			decide(store)
		}
		wantState(t, b, stateOpen)
	})
}

func TestEveryOperationCounts(t *testing.T) {
	ctx, claims := context.Background(), []weir.Claim{breakerClaim}
	for name, call := range map[string]func(weir.Store) error{
		"Decide": decide,
		"Charge": func(s weir.Store) error { return s.Charge(ctx, claims, nil) },
		"Refund": func(s weir.Store) error { return s.Refund(ctx, claims, 0, nil) },
		"Reset":  func(s weir.Store) error { return s.Reset(ctx, claims) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
				f.be(dead)
				time.Sleep(25 * time.Millisecond)
				for range 5 {
					wantState(t, b, stateClosed)
					if err := call(store); err != errDead {
						t.Fatalf("got %v", err)
					}
				}
				wantState(t, b, stateOpen)
				var open *openError
				if err := call(store); !errors.As(err, &open) {
					t.Fatalf("got %v of an open breaker", err)
				}
				if s := b.Stats(); s.Failed != 5 || s.TurnedAway != 1 || s.Opened != 1 {
					t.Fatalf("%+v, want 5 failed, 1 turned away, opened once", s)
				}
			})
		})
	}
}

// Slow answers open it by their share, not by a row: it may be this process that stood still.
func TestSlowAnswers(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		f.be(slow)
		for i := range 20 {
			wantState(t, b, stateClosed)
			if err := decide(store); err != nil {
				t.Fatalf("slow answer %d: %v, want it", i, err)
			}
		}
		wantState(t, b, stateOpen)
		if s := b.Stats(); s.Slow != 20 || s.Failed != 0 {
			t.Errorf("%+v, want 20 slow ones", s)
		}
	})
}

// A caller that gave up after WithSlow is evidence of a failure.
func TestCallersThatGaveUpAfterSlow(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		f.be(frozen)
		for range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Millisecond)
			store.Decide(ctx, []weir.Claim{breakerClaim}, 1, nil)
			cancel()
		}
		wantState(t, b, stateOpen)
		var away *openError
		if err := decide(store); !errors.As(err, &away) || !strings.Contains(away.Error(), "took 25ms") {
			t.Errorf("%v, want it to say what was slow", err)
		}
	})
}

// A Cluster of three has lost a master: a third of the keys time out, all at once.
func TestOneFailedThirdInBunchesStaysClosed(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		third := fault(func(ctx context.Context, _ bool) error {
			if f.decisions.Load()%3 != 0 {
				time.Sleep(time.Millisecond)
				return nil
			}
			now := time.Now()
			time.Sleep(now.Truncate(10 * time.Millisecond).Add(budget).Sub(now))
			return errDead
		})
		f.be(third)
		traffic(store, 2*time.Second)
		wantState(t, b, stateClosed)
		if s := b.Stats(); s.Failed < 3000 {
			t.Errorf("%+v, want a third of 10,000 failed", s)
		}
	})
}

// In batches all wait for the keys of the master that is gone, and most are answered.
func TestOneFailedThirdOfEachBatchStaysClosed(t *testing.T) {
	for name, patience := range map[string]time.Duration{"the store gives up": time.Minute,
		"the callers do": budget * 3 / 4} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func() weir.Store { return failingThird{newFaulty()} },
				func(t *testing.T, b *breaker, store weir.Store) {
					for range 100 {
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						requests := make([]weir.Request, 60)
						for i := range requests {
							requests[i] = weir.Request{Claims: []weir.Claim{breakerClaim}, Times: 1}
						}
						store.(weir.Batcher).DecideBatch(ctx, requests)
						cancel()
					}
					wantState(t, b, stateClosed)
					if s := b.Stats(); s.Failed != 2000 || s.Slow != 0 {
						t.Errorf("%+v, want 2000 failed and none slow", s)
					}
				})
		})
	}
}

// failingThird is a Cluster of three with a master that is frozen.
type failingThird struct{ *faulty }

func (f failingThird) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := frozen(ctx, true)
	for i := range requests {
		if r := &requests[i]; i%3 == 0 {
			r.Err = err
		} else {
			r.Granted, r.Err = f.Store.Decide(context.Background(), r.Claims, r.Times, r.Decisions)
		}
	}
}

func TestHalfThatFails(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		half := func(failing bool) {
			f.be(well)
			if failing {
				f.be(dead)
			}
			decide(store)
		}
		for i := range 19 {
			half(i%2 == 0)
			wantState(t, b, stateClosed) // they are too few to say
		}
		time.Sleep(1126 * time.Millisecond) // and forgotten
		for i := range 19 {
			half(i%2 == 1)
			wantState(t, b, stateClosed)
		}
		half(true)
		wantState(t, b, stateOpen)
	})
}

func TestOutcomesFromBeforeOpeningAreIgnored(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		release := make(chan struct{})
		f.be(func(context.Context, bool) error { <-release; return errDead })
		var late sync.WaitGroup
		for range 100 {
			late.Go(func() { decide(store) })
		}
		synctest.Wait()
		awaitOpen(t, f, b, store)
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, stateClosed)
		close(release)
		late.Wait()
		wantState(t, b, stateClosed)
	})
}

// Any answer, including an error reply, shows that the store is there.
func TestAnswerEndsARow(t *testing.T) {
	for name, answer := range map[string]fault{
		"a grant": well, "a slow one": slow, "foreign state": fails(weir.ErrForeignState),
		"a lease that is gone": fails(weir.ErrLeaseGone),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
				for range 2 {
					time.Sleep(30 * time.Millisecond)
					f.be(dead)
					for range 4 {
						decide(store)
					}
					f.be(answer)
					decide(store)
				}
				wantState(t, b, stateClosed)
			})
		})
	}
}

func TestFailuresInARowNeedSilence(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		time.Sleep(time.Second)
		decide(store)
		f.be(dead)
		for range 10 {
			time.Sleep(2 * time.Millisecond)
			decide(store)
		}
		wantState(t, b, stateClosed) // somebody was answered 20 ms ago
		time.Sleep(5 * time.Millisecond)
		decide(store)
		wantState(t, b, stateOpen)
	})
}

func TestAnswersExpireToo(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		for range 1000 {
			decide(store)
		}
		time.Sleep(time.Second)
		f.be(dead)
		for range 20 {
			wantState(t, b, stateClosed)
			decide(store)
		}
		wantState(t, b, stateOpen)
	}, withBurst(1000))
}

// Nodes that lost the store together do not come back to it together.
func TestProbesAreSpread(t *testing.T) {
	waits := make(map[time.Duration]bool)
	for range 20 {
		in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
			awaitOpen(t, f, b, store)
			var away *openError
			errors.As(decide(store), &away)
			waits[time.Until(away.Next)] = true
		})
	}
	if len(waits) < 10 {
		t.Errorf("20 breakers wait %v", waits)
	}
}

func TestRefusedCalls(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		time.Sleep(3 * time.Second)
		before := f.decisions.Load()
		granted, err := store.Decide(context.Background(), []weir.Claim{breakerClaim}, 1, nil)
		var away *openError
		if granted != 0 || !errors.Is(err, weir.ErrUnavailable) || !errors.As(err, &away) ||
			f.decisions.Load() != before {
			t.Fatalf("granted %d, %v; it is to be unavailable, and not executed", granted, err)
		}
		if wait := time.Until(away.Next); wait <= 0 || wait > 500*time.Millisecond {
			t.Errorf("it is tried again in %v", wait)
		}
		for _, word := range []string{"not executed", "probes the store again in ", "connection refused"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("it looks as if the caller's deadline had passed")
		}
		bad := breakerClaim
		bad.Cost = -1
		var input *weir.InputError
		if _, err := store.Decide(context.Background(), []weir.Claim{bad}, 1, nil); !errors.As(err, &input) {
			t.Errorf("wrong input while it is open: %v; callers would answer in the store's place", err)
		}
		f.be(well)
		for b.State() != stateHalfOpen {
			time.Sleep(time.Millisecond)
		}
		if err := decide(store); err == nil || !strings.Contains(err.Error(), "a growing share") {
			t.Errorf("in the first moment of half-open: %v", err)
		}
	})
}

func TestBreakerBatches(t *testing.T) {
	f := faultyBatches{newFaulty()}
	bubble(t, func() weir.Store { return f }, func(t *testing.T, b *breaker, store weir.Store) {
		ctx := context.Background()
		bad := breakerClaim
		bad.Cost = -1
		ask := func() []weir.Request {
			r := make([]weir.Request, 6)
			for i := range r {
				r[i] = weir.Request{Claims: []weir.Claim{breakerClaim}, Times: 1, Granted: 7}
			}
			r[5].Claims = []weir.Claim{bad}
			store.(weir.Batcher).DecideBatch(ctx, r)
			return r
		}
		var input *weir.InputError
		if r := ask(); r[0].Granted != 1 || r[0].Err != nil || !errors.As(r[5].Err, &input) {
			t.Fatalf("%+v", r)
		}
		time.Sleep(25 * time.Millisecond)
		f.be(dead)
		ask()
		wantState(t, b, stateOpen) // each of its requests counts
		r := ask()
		for i := range r[:5] {
			if r[i].Granted != 0 || !errors.Is(r[i].Err, weir.ErrUnavailable) {
				t.Errorf("request %d of an open breaker: %+v", i, r[i])
			}
		}
		if r[5].Granted != 0 || !errors.As(r[5].Err, &input) {
			t.Errorf("wrong input to an open breaker: %+v", r[5])
		}
		if s := b.Stats(); s.Failed != 6 || s.TurnedAway != 5 {
			t.Errorf("%+v, want 6 failed and 5 turned away", s)
		}
	})
}

func TestCloseInEveryState(t *testing.T) {
	for _, state := range []breakerState{stateClosed, stateOpen, stateHalfOpen} {
		t.Run(state.String(), func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
				if state != stateClosed {
					awaitOpen(t, f, b, store)
				}
				if state == stateHalfOpen {
					f.be(well)
				}
				for b.State() != state {
					time.Sleep(time.Millisecond)
				}
				f.be(well)
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				if err := decide(store); !errors.Is(err, weir.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				probes := b.Stats().Probes
				time.Sleep(10 * time.Second)
				if s := b.Stats(); s.Probes != probes {
					t.Error("it probes a closed store")
				}
			})
		})
	}
}

// Many callers, and a store that is dead until it was noticed, and then comes and goes: for the race detector. They go
// on until the breaker has opened twice, because on a busy machine they may end before the first probe begins.
func TestBreakerManyCallers(t *testing.T) {
	f := faultyBatches{newFaulty()}
	b, store := breakerNewBreaker(t, f, withProbes(time.Microsecond, time.Microsecond),
		withRamp(10*time.Microsecond), withSlow(time.Minute), withBurst(1000))
	f.be(dead)
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			requests := []weir.Request{{Claims: []weir.Claim{breakerClaim}, Times: 1}}
			for i := 0; i < 5000 || b.Stats().Opened < 2 && patience.Err() == nil; i++ {
				decide(store)
				store.(weir.Batcher).DecideBatch(context.Background(), requests)
				if i%50 == 0 && b.Stats().Opened > 0 {
					f.be([]fault{well, dead}[i/50%2])
				}
			}
		})
	}
	callers.Wait()
	f.be(well)
	store.Close()
	if s := b.Stats(); s.Opened < 2 || s.Failed == 0 || s.Probes == 0 {
		t.Errorf("%+v: it never opened again", s)
	}
}

// A release that an open breaker turns away gets to the store below, in a context that has ended: the store sends
// nothing now, and releases the lease later.
func TestReleaseIsLeftToTheStore(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker, store weir.Store) {
		awaitOpen(t, f, b, store)
		var told []error
		f.be(func(ctx context.Context, _ bool) error {
			told = append(told, ctx.Err())
			return errDead
		})
		lease := weir.Claim{Key: "key", Cost: 1, Lease: "lease",
			Limit: weir.MustLimit("slots", weir.Concurrency{Limit: 1, TTL: time.Minute})}
		var away *openError
		if err := store.Refund(t.Context(), []weir.Claim{breakerClaim, lease}, 0, nil); !errors.As(err, &away) {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0] == nil {
			t.Errorf("the store below was called with contexts that say %v; want one that has ended", told)
		}
		lease.Renew = true
		store.Refund(t.Context(), []weir.Claim{breakerClaim, lease}, 0, nil)
		if len(told) != 1 {
			t.Error("a refund that its caller repeats was left to the store")
		}
	})
}

// A far store answers each call after the same time, and ends it by its timeout.
type far struct {
	weir.Store
	away, timeout time.Duration
}

func (f far) Timeout() time.Duration { return f.timeout }

func (f far) travel(ctx context.Context) error {
	select {
	case <-time.After(min(f.away, f.timeout)):
	case <-ctx.Done():
	}
	if ctx.Err() != nil || f.away > f.timeout {
		return weir.ErrUnavailable
	}
	return nil
}

func (f far) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := f.travel(ctx); err != nil {
		return 0, err
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f far) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if err := f.travel(ctx); err != nil {
		return err
	}
	return f.Store.Charge(ctx, claims, d)
}

// TestHealthyFarStoreStaysClosed: a store that answers within its own timeout is healthy at any distance.
func TestHealthyFarStoreStaysClosed(t *testing.T) {
	for _, next := range []far{
		{away: 30 * time.Millisecond, timeout: 50 * time.Millisecond},
		{away: 30 * time.Millisecond, timeout: time.Second},
		{away: 300 * time.Millisecond, timeout: 500 * time.Millisecond},
	} {
		next.Store = memstore.New()
		synctest.Test(t, func(t *testing.T) {
			store := newBreaker(next, breakerConfig{Slow: next.timeout / 4 * 3})
			defer store.Close()
			for i := range 2000 {
				if err := decide(store); err != nil {
					t.Fatalf("%v away, timeout %v, call %d: %v", next.away, next.timeout, i, err)
				}
			}
			if s := store.Stats(); s.Opened != 0 || store.State() != stateClosed {
				t.Errorf("%v away, timeout %v: %v, %+v", next.away, next.timeout, store.State(), s)
			}
		})
	}
}

const budget = 50 * time.Millisecond

var (
	breakerLimit = weir.MustLimit("limit", weir.PerSecond(1_000_000))
	breakerClaim = weir.Claim{Key: "key", Limit: breakerLimit, Cost: 1}

	errDead = fmt.Errorf("%w: connection refused", weir.ErrUnavailable)
)

// A fault is what becomes of a call before it gets to the store: nil lets it through.
type fault func(ctx context.Context, write bool) error

func well(context.Context, bool) error { return nil }
func dead(context.Context, bool) error { return errDead }

func readOnly(_ context.Context, write bool) error {
	if write {
		return fmt.Errorf("%w: READONLY", weir.ErrUnavailable)
	}
	return nil
}

// frozen is as redisstore is then: the call ends with its timeout or its caller's.
func frozen(ctx context.Context, _ bool) error {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("%w: %w", weir.ErrUnavailable, ctx.Err())
}

func slow(context.Context, bool) error {
	time.Sleep(30 * time.Millisecond)
	return nil
}

func fails(err error) fault { return func(context.Context, bool) error { return err } }

// faulty is a store that can be made to fail.
type faulty struct {
	weir.Store
	fault     atomic.Pointer[fault]
	decisions atomic.Int64 // that got here
	probes    atomic.Int64
	probing   atomic.Int64
}

func newFaulty() *faulty {
	f := &faulty{Store: memstore.New()}
	f.be(well)
	return f
}

func (f *faulty) be(now fault) { f.fault.Store(&now) }

func (f *faulty) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	f.decisions.Add(1)
	if err := (*f.fault.Load())(ctx, times > 0); err != nil {
		return 0, err
	}
	return f.Store.Decide(ctx, claims, times, decisions)
}

func (f *faulty) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if claims[0].Limit.Name() == "weir.breaker" {
		f.probes.Add(1)
		if f.probing.Add(1) > 1 {
			return errors.New("two probes at once")
		}
		defer f.probing.Add(-1)
	}
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Charge(ctx, claims, decisions)
}

func (f *faulty) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant,
	decisions []weir.Decision) error {
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Refund(ctx, claims, at, decisions)
}

func (f *faulty) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := (*f.fault.Load())(ctx, true); err != nil {
		return err
	}
	return f.Store.Reset(ctx, claims)
}

// faultyBatches is a faulty store that decides batches.
type faultyBatches struct{ *faulty }

func (f faultyBatches) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := (*f.fault.Load())(ctx, true)
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, err; err == nil {
			r.Granted, r.Err = f.Store.Decide(ctx, r.Claims, r.Times, r.Decisions)
		}
	}
}

func breakerNewBreaker(t testing.TB, next weir.Store, opts ...breakerOption) (*breaker, weir.Store) {
	t.Helper()
	b := newBreakerWith(next, append([]breakerOption{withSlow(budget / 2)}, opts...)...)
	return b, b
}

func decide(store weir.Store) error {
	_, err := store.Decide(context.Background(), []weir.Claim{breakerClaim}, 1, nil)
	return err
}

func wantState(t *testing.T, b *breaker, want breakerState) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("the breaker is %v, want %v; %+v", got, want, b.Stats())
	}
}

// bubble runs a test by virtual time. A probe that does not end with its store fails it.
func bubble(t *testing.T, next func() weir.Store, test func(t *testing.T, b *breaker, store weir.Store),
	opts ...breakerOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, store := breakerNewBreaker(t, next(), opts...)
		defer store.Close()
		test(t, b, store)
	})
}

// in is a bubble round a faulty store.
func in(t *testing.T, test func(t *testing.T, f *faulty, b *breaker, store weir.Store),
	opts ...breakerOption) {
	t.Helper()
	f := newFaulty()
	bubble(t, func() weir.Store { return f },
		func(t *testing.T, b *breaker, store weir.Store) { test(t, f, b, store) }, opts...)
}

// traffic sends 5,000 requests a second, each in its own goroutine, and counts those that waited and those that
// were refused.
func traffic(store weir.Store, d time.Duration) (waited, away int64) {
	var calls sync.WaitGroup
	var w, a atomic.Int64
	for range int64(d / (200 * time.Microsecond)) {
		calls.Go(func() {
			began := time.Now()
			err := decide(store)
			if time.Since(began) > 0 {
				w.Add(1)
			}
			if open := (*openError)(nil); errors.As(err, &open) {
				a.Add(1)
			}
		})
		time.Sleep(200 * time.Microsecond)
	}
	calls.Wait()
	return w.Load(), a.Load()
}
