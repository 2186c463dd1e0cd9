package recall_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestReturnedUnitsForget(t *testing.T) {
	c := claim(weir.PerHour(2), 2)
	all := []weir.Claim{c}
	for name, credit := range map[string]func(s *scene) error{
		"Refund": func(s *scene) error { return s.layer.Refund(context.Background(), all, s.redis, nil) },
		"Reset":  func(s *scene) error { return s.layer.Reset(context.Background(), all) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.ask(1, true, c)
			s.ask(0, false, c)
			if err := credit(s); err != nil {
				t.Fatal(err)
			}
			s.ask(1, true, c)
		})
	}
	s := newScene(t)
	s.ask(1, true, c)
	if err := s.layer.Charge(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	if d := s.ask(0, true, c); d[0].RetryAfter != 2*time.Hour {
		t.Errorf("after a charge: %+v, want two hours", d[0])
	}
}

// A gated store's calls wait until they are let through: before the store decides, and before they return.
type gated struct {
	weir.Store
	decide, refund gate
}

type gate struct{ decides, returns chan struct{} } // nil: it is open

func (g *gate) do(call func()) {
	if g.decides != nil {
		<-g.decides
		defer func() { <-g.returns }()
	}
	call()
}

func shut() gate { return gate{make(chan struct{}), make(chan struct{})} }

func (g *gated) Decide(ctx context.Context, claims []weir.Claim, times int64,
	d []weir.Decision) (granted int64, err error) {
	g.decide.do(func() { granted, err = g.Store.Decide(ctx, claims, times, d) })
	return granted, err
}

func (g *gated) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) (err error) {
	g.refund.do(func() { err = g.Store.Refund(ctx, claims, at, d) })
	return err
}

// A call that began before a refund returned is not learned from, whichever returns first: its answer may be
// older than the refund.
func TestRefundDiscardsConcurrentAnswers(t *testing.T) {
	c := []weir.Claim{claim(weir.PerHour(1), 1)}
	// a, d, D: it is asked, decided, and returns; b, r, R: the refund begins, is executed, returns.
	for _, order := range []string{"adDbrR", "adbrRD", "adbrDR", "abdrRD", "abdDrR", "badDrR", "badrDR", "badrRD"} {
		synctest.Test(t, func(t *testing.T) {
			below := memstore.New()
			below.Charge(t.Context(), c, nil)
			g := &gated{below, shut(), shut()}
			layer := over(t, g)
			var wait sync.WaitGroup
			for _, step := range order {
				switch step {
				case 'a':
					wait.Go(func() { layer.Decide(context.Background(), c, 1, nil) })
				case 'b':
					wait.Go(func() { layer.Refund(context.Background(), c, 0, nil) })
				case 'd':
					g.decide.decides <- struct{}{}
				case 'D':
					g.decide.returns <- struct{}{}
				case 'r':
					g.refund.decides <- struct{}{}
				case 'R':
					g.refund.returns <- struct{}{}
				}
				synctest.Wait()
			}
			wait.Wait()
			if layer.Kept() != 0 {
				t.Errorf("%s: a refusal is believed that was asked for before the refund had returned", order)
			}
		})
	}
}

// During a refund its keys are decided by the store: a caller may have seen its effect.
func TestRefusalsAreIgnoredDuringARefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := []weir.Claim{claim(weir.PerHour(1), 1)}
		g := &gated{Store: memstore.New(), refund: shut()}
		layer := over(t, g)
		layer.Decide(t.Context(), c, 1, nil)
		if layer.Kept() != 1 {
			t.Fatal("nothing was learned")
		}
		var wait sync.WaitGroup
		wait.Go(func() { layer.Refund(context.Background(), c, 0, nil) })
		synctest.Wait()
		if layer.Kept() != 0 {
			t.Error("a refusal is believed while a refund is under way")
		}
		if granted, _ := layer.Decide(t.Context(), c, 1, nil); granted != 0 || layer.Kept() != 0 {
			t.Errorf("granted %d, %d remembered; want a refusal that is not", granted, layer.Kept())
		}
		g.refund.decides <- struct{}{}
		g.refund.returns <- struct{}{}
		wait.Wait()
	})
}

// A failed refund may have been executed.
func TestFailedRefundForgets(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerHour(1), 1)
	s.ask(1, true, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	layer := over(t, failing{s.below})
	layer.Decide(ctx, []weir.Claim{c}, 1, nil)
	if layer.Kept() != 1 {
		t.Fatal("nothing was learned")
	}
	if err := layer.Refund(ctx, []weir.Claim{c}, 0, nil); err == nil {
		t.Fatal("no error")
	}
	if layer.Kept() != 0 {
		t.Error("a refund failed, and the refusal is still believed")
	}
}

type failing struct{ weir.Store }

func (failing) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return weir.ErrUnavailable
}
