package breaker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
)

func TestRefusedCalls(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		time.Sleep(3 * time.Second)
		before := f.decisions.Load()
		granted, err := store.Decide(context.Background(), []weir.Claim{claim}, 1, nil)
		var away *breaker.OpenError
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
		bad := claim
		bad.Cost = -1
		var input *weir.InputError
		if _, err := store.Decide(context.Background(), []weir.Claim{bad}, 1, nil); !errors.As(err, &input) {
			t.Errorf("wrong input while it is open: %v; callers would answer in the store's place", err)
		}
		f.be(well)
		for b.State() != breaker.HalfOpen {
			time.Sleep(time.Millisecond)
		}
		if err := decide(store); err == nil || !strings.Contains(err.Error(), "a growing share") {
			t.Errorf("in the first moment of half-open: %v", err)
		}
	})
}

func TestBatches(t *testing.T) {
	f := batched{newFaulty()}
	bubble(t, func() weir.Store { return f }, func(t *testing.T, b *breaker.Breaker, store weir.Store) {
		ctx := context.Background()
		bad := claim
		bad.Cost = -1
		ask := func() []weir.Request {
			r := make([]weir.Request, 6)
			for i := range r {
				r[i] = weir.Request{Claims: []weir.Claim{claim}, Times: 1, Granted: 7}
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
		wantState(t, b, breaker.Open) // each of its requests counts
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
	for _, state := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
		t.Run(state.String(), func(t *testing.T) {
			in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
				if state != breaker.Closed {
					open(t, f, b, store)
				}
				if state == breaker.HalfOpen {
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
func TestManyCallers(t *testing.T) {
	f := batched{newFaulty()}
	b, store := newBreaker(t, f, breaker.WithProbes(time.Microsecond, time.Microsecond),
		breaker.WithRamp(10*time.Microsecond), breaker.WithSlow(time.Minute), breaker.WithBurst(1000))
	f.be(dead)
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			requests := []weir.Request{{Claims: []weir.Claim{claim}, Times: 1}}
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

// A release that an open breaker turns away gets to the store below, in a context that has ended: the store sends nothing
// now, and releases the lease later.
func TestReleaseIsLeftToTheStore(t *testing.T) {
	in(t, func(t *testing.T, f *faulty, b *breaker.Breaker, store weir.Store) {
		open(t, f, b, store)
		var told []error
		f.be(func(ctx context.Context, _ bool) error {
			told = append(told, ctx.Err())
			return errDead
		})
		lease := weir.Claim{Key: "key", Cost: 1, Lease: "lease",
			Limit: weir.MustLimit("slots", weir.Concurrency{Limit: 1, TTL: time.Minute})}
		var away *breaker.OpenError
		if err := store.Refund(t.Context(), []weir.Claim{claim, lease}, 0, nil); !errors.As(err, &away) {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0] == nil {
			t.Errorf("the store below was called with contexts that say %v; want one that has ended", told)
		}
		lease.Renew = true
		store.Refund(t.Context(), []weir.Claim{claim, lease}, 0, nil)
		if len(told) != 1 {
			t.Error("a refund that its caller repeats was left to the store")
		}
	})
}
