package recall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/memstore"
)

// A scene is a layer over a store whose calls are counted and may take time. The test drives both clocks; the
// store's is years off.
type scene struct {
	t     *testing.T
	layer *recall.Store
	below weir.Store
	clock time.Duration // monotonic, of the node
	redis weir.Instant
	calls int
	there time.Duration // a call takes so long until the store decides,
	back  time.Duration // and so long until it returns
	fails error
}

func newScene(t *testing.T, opts ...recall.Option) *scene {
	s := &scene{t: t, redis: 4_000_000_000_000_000}
	s.below = memstore.New(memstore.WithClock(func() weir.Instant { return s.redis }))
	s.layer = over(t, s, append([]recall.Option{recall.WithClock(func() time.Duration { return s.clock })}, opts...)...)
	return s
}

func (s *scene) pass(d time.Duration) {
	s.clock += d
	s.redis += weir.Instant(d.Microseconds())
}

func (s *scene) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	s.calls++
	s.pass(s.there)
	defer func() { s.pass(s.back) }()
	if s.fails != nil {
		return 0, s.fails
	}
	return s.below.Decide(ctx, claims, times, d)
}

func (s *scene) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	return s.below.Charge(ctx, claims, d)
}

func (s *scene) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	return s.below.Refund(ctx, claims, at, d)
}

func (s *scene) Reset(ctx context.Context, claims []weir.Claim) error {
	return s.below.Reset(ctx, claims)
}

func (s *scene) Close() error { return s.below.Close() }

// ask wants an answer, and to know whether the store was asked.
func (s *scene) ask(wantGranted int64, wantAsked bool, claims ...weir.Claim) []weir.Decision {
	s.t.Helper()
	d, before := make([]weir.Decision, len(claims)), s.calls
	granted, err := s.layer.Decide(context.Background(), claims, 1, d)
	if err != nil || granted != wantGranted || s.calls > before != wantAsked {
		s.t.Fatalf("%d of %q under %s: granted %d (error %v), the store was asked: %v; want %d, %v",
			claims[0].Cost, claims[0].Key, claims[0].Limit, granted, err, s.calls > before, wantGranted, wantAsked)
	}
	return d
}

func claim(spec weir.Spec, cost int64) weir.Claim {
	return weir.Claim{Key: "k", Limit: weir.MustLimit("limit", spec), Cost: cost}
}

func TestFloodCostsOneCall(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerMinute(1), 1)
	s.ask(1, true, c) // whose answer says that the next is refused
	for range 1000 {
		s.ask(0, false, c)
	}
	if stats := s.layer.Stats(); stats.Recalled != 1000 || stats.Learned != 1 {
		t.Errorf("%+v, want 1000 recalled of 1 learned", stats)
	}
}

// A cache of refusals that outlives the window was seen elsewhere, and one that lasts as long
// by the caller's wall clock.
func TestRefusalEndsWithItsRetryAfter(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerSecond(1), weir.FixedWindow{Limit: 1, Window: time.Second},
		weir.SlidingLog{Limit: 1, Window: time.Second}, weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Second,
			Mode: weir.Step}} {
		s := newScene(t)
		c := claim(spec, 1)
		s.ask(1, true, c)
		s.pass(time.Second - 2*time.Millisecond)
		s.ask(0, false, c)
		s.pass(2*time.Millisecond - time.Microsecond)
		s.ask(0, true, c) // in the last 1/512 a clock that is slewed might be wrong
		s.pass(time.Microsecond)
		s.ask(1, true, c)
	}
}

func TestLongestBoundsStaleness(t *testing.T) {
	for longest, opts := range map[time.Duration][]recall.Option{
		10 * time.Second: nil,
		time.Second:      {recall.WithLongest(time.Second)},
	} {
		s := newScene(t, opts...)
		c := claim(weir.PerHour(1), 1)
		s.ask(1, true, c)
		s.pass(longest - 1)
		s.ask(0, false, c)
		if d := s.ask(0, false, claim(weir.PerHour(1), 7)); d[0].RetryAfter != weir.Never {
			t.Errorf("a cost that can never fit: %+v", d[0])
		}
		s.pass(1)
		s.ask(0, true, c)
	}
}

