package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
)

func TestFrozenStoreDelaysFewCalls(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
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
		wantState(t, b, breaker.Open)
	})
}

func TestFullServiceWithinTwoSeconds(t *testing.T) {
	for range 5 { // the jitter differs
		in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
			f.be(frozen)
			traffic(store, 3*time.Second)
			f.be(well)
			traffic(store, 2*time.Second)
			wantState(t, b, breaker.Closed)
			if _, away := traffic(store, time.Second); away != 0 {
				t.Errorf("%d were turned away two seconds after the store was well", away)
			}
		})
	}
}

func TestClosingAdmitsAGrowingShare(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		f.be(well)
		for b.State() == breaker.Open {
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
		wantState(t, b, breaker.Closed)
	})
}

// open makes the store fail until the breaker is open.
func open(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
	t.Helper()
	f.be(dead)
	for i := 0; b.State() != breaker.Open; i++ {
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
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
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
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		f.be(readOnly)
		time.Sleep(10 * time.Second)
		wantState(t, b, breaker.Open)
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, breaker.Closed)
	})
}

func TestSlowProbeFails(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		f.be(slow)
		time.Sleep(10 * time.Second)
		wantState(t, b, breaker.Open)
		// The last may be under way still.
		if s := b.Stats(); s.ProbesLost < s.Probes-1 || s.Probes < 10 {
			t.Errorf("%+v, want all of a dozen and more probes lost", s)
		}
	})
}

func TestOpensAgainWhileClosing(t *testing.T) {
	var changes []breaker.Change
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		for range 4 { // the store takes a probe, and nothing else
			f.be(well)
			for b.State() != breaker.HalfOpen {
				time.Sleep(time.Millisecond)
			}
			f.be(frozen)
			waited, _ := traffic(store, 300*time.Millisecond)
			wantState(t, b, breaker.Open)
			if waited > 100 { // a tenth of those of the first 50ms, on average half of that
				t.Errorf("%d waited for a store that took only probes", waited)
			}
		}
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, breaker.Closed)
		// After it has been closed, the intervals are short again.
		open(t, f, b, store)
		f.be(well)
		time.Sleep(51 * time.Millisecond)
		wantState(t, b, breaker.HalfOpen)
	}, breaker.WithObserver(func(c breaker.Change) { changes = append(changes, c) }))
	state, words := breaker.Closed, ""
	for _, c := range changes {
		if c.From != state || (c.Cause != nil) != (c.To == breaker.Open) || c.At.IsZero() {
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
	var changes []breaker.Change
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		f.be(func(context.Context, bool) error {
			if f.probing.Load() > 0 {
				return nil
			}
			return errDead
		})
		traffic(store, 8*time.Second)
	}, breaker.WithObserver(func(c breaker.Change) { changes = append(changes, c) }))
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
			in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
				f.be(c.fault)
				for range 200 {
					ctx, cancel := c.ctx, func() {}
					if ctx == nil {
						ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
					}
					store.Decide(ctx, []weir.Claim{claim}, 1, nil)
					cancel()
				}
				wantState(t, b, breaker.Closed)
				if s := b.Stats(); s != (breaker.Stats{}) {
					t.Errorf("%+v, want nothing counted", s)
				}
			})
		})
	}
}

func TestCallerErrorsDoNotHideFailures(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		time.Sleep(time.Second)
		for range 5 {
			f.be(fails(&weir.InputError{Field: "cost"}))
			decide(store)
			f.be(dead)
			decide(store)
		}
		wantState(t, b, breaker.Open)
	})
}

func TestEveryOperationCounts(t *testing.T) {
	ctx, claims := context.Background(), []weir.Claim{claim}
	for name, call := range map[string]func(weir.Store) error{
		"Decide": decide,
		"Charge": func(s weir.Store) error { return s.Charge(ctx, claims, nil) },
		"Refund": func(s weir.Store) error { return s.Refund(ctx, claims, 0, nil) },
		"Reset":  func(s weir.Store) error { return s.Reset(ctx, claims) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
				f.be(dead)
				time.Sleep(25 * time.Millisecond)
				for range 5 {
					wantState(t, b, breaker.Closed)
					if err := call(store); err != errDead {
						t.Fatalf("got %v", err)
					}
				}
				wantState(t, b, breaker.Open)
				var open *breaker.OpenError
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
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		f.be(slow)
		for i := range 20 {
			wantState(t, b, breaker.Closed)
			if err := decide(store); err != nil {
				t.Fatalf("slow answer %d: %v, want it", i, err)
			}
		}
		wantState(t, b, breaker.Open)
		if s := b.Stats(); s.Slow != 20 || s.Failed != 0 {
			t.Errorf("%+v, want 20 slow ones", s)
		}
	})
}

