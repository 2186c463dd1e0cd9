package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// Reset on a successful login is what Reset is for; a store that was full once must not pay for it for ever.
func TestResetAfterFullStoreKeepsMemoryBounded(t *testing.T) {
	const ceiling, cycles = 1000, 1_000_000
	store, _ := driven(t, ceiling)
	l := limiter(t, store, weir.PerHour(5))
	names := make([]string, ceiling)
	for i := range names {
		names[i] = name(i)
		allow(t, l, names[i])
	}
	allow(t, l, "newcomer") // finds no room: from here on the store keeps expiries
	before := heap()
	for i := range cycles {
		if err := l.Reset(t.Context(), names[i%ceiling]); err != nil {
			t.Fatal(err)
		}
		allow(t, l, names[i%ceiling])
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d cycles of Reset and Allow on %d keys grew the heap by %d bytes", cycles, ceiling, grown)
	}
	if expiries := memstore.Expiries(store); expiries > 4*ceiling {
		t.Errorf("%d expiries are kept for %d keys", expiries, store.Stats().Keys)
	}
}

// After a Reset a store that was full has room for new keys of their own.
func TestResetMakesRoomForNewKeys(t *testing.T) {
	store, _ := driven(t, 1000)
	l := limiter(t, store, weir.PerHour(5))
	for i := range 1000 {
		allow(t, l, name(i))
	}
	for i := range 5 {
		allow(t, l, name(1000+i)) // on the overflow key: all expiries are known then
	}
	for i := range 100 {
		if err := l.Reset(t.Context(), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if answer, err := l.Allow(t.Context(), name(2000+i)); err != nil || answer.Remaining != 4 {
			t.Fatalf("newcomer %d: %+v %v", i, answer, err)
		}
	}
}

// A newcomer of a full store looks at a few keys, however many refunds came before it.
func TestNewcomersBesideRefundsExamineFewKeys(t *testing.T) {
	for _, keys := range []int{1000, 32_000} {
		store, _ := driven(t, keys)
		l := limiter(t, store, weir.PerHour(100))
		for i := range keys {
			allow(t, l, name(i))
		}
		allow(t, l, "first newcomer")
		before := memstore.Examined(store)
		const newcomers, refunds = 500, 4
		for i := range newcomers {
			for j := range refunds {
				r, err := l.Reserve(t.Context(), name((i*refunds+j)*7%keys), 2)
				if err == nil {
					err = r.Settle(t.Context(), 1)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			allow(t, l, fmt.Sprint("newcomer-", i))
		}
		if each := float64(memstore.Examined(store)-before) / newcomers; each > 6*refunds {
			t.Errorf("%d keys: a newcomer beside %d refunds examines %.0f of them", keys, refunds, each)
		}
	}
}

// There is no lease that a later call does not find: a newcomer to a full store gets none.
func TestFullStoreRefusesNewLeases(t *testing.T) {
	store, now := driven(t, 1)
	window, err := weir.New(store, "window", weir.FixedWindow{Limit: 5, Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	jobs := limiter(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour})
	allow(t, window, "other")
	if _, err := jobs.Acquire(t.Context(), "b"); !errors.Is(err, memstore.ErrFull) || !errors.Is(err, weir.ErrUnavailable) {
		t.Fatalf("Acquire in a full store: error %v, want ErrFull", err)
	}
	both, err := weir.New(store, "both", weir.PerHour(1), weir.Concurrency{Limit: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // nothing is charged to the other limit either
		if _, err := both.Acquire(t.Context(), "b"); !errors.Is(err, memstore.ErrFull) {
			t.Fatalf("Acquire of two limits in a full store: error %v, want ErrFull", err)
		}
	}
	now.Add(2_000_000) // the window is over: there is room
	first, err := jobs.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Acquire(t.Context(), "b"); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a second holder of one: error %v", err)
	}
	if err := errors.Join(first.Renew(t.Context()), first.Release(t.Context())); err != nil {
		t.Error(err)
	}
}

// Units reserved on the overflow key are given back there, though their key has an entry of its own by then.
func TestReservationOfFullStoreIsRefundedWhereItWasTaken(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerDay(4), weir.SlidingLog{Limit: 4, Window: 24 * time.Hour}} {
		store, now := driven(t, 1)
		window, err := weir.New(store, "window", weir.FixedWindow{Limit: 5, Window: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		tokens := limiter(t, store, spec)
		allow(t, window, "other")
		shared, err := tokens.Reserve(t.Context(), "a", 3)
		if err != nil {
			t.Fatal(err)
		}
		now.Add(2_000_000)
		own, err := tokens.Reserve(t.Context(), "a", 3) // in the place that the window left
		if err != nil {
			t.Fatal(err)
		}
		if err := shared.Settle(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if answer, err := tokens.AllowN(t.Context(), "a", 2); err != nil || answer.Allowed {
			t.Errorf("%v: the key's own units rose to %d by a refund of the overflow key's; error %v", spec, answer.Remaining, err)
		}
		if answer, err := tokens.AllowN(t.Context(), "newcomer", 3); err != nil || !answer.Allowed {
			t.Errorf("%v: the overflow key has %d units after 2 of 3 came back; error %v", spec, answer.Remaining, err)
		}
		if err := own.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if answer, err := tokens.AllowN(t.Context(), "a", 4); err != nil || !answer.Allowed {
			t.Errorf("%v: the key's own reservation was not given back: %d remain; error %v", spec, answer.Remaining, err)
		}
	}
}

// A peek tells of a new key what a request would get: in a store that is full of keys in use, what its limit's new keys
// share, also just after the table of a shard has grown.
func TestPeeksKnowThatTheStoreIsFull(t *testing.T) {
	store := memstore.New(memstore.WithMaxKeys(1))
	filler, limit := weir.MustLimit("filler", weir.PerDay(1)), weir.MustLimit("limit", weir.PerDay(5))
	ask := func(key string, l *weir.Limit, times int64) weir.Decision {
		d := make([]weir.Decision, 1)
		if _, err := store.Decide(t.Context(), []weir.Claim{{Key: key, Limit: l, Cost: 1}}, times, d); err != nil {
			t.Fatal(err)
		}
		return d[0]
	}
	ask("filler", filler, 1)
	ask("first", limit, 1)
	if d := ask("second", limit, 0); d.Remaining != 4 {
		t.Errorf("a peek tells of %d units, want the 4 that new keys share", d.Remaining)
	}
}

// On the overflow key, the first id would stand for all.
func TestFullStoreKeepsNoID(t *testing.T) {
	for name, options := range map[string][]memstore.Option{
		"overflow": {memstore.WithMaxKeys(1)}, "apart": {memstore.WithMaxKeys(1), memstore.WithoutOverflow()},
	} {
		l := limiter(t, memstore.New(options...), weir.PerDay(100))
		for i := range 4 {
			answer, err := l.AllowOnce(t.Context(), "client", 1, []string{"one", "other"}[i%2], time.Minute)
			if err != nil || !answer.Allowed || answer.Repeated || answer.Remaining != int64(99-i) {
				t.Errorf("%s, call %d: %+v, %v; want it charged", name, i, answer, err)
			}
		}
	}
}
