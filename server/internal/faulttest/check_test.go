package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// TestTrial: each store has one fault, and the trial finds that one alone.
func TestTrial(t *testing.T) {
	down := fmt.Errorf("%w (the call was not executed): down", weir.ErrUnavailable)
	var struck atomic.Bool
	noFault := Trial{Rate: 800, Strike: func(*Load) {}, Unnoticed: true}
	for name, one := range map[string]struct {
		trial  Trial
		decide func(good weir.Store, claims []weir.Claim) (int64, error)
		want   string
	}{
		"nothing": {noFault, once, ""},
		"an outage": {Trial{Rate: 800, Strike: func(*Load) { struck.Store(true) },
			Mend: func() { struck.Store(false) }, Says: "down"},
			func(good weir.Store, claims []weir.Claim) (int64, error) {
				if struck.Load() {
					return 0, down
				}
				return once(good, claims)
			}, ""},
		"no fault": {Trial{Rate: 800, Strike: func(*Load) {}}, once, "did not strike"},
		"another fault": {Trial{Rate: 800, Strike: func(*Load) {}, Unnoticed: true, Says: "down"}, once,
			`no error says "down"`},
		"twice": {noFault, func(good weir.Store, claims []weir.Claim) (int64, error) {
			good.Charge(context.Background(), claims, nil)
			return once(good, claims)
		}, "without a grant"},
		"slow": {noFault, func(good weir.Store, claims []weir.Claim) (int64, error) {
			time.Sleep(2 * time.Second)
			return once(good, claims)
		}, "too late"},
		"wrong": {noFault, func(good weir.Store, claims []weir.Claim) (int64, error) {
			good.Decide(context.Background(), claims, 1, nil)
			if claims[0].Key == "fresh0" {
				return 0, errors.New("other")
			}
			return once(good, claims)
		}, "is not weir.ErrUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good := memstore.New()
				defer good.Close()
				store := &bad{good, func(_ context.Context, claims []weir.Claim, _ int64, _ []weir.Decision) (int64,
					error) {
					return one.decide(good, claims)
				}}
				r, err := one.trial.Run(t.Context(), store, func() weir.Store { return good }, "", 50*time.Millisecond)
				switch {
				case one.want == "" && err != nil:
					t.Error(err)
				case one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)):
					t.Errorf("the error is %v, want %q", err, one.want)
				}
				if one.want == "" && (r.Back <= 0 || r.Back > 2*time.Second) {
					t.Errorf("all keys are decided again after %v", r.Back)
				}
			})
		})
	}
}

func once(good weir.Store, claims []weir.Claim) (int64, error) {
	return good.Decide(context.Background(), claims, 1, nil)
}

// TestTrialOfForgetting: a store forgets once, which a trial may allow or not.
func TestTrialOfForgetting(t *testing.T) {
	for _, may := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			good := memstore.New()
			defer good.Close()
			forget := func(l *Load) {
				for _, b := range l.accounts.lasting {
					good.Reset(t.Context(), []weir.Claim{{Key: b.key, Limit: b.limit, Cost: 1}})
				}
				time.Sleep(3 * time.Second) // until what is tight is spent again
			}
			f := Trial{Rate: 800, Strike: forget, Unnoticed: true, Forgets: may}
			r, err := f.Run(t.Context(), good, func() weir.Store { return good }, "", 50*time.Millisecond)
			if r.Bursts != 1 || r.Over != tightUnits || r.Lost == 0 {
				t.Errorf("%+v", r)
			}
			if (err == nil) != may {
				t.Errorf("may it forget: %v; the error is %v", may, err)
			}
			if !may && (!strings.Contains(err.Error(), "more than its limit") ||
				!strings.Contains(err.Error(), "are forgotten")) {
				t.Error(err)
			}
		})
	}
}
