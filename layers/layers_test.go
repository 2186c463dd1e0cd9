package layers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// aDay leaves much to memory, and is less than what a clock that steps back is given.
const aDay = 24 * time.Hour

// steady makes a monotonic clock from a driven one: after a step back, all that was remembered has expired.
func steady(clock func() weir.Instant) func() time.Duration {
	var mu sync.Mutex
	var last weir.Instant
	var lost time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := clock()
		if now < last {
			lost += time.Duration(last-now)*time.Microsecond + 2*aDay
		}
		last = now
		return time.Duration(now)*time.Microsecond + lost
	}
}

// embedded is a store in this process, with room for what a ceiling counts.
func embedded(clock func() weir.Instant) weir.Store {
	options := []memstore.Option{memstore.WithoutOverflow()}
	if clock != nil {
		options = append(options, memstore.WithClock(clock))
	}
	return memstore.New(options...)
}

// stacked has all layers, with the terms of rules that ask for nothing special.
func stacked(t testing.TB, clock func() weir.Instant, shared weir.Store, options ...coalesce.Option) storetest.Handle {
	t.Helper()
	local := embedded(nil)
	t.Cleanup(func() { local.Close() })
	o := layers.Options{
		Local: local, Nodes: 3, Bounds: embedded(nil),
		Terms:    func(*weir.Limit) layers.Terms { return layers.Terms{Local: true} },
		Breaker:  []breaker.Option{breaker.WithSlow(time.Minute)}, // a busy machine stands still for seconds
		Coalesce: options,
	}
	if clock != nil {
		o.Recall = []recall.Option{recall.WithClock(steady(clock)), recall.WithLongest(aDay)}
	}
	stack, err := layers.New(shared, o)
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Handle{Store: stack.Store, Recalls: true}
}

func overMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	return stacked(t, clock, embedded(clock))
}

func overRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		shared, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
			redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock), redisstore.WithWarn(nil))
		if err != nil {
			t.Fatal(err)
		}
		return stacked(t, clock, shared, coalesce.WithPlaces(redisstore.Places, redisstore.Place))
	}
}

// The whole suite, and all traces, through all layers as weir serve stacks them: each number is compared.
func TestStore(t *testing.T)          { storetest.Run(t, overMemory) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, overMemory) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, overRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, overRedis(t)) }

func TestWithout(t *testing.T) {
	s, err := layers.New(memstore.New(), layers.Options{Local: memstore.New(), Without: layers.Names})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Store.Close()
	if s.Breaker != nil || s.Coalesce != nil || s.Recall != nil || s.Ceiling != nil || s.Lease == nil ||
		s.Local == nil {
		t.Errorf("%+v, want none but lease and the local store", s)
	}
	for _, o := range []layers.Options{{Local: memstore.New(), Without: []string{"recal"}}, {},
		{Local: memstore.New()}} {
		var input *weir.InputError
		if _, err := layers.New(memstore.New(), o); !errors.As(err, &input) {
			t.Errorf("%+v: %v, want an input error", o, err)
		}
	}
}

// news count calls of Close.
type news struct{ closed int }

func (*news) Tell(context.Context, []byte) error { return nil }

func (*news) Listen(ctx context.Context, _ func([]byte), _ func()) error {
	<-ctx.Done()
	return nil
}

func (n *news) Close() error {
	n.closed++
	return nil
}

func TestCloseClosesAllButTheLocalStore(t *testing.T) {
	shared, local, bounds, carrier := memstore.New(), memstore.New(), embedded(nil), new(news)
	s, err := layers.New(shared, layers.Options{Local: local, Bounds: bounds, News: carrier,
		Breaker: []breaker.Option{breaker.WithSlow(time.Second)}})
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
		t.Errorf("the News were closed %d times", carrier.closed)
	}
}