// The store decides between the call and its return: a refusal expires relative to the call, and At is relative
// to the return.
func TestSlowCalls(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerSecond(1), 1)
	s.ask(1, true, c)
	s.pass(100 * time.Millisecond)
	s.layer.Reset(t.Context(), []weir.Claim{{Key: "other", Limit: c.Limit}})
	s.there, s.back = 300*time.Millisecond, 200*time.Millisecond
	s.layer.Refund(t.Context(), []weir.Claim{{Key: "k", Limit: c.Limit}}, 0, nil) // of nothing: it forgets
	// decided 400 ms after the grant: 600 ms are left, seen from 300 ms ago
	decided := s.ask(0, true, c)[0]
	due := decided.At + weir.Instant(decided.RetryAfter.Microseconds())
	s.pass(50 * time.Millisecond)
	got := s.ask(0, false, c)[0]
	want := weir.Decision{RetryAfter: 550 * time.Millisecond, ResetAfter: 550 * time.Millisecond,
		At: decided.At + 50_000}
	if got != want {
		t.Errorf("told from memory\n  %+v, want\n  %+v", got, want)
	}
	if got.At+weir.Instant(got.RetryAfter.Microseconds()) != due || got.At > s.redis {
		t.Errorf("told %+v at %d; the store grants at %d", got, s.redis, due)
	}
	s.pass(48 * time.Millisecond) // 598 ms after the call was sent
	s.ask(0, false, c)
	s.there, s.back = 0, 0
	s.pass(2 * time.Millisecond)
	s.ask(0, true, c)
}

// TestLargeCosts decides on costs over one when no unit is left. Answers from memory equal the store's; the
// others are the store's.
func TestLargeCosts(t *testing.T) {
	for _, test := range []struct {
		name  string
		spec  weir.Spec
		asked bool // about costs over one
	}{
		{"bucket", weir.GCRA(10, 10, time.Second), false},
		{"bucket with an overdraft", weir.Borrowing(10, 10, time.Second, 5), false},
		{"bucket with a remainder", weir.GCRA(10, 3, time.Second), true},
		{"step bucket", weir.TokenBucket{Capacity: 10, Refill: 3, Period: time.Second, Mode: weir.Step}, true},
		{"window", weir.FixedWindow{Limit: 10, Window: time.Second}, false},
		{"calendar", weir.Calendar{Limit: 10, Unit: weir.Day}, false},
		{"log", weir.SlidingLog{Limit: 10, Window: time.Second}, true},
		{"counter", weir.SlidingCounter{Limit: 10, Window: time.Second, Slices: 10}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, first := range []int64{1, 4} { // the cost that is refused first
				s := newScene(t)
				limit := claim(test.spec, 1).Limit
				s.ask(1, true, claim(test.spec, limit.Most()))
				s.ask(0, test.asked, claim(test.spec, first))
				for _, cost := range []int64{1, 2, 4, limit.Most(), limit.Most() + 1} {
					s.pass(time.Millisecond)
					c := claim(test.spec, cost)
					want := make([]weir.Decision, 1)
					if _, err := s.below.Decide(t.Context(), []weir.Claim{c}, 0, want); err != nil {
						t.Fatal(err)
					}
					known := cost == 1 || !test.asked || cost > limit.Most()
					got := make([]weir.Decision, 1)
					before := s.calls
					if granted, err := s.layer.Decide(t.Context(), []weir.Claim{c}, 1, got); granted != 0 ||
						err != nil || got[0] != want[0] {
						t.Errorf("%d after %d was refused: granted %d (%v)\n  %+v, want\n  %+v", cost, first, granted,
							err, got[0], want[0])
					}
					if asked := s.calls > before; first == 1 && asked == known {
						t.Errorf("%d after %d was refused: the store was asked: %v", cost, first, asked)
					}
				}
			}
		})
	}
}

