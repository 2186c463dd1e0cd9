package faulttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// bad is a store that decides otherwise.
type bad struct {
	weir.Store
	decide func(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error)
}

func (b *bad) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if times == 0 { // the recount
		return b.Store.Decide(ctx, claims, times, decisions)
	}
	return b.decide(ctx, claims, times, decisions)
}

// run loads a store for two seconds, 800 decisions each.
func run(t *testing.T, decide func(good weir.Store) func(context.Context, []weir.Claim, int64, []weir.Decision) (int64,
	error)) (r Report, ended bool) {
	t.Helper()
	good := memstore.New()
	defer good.Close()
	load := Start(&bad{good, decide(good)}, "", 800, 50*time.Millisecond)
	time.Sleep(time.Second)
	load.Mark()
	time.Sleep(time.Second)
	ended = load.End()
	r = load.Report()
	if ended {
		if err := load.Recount(t.Context(), good, &r); err != nil {
			t.Fatal(err)
		}
	}
	return r, ended
}

func TestGoodStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ended := run(t, func(good weir.Store) func(context.Context, []weir.Claim, int64, []weir.Decision) (int64,
			error) {
			return good.Decide
		})
		if !ended || r.Late+r.Twice+r.Lost+r.Over+r.Bursts+r.Degraded != 0 || r.Wrong != nil {
			t.Errorf("%+v", r)
		}
		if r.Asked < 1500 || r.Asked > 1600 || r.Granted+r.Refused != r.Asked || r.Refused < 250 {
			t.Errorf("%+v", r)
		}
		if r.Outage < 10*time.Millisecond || r.Outage > 200*time.Millisecond { // a key's turns
			t.Errorf("the longest gap is %v", r.Outage)
		}
	})
}

// TestBadStores: the trial finds the fault of each.
func TestBadStores(t *testing.T) {
	type deciding = func(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error)
	lost := fmt.Errorf("%w (it is unknown whether the call was executed): lost", weir.ErrUnavailable)
	never := fmt.Errorf("%w (the call was not executed): lost", weir.ErrUnavailable)
	for name, one := range map[string]struct {
		decide func(good weir.Store) deciding
		found  func(Report, bool) bool
	}{
		"charges twice": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				good.Charge(ctx, c, nil)
				return good.Decide(ctx, c, n, d)
			}
		}, func(r Report, _ bool) bool { return r.Twice > 500 }},
		"charges what it says it did not": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				good.Decide(ctx, c, n, d)
				return 0, never
			}
		}, func(r Report, _ bool) bool { return r.Twice > 500 && r.Degraded == r.Asked }},
		"charges, and does not know": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				good.Decide(ctx, c, n, d)
				return 0, lost
			}
		}, func(r Report, _ bool) bool {
			return r.Twice == 0 && r.Degraded == r.Asked && r.Failures[pattern(lost)] > 0
		}},
		"forgets": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				granted, err := good.Decide(ctx, c, n, d)
				good.Reset(ctx, c)
				return granted, err
			}
		}, func(r Report, _ bool) bool { return r.Lost > 500 && r.Over > tightUnits && r.Bursts > 1 }},
		"is slow": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				time.Sleep(2 * time.Second)
				return good.Decide(ctx, c, n, d)
			}
		}, func(r Report, ended bool) bool {
			return ended && r.Late == r.Asked && r.P50 >= 2*time.Second && r.Max >= 2*time.Second
		}},
		"hangs": {func(good weir.Store) deciding {
			return func(ctx context.Context, c []weir.Claim, n int64, d []weir.Decision) (int64, error) {
				time.Sleep(time.Hour)
				return 0, lost
			}
		}, func(r Report, ended bool) bool { return !ended && r.Late == most*800/20 }},
		"refuses all": {func(weir.Store) deciding {
			return func(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) { return 0, nil }
		}, func(r Report, _ bool) bool { return len(r.Wrong) == mostWrong }},
		"has another error": {func(weir.Store) deciding {
			return func(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
				return 0, errors.New("other")
			}
		}, func(r Report, _ bool) bool { return len(r.Wrong) == mostWrong && r.Degraded == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if r, ended := run(t, one.decide); !one.found(r, ended) {
					t.Errorf("ended %v, %+v", ended, r)
				}
				time.Sleep(2 * time.Hour) // what hangs ends
			})
		})
	}
}

// TestOutage is the longest wait of a key since the mark.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAccounts()
		traffic := newTraffic("", b)
		decide := func() { b.enter(ask{accounts: [2]*account{traffic.roomy[0]}}, time.Now(), 1, nil) }
		decide()
		time.Sleep(time.Hour)
		decide()
		b.mark()
		for _, wait := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} {
			time.Sleep(wait)
			decide()
		}
		if got := (&Load{accounts: b}).Report().Outage; got != 3*time.Second {
			t.Errorf("the outage is %v", got)
		}
		if b.flowing(time.Time{}) {
			t.Error("all keys flow, of which one was asked for")
		}
	})
}

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond,
		1: time.Second} {
		if got := h.quantile(share); got < want || got > want*110/100 {
			t.Errorf("quantile %v is %v, want %v or up to a tenth more", share, got, want)
		}
	}
	h.add(30 * 24 * time.Hour)
	h.add(0)
	if h.quantile(1) != h.longest || h.longest != 30*24*time.Hour {
		t.Errorf("the longest is %v", h.longest)
	}
}

// late is a store whose first reads of a remainder fail.
type late struct {
	weir.Store
	failures int
}

func (l *late) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if l.failures--; l.failures >= 0 {
		return 0, weir.ErrUnavailable
	}
	return l.Store.Decide(ctx, claims, times, decisions)
}

func TestRecountAsksAgain(t *testing.T) {
	for failures, fails := range map[int]bool{20: false, 1 << 30: true} {
		synctest.Test(t, func(t *testing.T) {
			good := memstore.New()
			defer good.Close()
			b := newAccounts()
			l := &Load{accounts: b, traffic: newTraffic("", b)}
			if err := l.Recount(t.Context(), &late{good, failures}, new(Report)); (err != nil) != fails {
				t.Errorf("after %d failures: %v", failures, err)
			}
		})
	}
}
