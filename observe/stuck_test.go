package observe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
)

// A hanging store decides a key when it is released.
type hanging struct {
	weir.Store
	key     string
	entered chan struct{} // closed by the call that hangs
	release chan struct{}
}

func (h *hanging) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (
	int64, error) {
	if claims[0].Key == h.key {
		close(h.entered)
		<-h.release
	}
	return h.Store.Decide(ctx, claims, times, decisions)
}

const stuck = `{"status":"stuck: a call of the store in memory does not return"}`

// TestHealthNoticesACallThatHangs in an embedded store, while other keys are decided as ever.
func TestHealthNoticesACallThatHangs(t *testing.T) {
	m := observe.New("v1")
	m.Rules(gatetest.Rules(t, someRules), time.Now())
	store := &hanging{memstore.New(), "hangs", make(chan struct{}), make(chan struct{})}
	watched := m.Store(m.Watch(store))
	ask := func(key string) {
		claims := []weir.Claim{{Key: key, Limit: weir.MustLimit("l", weir.PerSecond(1)), Cost: 1}}
		watched.Decide(context.Background(), claims, 1, make([]weir.Decision, 1))
	}
	second := func() {
		ask("other")
		m.LookForStuck()
	}
	second()
	ended := make(chan struct{})
	go func() {
		ask("hangs")
		close(ended)
	}()
	<-store.entered
	for i := 0; !m.Stuck(); i++ {
		if i > 10 {
			t.Fatal("the call that hangs was not found")
		}
		get(t, m.Live(), 200, `{"status":"alive"}`)
		second()
	}
	get(t, m.Live(), 503, stuck)
	get(t, m.Ready(), 503, stuck)
	close(store.release)
	<-ended
	second()
	get(t, m.Live(), 200, `{"status":"alive"}`)
	get(t, m.Ready(), 200, `{"status":"ready"}`)
}

// TestReadinessMakesADecision: at most one a second and one at a time, in bounded time.
func TestReadinessMakesADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observe.New("v1")
		m.Rules(gatetest.Rules(t, someRules), time.Now())
		var calls atomic.Int64
		var failure error
		hang := make(chan struct{})
		close(hang)
		m.Probe(func() error {
			calls.Add(1)
			<-hang
			return failure
		}, true)
		for range 10 {
			get(t, m.Ready(), 200, `{"status":"ready"}`)
		}
		if calls.Load() != 1 {
			t.Errorf("%d decisions for 10 checks at a time", calls.Load())
		}
		time.Sleep(time.Second)
		failure = weir.ErrClosed
		get(t, m.Ready(), 503, `{"status":"failing: the store in memory does not decide"}`)
		time.Sleep(time.Second)
		failure, hang = nil, make(chan struct{})
		for range 5 {
			began := time.Now()
			get(t, m.Ready(), 503, `{"status":"stuck: the store does not return a decision"}`)
			if m.IsReady() || time.Since(began) > 2*time.Second {
				t.Error("a health check of gRPC says ready, or waits for long")
			}
		}
		if calls.Load() != 3 {
			t.Errorf("%d decisions, want 3: one that hangs is not repeated", calls.Load())
		}
		close(hang)
		synctest.Wait()
		time.Sleep(time.Second)
		get(t, m.Ready(), 200, `{"status":"ready"}`)
	})
}

// TestAnOutageIsReady: on_store_error covers it. A call that ignores its timeout is no outage.
func TestAnOutageIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observe.New("v1")
		m.Rules(gatetest.Rules(t, someRules), time.Now())
		var slow atomic.Int64
		hang := make(chan struct{})
		m.Probe(func() error {
			select {
			case <-time.After(time.Duration(slow.Load())):
				return errors.Join(weir.ErrUnavailable)
			case <-hang:
				return nil
			}
		}, false)
		for range 3 {
			get(t, m.Ready(), 200, `{"status":"ready"}`)
			time.Sleep(2 * time.Second)
			slow.Store(int64(2 * time.Second))
		}
		slow.Store(int64(time.Hour))
		get(t, m.Ready(), 200, `{"status":"ready"}`)
		time.Sleep(5 * time.Second)
		get(t, m.Ready(), 503, `{"status":"stuck: the store does not return a decision"}`)
		close(hang)
	})
}
