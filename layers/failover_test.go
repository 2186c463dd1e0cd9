package layers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// distant is a store that can be away.
type distant struct {
	weir.Store
	away atomic.Bool
}

func (d *distant) failure() error {
	if d.away.Load() {
		return weir.ErrUnavailable
	}
	return nil
}

func (d *distant) Decide(ctx context.Context, claims []weir.Claim, times int64, all []weir.Decision) (int64, error) {
	if err := d.failure(); err != nil {
		return 0, err
	}
	return d.Store.Decide(ctx, claims, times, all)
}

func (d *distant) DecideBatch(ctx context.Context, requests []weir.Request) {
	for i := range requests {
		r := &requests[i]
		r.Granted, r.Err = d.Decide(ctx, r.Claims, r.Times, r.Decisions)
	}
}

// failover is a stack of three nodes whose limits of these names are decided locally during an outage.
func failover(t *testing.T, local ...string) (*layers.Stack, *distant) {
	t.Helper()
	shared := &distant{Store: memstore.New()}
	stack, err := layers.New(shared, layers.Options{Local: memstore.New(), Nodes: 3, Timeout: time.Minute,
		Without: []string{"breaker"},
		Terms: func(l *weir.Limit) layers.Terms {
			return layers.Terms{Local: strings.Contains(strings.Join(local, " "), l.Name())}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Store.Close() })
	return stack, shared
}

// TestLimitersFallBack: a limiter on a stack decides by the node's share while the shared store is unavailable, if the
// terms of all its limits say so; what it has reserved is settled, and what it holds is released, where it was granted.
func TestLimitersFallBack(t *testing.T) {
	stack, shared := failover(t, "api", "slots")
	ctx := t.Context()
	limiter := func(name string, specs ...weir.Spec) *weir.Limiter {
		l, err := weir.New(stack.Store, name, specs...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	api, other := limiter("api", weir.SlidingLog{Limit: 9, Window: time.Hour}), limiter("other", weir.PerDay(9))
	slots := limiter("slots", weir.Concurrency{Limit: 3, TTL: time.Hour})
	shared.away.Store(true)
	if _, err := other.Allow(ctx, "k"); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("a limit that the local store does not decide: %v", err)
	}
	passed := 0
	for range 9 {
		a, err := api.Allow(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if a.Allowed {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("a third of the nodes passes %d of 9, want 3", passed)
	}
	reserved, err := api.Reserve(ctx, "reserved", 3)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := slots.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slots.Acquire(ctx, "k"); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("the share of a slot is granted twice: %v", err)
	}
	shared.away.Store(false)
	if err := reserved.Settle(ctx, 1); err != nil {
		t.Error(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	if a, err := api.Peek(ctx, "reserved"); err != nil || a.Remaining != 9 {
		t.Errorf("the shared store has %d of 9 left: %v", a.Remaining, err)
	}
	shared.away.Store(true)
	if a, err := api.Peek(ctx, "reserved"); err != nil || a.Remaining != 2 {
		t.Errorf("the local store has %d of its 3 left, want 2: %v", a.Remaining, err)
	}
	if _, err := slots.Acquire(ctx, "k"); err != nil {
		t.Errorf("the slot was not released: %v", err)
	}
}

// TestMiddlewareAndGatesFallBack: those on a stack need no local store of their own.
func TestMiddlewareAndGatesFallBack(t *testing.T) {
	stack, shared := failover(t, "api")
	shared.away.Store(true)
	api, err := weir.New(stack.Store, "api", weir.SlidingLog{Limit: 3, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := httplimit.New(api, httplimit.PeerAddress, &httplimit.Options{StoreErrors: httplimit.FailClosed})
	if err != nil {
		t.Fatal(err)
	}
	handler := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != want {
			t.Errorf("it answers %d, want %d", w.Code, want)
		}
	}
	set, err := rules.Load("rules.yaml", []byte("rules: [{name: rule, limit: sliding_log 3/1h}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []weir.Store{stack.Store, memstore.New()} {
		g, err := gate.New(store, set)
		if err != nil {
			t.Fatal(err)
		}
		var v gate.Verdict
		if err := g.Decide(t.Context(), new(rules.Request), gate.Once, &v); err != nil || v.Outcome != gate.Passed {
			t.Errorf("%v, %v", v.Outcome, err)
		}
	}
}