// TestLargeCostWithUnitsLeft: a smaller request takes the remaining units, and a larger one then has a longer wait.
func TestLargeCostWithUnitsLeft(t *testing.T) {
	for _, spec := range []weir.Spec{weir.GCRA(33, 10, 10*time.Second),
		weir.FixedWindow{Limit: 33, Window: time.Minute}, weir.SlidingLog{Limit: 33, Window: time.Minute}} {
		s := newScene(t)
		s.ask(1, true, claim(spec, 2))
		s.ask(0, true, claim(spec, 32))
		s.ask(1, true, claim(spec, 1))
		s.ask(1, true, claim(spec, 2))
		s.ask(0, true, claim(spec, 34))
		if d := s.ask(0, true, claim(spec, 33)); d[0].Remaining != 28 {
			t.Errorf("%s: %+v, want 28 left", spec, d[0])
		}
	}
}

func TestCostZeroCoversOnlyItself(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerSecond(1), 0)
	if err := s.layer.Charge(t.Context(), []weir.Claim{claim(weir.PerSecond(1), 5)}, nil); err != nil {
		t.Fatal(err)
	}
	s.ask(0, true, c)
	s.ask(0, false, c)
	s.ask(0, true, claim(weir.PerSecond(1), 1))
}

func TestTimes(t *testing.T) {
	s := newScene(t)
	c := []weir.Claim{claim(weir.PerMinute(3), 1)}
	if granted, err := s.layer.Decide(t.Context(), c, 5, nil); granted != 3 || err != nil {
		t.Fatalf("granted %d (%v), want 3", granted, err)
	}
	if granted, err := s.layer.Decide(t.Context(), c, 5, nil); granted != 0 || err != nil || s.calls != 1 {
		t.Errorf("granted %d (%v) by call %d: of five more none fits, which was known", granted, err, s.calls)
	}
	if _, err := s.layer.Decide(t.Context(), c, 0, nil); err != nil || s.calls != 2 {
		t.Errorf("a peek made %d calls in all (%v), want 2: it asks", s.calls, err)
	}
}

func TestOtherNumbersAreNotRemembered(t *testing.T) {
	s := newScene(t)
	s.ask(1, true, claim(weir.PerMinute(1), 1))
	s.ask(0, false, claim(weir.PerMinute(1), 1)) // the same rule, read again
	s.ask(1, true, claim(weir.GCRA(2, 1, time.Minute), 1))
	s.ask(0, true, claim(weir.PerMinute(1), 1)) // what the others were granted may have changed it
	renamed := claim(weir.PerMinute(1), 1)
	renamed.Limit = weir.MustLimit("renamed", weir.PerMinute(1))
	s.ask(1, true, renamed)
	s.ask(1, true, claim(weir.FixedWindow{Limit: 1, Window: time.Minute}, 1))
}

func TestNotRemembered(t *testing.T) {
	held := claim(weir.Concurrency{Limit: 1, TTL: time.Hour}, 1)
	long := claim(weir.PerHour(1), 1)
	long.Key = strings.Repeat("k", recall.MaxKey+1)
	kept := long
	kept.Key = long.Key[1:]
	s := newScene(t)
	for i, c := range []weir.Claim{held, long, kept} {
		if i == 0 {
			c.Lease = "one"
		}
		s.ask(1, true, c)
		if i == 0 {
			c.Lease = "two"
		}
		s.ask(0, i < 2, c)
		s.ask(0, i < 2, c)
	}
}

// Callers build keys in buffers that they reuse.
func TestKeysAreCopied(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerHour(1), 1)
	buffer := []byte("key")
	c.Key = unsafe.String(&buffer[0], len(buffer))
	s.ask(1, true, c)
	buffer[0] = '#'
	c.Key = "key"
	s.ask(0, false, c)
}

