package layers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// embedded is a store in this process, with room for what a ceiling counts.
func embedded(clock func() weir.Instant) weir.Store {
	options := []memstore.Option{memstore.WithoutOverflow()}
	if clock != nil {
		options = append(options, memstore.WithClock(clock))
	}
	return memstore.New(options...)
}

// plain are the terms of rules that ask for nothing special. With bounded a call passes every layer: a ceiling of a
// number of times the limit, and leases of a share that is too small for a unit, because what a lease says of its
// instant is not what the model says.
var plain = layers.Terms{Local: true}

func bounded(ceiling float64) layers.Terms {
	return layers.Terms{Local: true, Ceiling: ceiling, LeaseShare: 1e-16}
}

// stacked has all layers, as weir serve stacks them.
func stacked(t testing.TB, clock func() weir.Instant, terms layers.Terms, cluster bool,
	open func(clock func() weir.Instant) weir.Store) storetest.Handle {
	t.Helper()
	local := embedded(nil)
	t.Cleanup(func() { local.Close() })
	theirs, own := clocks(clock)
	o := layers.Options{
		Local: local, Nodes: 3, Bounds: embedded(own),
		Terms:   func(*weir.Limit) layers.Terms { return terms },
		Timeout: 2 * time.Minute, // a busy machine stands still for seconds
		Cluster: cluster,
	}
	if clock != nil {
		o.Drive(layers.Steady(theirs), layers.Longest)
	}
	stack, err := layers.New(open(theirs), o)
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Handle{Store: stack.Store, Recalls: true}
}

// clocks are of the shared store and of this process: where the suite's clock steps back, the process' goes on. All reads
// of the time come through here, so that each step is noticed. Without a clock of the suite both are real.
func clocks(suite func() weir.Instant) (shared, process func() weir.Instant) {
	if suite == nil {
		return nil, nil
	}
	var mu sync.Mutex
	last := suite()
	steady := last
	look := func() (weir.Instant, weir.Instant) {
		mu.Lock()
		defer mu.Unlock()
		now := suite()
		steady += max(0, now-last)
		last = now
		return now, steady
	}
	shared = func() weir.Instant { now, _ := look(); return now }
	process = func() weir.Instant { _, now := look(); return now }
	return shared, process
}

func overMemory(terms layers.Terms) storetest.Subject {
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		return stacked(t, clock, terms, false, embedded)
	}
}

func overRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		return stacked(t, clock, plain, true, func(clock func() weir.Instant) weir.Store {
			shared, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
				redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock), redisstore.WithWarn(nil))
			if err != nil {
				t.Fatal(err)
			}
			return shared
		})
	}
}

// The whole suite, and all traces, through the stacks that rules ask for: each number is compared. The ceiling of
// TestStoreBounded leaves room, because the suite moves its clock by hundreds of milliseconds while calls are under
// way; the one of TestVectorsBounded leaves none.
func TestStore(t *testing.T)          { storetest.Run(t, overMemory(plain)) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, overMemory(plain)) }
func TestStoreBounded(t *testing.T)   { storetest.Run(t, overMemory(bounded(3))) }
func TestVectorsBounded(t *testing.T) { storetest.Vectors(t, overMemory(bounded(1))) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, overRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, overRedis(t)) }

// calls is a store that counts decisions.
type calls struct {
	weir.Store
	n int
}

func (c *calls) DecideBatch(ctx context.Context, requests []weir.Request) {
	c.n += len(requests)
	c.Store.(weir.Batcher).DecideBatch(ctx, requests)
}

func (c *calls) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	c.n++
	return c.Store.Decide(ctx, claims, times, d)
}

func TestWithout(t *testing.T) {
	shared, local := &calls{Store: memstore.New()}, memstore.New()
	s, err := layers.New(shared, layers.Options{Local: local, Without: layers.Names,
		Terms: func(*weir.Limit) layers.Terms { return layers.Terms{Local: true} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Store.Close()
	claims := []weir.Claim{{Key: "key", Limit: weir.MustLimit("limit", weir.PerHour(1)), Cost: 1}}
	for range 3 {
		s.Store.Decide(t.Context(), claims, 1, make([]weir.Decision, 1))
	}
	if all := s.Stats(); all != (layers.Stats{}) || shared.n != 3 || local.Stats().Keys != 0 {
		t.Errorf("%+v, %d calls and %d local keys without layers", all, shared.n, local.Stats().Keys)
	}
}

// A Limiter asks by key. The local store counts the grants of the shared store too.
func TestGrantsByKeyAreMirrored(t *testing.T) {
	local := memstore.New()
	s, err := layers.New(memstore.New(), layers.Options{Local: local, Without: []string{"breaker", "coalesce", "recall"},
		Terms: func(*weir.Limit) layers.Terms { return layers.Terms{Local: true} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Store.Close()
	limiter, err := weir.New(s.Store, "limit", weir.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := limiter.Allow(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
	claims, d := []weir.Claim{{Key: "key", Limit: limiter.Limits()[0], Cost: 1}}, make([]weir.Decision, 1)
	if _, err := local.Decide(t.Context(), claims, 0, d); err != nil || d[0].Remaining != 7 {
		t.Errorf("the local store has %d units left, want 7: %v", d[0].Remaining, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	local, batcher := memstore.New(), memstore.New()
	for field, c := range map[string]struct {
		shared  weir.Store
		options layers.Options
	}{
		"without":      {batcher, layers.Options{Local: local, Without: []string{"recal"}}},
		"local store":  {batcher, layers.Options{Timeout: time.Second}},
		"nodes":        {batcher, layers.Options{Timeout: time.Second, Local: local, Nodes: 1_000_001}},
		"timeout":      {batcher, layers.Options{Local: local}}, // memstore has none of its own
		"shared store": {struct{ weir.Store }{batcher}, layers.Options{Local: local, Timeout: time.Second}},
	} {
		var input *weir.InputError
		if _, err := layers.New(c.shared, c.options); !errors.As(err, &input) || input.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// updates count calls of Close.
type updates struct{ closed int }

func (*updates) Publish(context.Context, []byte) error { return nil }

func (*updates) Subscribe(ctx context.Context, _ func([]byte), _ func()) error {
	<-ctx.Done()
	return nil
}

func (u *updates) Close() error {
	u.closed++
	return nil
}

func TestCloseClosesAllButTheLocalStore(t *testing.T) {
	shared, local, bounds, carrier := memstore.New(), memstore.New(), embedded(nil), new(updates)
	s, err := layers.New(shared, layers.Options{Local: local, Bounds: bounds, Updates: carrier,
		Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Close(); err != nil {
		t.Fatal(err)
	}
	claims := []weir.Claim{{Key: "key", Limit: weir.MustLimit("limit", weir.PerSecond(1)), Cost: 1}}
	for i, store := range []weir.Store{shared, bounds, local} {
		if _, err := store.Decide(t.Context(), claims, 1, nil); errors.Is(err, weir.ErrClosed) != (i < 2) {
			t.Errorf("store %d: %v", i, err)
		}
	}
	if carrier.closed != 1 {
		t.Errorf("the Updates were closed %d times", carrier.closed)
	}
}