// A caller that gave up after WithSlow is evidence of a failure.
func TestCallersThatGaveUpAfterSlow(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		f.be(frozen)
		for range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Millisecond)
			store.Decide(ctx, []weir.Claim{claim}, 1, nil)
			cancel()
		}
		wantState(t, b, breaker.Open)
		var away *breaker.OpenError
		if err := decide(store); !errors.As(err, &away) || !strings.Contains(away.Error(), "took 25ms") {
			t.Errorf("%v, want it to say what was slow", err)
		}
	})
}

// A Cluster of three has lost a master: a third of the keys time out, all at once.
func TestOneFailedThirdInBunchesStaysClosed(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
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
		wantState(t, b, breaker.Closed)
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
			bubble(t, func() weir.Store { return thirds{newFaulty()} },
				func(t *testing.T, b *breaker.Breaker, store weir.Store) {
					for range 100 {
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						requests := make([]weir.Request, 60)
						for i := range requests {
							requests[i] = weir.Request{Claims: []weir.Claim{claim}, Times: 1}
						}
						store.(weir.Batcher).DecideBatch(ctx, requests)
						cancel()
					}
					wantState(t, b, breaker.Closed)
					if s := b.Stats(); s.Failed != 2000 || s.Slow != 0 {
						t.Errorf("%+v, want 2000 failed and none slow", s)
					}
				})
		})
	}
}

// thirds is a Cluster of three with a master that is frozen.
type thirds struct{ *faulty }

func (f thirds) DecideBatch(ctx context.Context, requests []weir.Request) {
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
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		half := func(failing bool) {
			f.be(well)
			if failing {
				f.be(dead)
			}
			decide(store)
		}
		for i := range 19 {
			half(i%2 == 0)
			wantState(t, b, breaker.Closed) // they are too few to say
		}
		time.Sleep(1126 * time.Millisecond) // and forgotten
		for i := range 19 {
			half(i%2 == 1)
			wantState(t, b, breaker.Closed)
		}
		half(true)
		wantState(t, b, breaker.Open)
	})
}

func TestOutcomesFromBeforeOpeningAreIgnored(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		release := make(chan struct{})
		f.be(func(context.Context, bool) error { <-release; return errDead })
		var late sync.WaitGroup
		for range 100 {
			late.Go(func() { decide(store) })
		}
		synctest.Wait()
		open(t, f, b, store)
		f.be(well)
		time.Sleep(2 * time.Second)
		wantState(t, b, breaker.Closed)
		close(release)
		late.Wait()
		wantState(t, b, breaker.Closed)
	})
}

// Any answer, including an error reply, shows that the store is there.
func TestAnswerEndsARow(t *testing.T) {
	for name, answer := range map[string]fault{
		"a grant": well, "a slow one": slow, "foreign state": fails(weir.ErrForeignState),
		"a lease that is gone": fails(weir.ErrLeaseGone),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
				for range 2 {
					time.Sleep(30 * time.Millisecond)
					f.be(dead)
					for range 4 {
						decide(store)
					}
					f.be(answer)
					decide(store)
				}
				wantState(t, b, breaker.Closed)
			})
		})
	}
}

func TestFailuresInARowNeedSilence(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		time.Sleep(time.Second)
		decide(store)
		f.be(dead)
		for range 10 {
			time.Sleep(2 * time.Millisecond)
			decide(store)
		}
		wantState(t, b, breaker.Closed) // somebody was answered 20 ms ago
		time.Sleep(5 * time.Millisecond)
		decide(store)
		wantState(t, b, breaker.Open)
	})
}

func TestAnswersExpireToo(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		for range 1000 {
			decide(store)
		}
		time.Sleep(time.Second)
		f.be(dead)
		for range 20 {
			wantState(t, b, breaker.Closed)
			decide(store)
		}
		wantState(t, b, breaker.Open)
	}, breaker.WithBurst(1000))
}

// Nodes that lost the store together do not come back to it together.
func TestProbesAreSpread(t *testing.T) {
	waits := make(map[time.Duration]bool)
	for range 20 {
		in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
			open(t, f, b, store)
			var away *breaker.OpenError
			errors.As(decide(store), &away)
			waits[time.Until(away.Next)] = true
		})
	}
	if len(waits) < 10 {
		t.Errorf("20 breakers wait %v", waits)
	}
}