func TestErrorsAreNotRemembered(t *testing.T) {
	s := newScene(t)
	c := claim(weir.PerHour(1), 1)
	s.fails = weir.ErrUnavailable
	if _, err := s.layer.Decide(t.Context(), []weir.Claim{c}, 1, nil); !errors.Is(err, weir.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	s.fails = nil
	s.ask(1, true, c)
	s.fails = weir.ErrUnavailable
	s.ask(0, false, c) // known without the store
	s.layer.Close()
	if _, err := s.layer.Decide(t.Context(), []weir.Claim{c}, 1, nil); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("a refusal was recalled by a store that is closed: %v", err)
	}
	if _, ok := byKey(s.layer, c.Key, c.Limit, 1); ok {
		t.Error("and by its shortcut")
	}
}

// byKey is the decision of a refusal by DecideKey.
func byKey(s *recall.Store, key string, limit *weir.Limit, cost int64) (d weir.Decision, ok bool) {
	_, granted, remaining, retry, reset, delay, at, ok := s.DecideKey(key, []*weir.Limit{limit}, cost)
	d = weir.Decision{Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Delay: delay, At: at}
	return d, ok && !granted
}

func TestShortcutEqualsDecide(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerSecond(1), weir.SlidingLog{Limit: 1, Window: time.Second}} {
		s := newScene(t)
		c := claim(spec, 1)
		if _, ok := byKey(s.layer, c.Key, c.Limit, 1); ok {
			t.Fatalf("%s: the shortcut answered what was never asked", spec)
		}
		s.ask(1, true, c)
		s.pass(10 * time.Millisecond)
		got, ok := byKey(s.layer, c.Key, c.Limit, 1)
		if want := s.ask(0, false, c)[0]; !ok || got != want {
			t.Errorf("%s: DecideKey (%v) %+v, Decide %+v", spec, ok, got, want)
		}
	}
	s := newScene(t)
	c := claim(weir.LeakyQueue(1, time.Second, 1), 2)
	s.ask(1, true, c)
	got, ok := byKey(s.layer, c.Key, c.Limit, 1)
	c.Cost = 1
	if want := s.ask(0, false, c)[0]; !ok || got != want || got.Delay == 0 {
		t.Errorf("with a delay: DecideKey (%v) %+v, Decide %+v", ok, got, want)
	}
	for _, bad := range []weir.Claim{{Key: "", Limit: c.Limit, Cost: 1}, {Key: "k", Limit: c.Limit, Cost: -1},
		{Key: "k", Limit: c.Limit, Cost: weir.MaxUnits + 1}} {
		if _, ok := byKey(s.layer, bad.Key, bad.Limit, bad.Cost); ok {
			t.Errorf("the shortcut answered key %q, cost %d", bad.Key, bad.Cost)
		}
	}
}

func TestRoom(t *testing.T) {
	for asked, room := range map[int]int{1: 8, 8: 8, 9: 16, 100_000: 131_072} {
		if got := over(t, memstore.New(), recall.WithRefusals(asked)).Room(); got != room {
			t.Errorf("WithRefusals(%d) has room for %d, want %d", asked, got, room)
		}
	}
}

func ExampleNew() {
	redis := memstore.New() // or redisstore.Open
	store := recall.New(redis, recall.Config{Longest: 5 * time.Second})
	defer store.Close()
	limiter, err := weir.New(store, "login", weir.PerMinute(5))
	if err != nil {
		panic(err)
	}
	for range 1000 {
		if _, err := limiter.Allow(context.Background(), "ip:203.0.113.7"); err != nil {
			panic(err)
		}
	}
	fmt.Println(store.Stats().Recalled, "of 1000 were refused without asking")
	// Output: 995 of 1000 were refused without asking
}
