package layers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// A refusalOption changes a configuration.
type refusalOption func(*refusalConfig)

// newRefusalCacheWith is New with options.
func newRefusalCacheWith(next weir.Store, options ...refusalOption) *refusalCache {
	return newRefusalCache(next, configured[refusalConfig](options))
}

// withLongest sets Config.Longest.
func withLongest(longest time.Duration) refusalOption {
	return func(c *refusalConfig) { c.Longest = longest }
}

// withRefusals sets how many refusals are remembered.
func withRefusals(n int) refusalOption { return func(c *refusalConfig) { c.refusals = n } }

// withUpdates sets Config.Updates.
func withUpdates(updates Updates) refusalOption {
	return func(c *refusalConfig) { c.Updates = updates }
}

// withClock sets Config.Clock.
func withClock(clock func() time.Duration) refusalOption {
	return func(c *refusalConfig) { c.Clock = clock }
}

// withWarn sets Config.Warn.
func withWarn(warn func(text string)) refusalOption { return func(c *refusalConfig) { c.Warn = warn } }

// A carriedNode is a layer whose messages the test carries.
type carriedNode struct{ *refusalCache }

// newCarriedNode makes one.
func newCarriedNode(next weir.Store, opts ...refusalOption) *carriedNode {
	s := newRefusalCacheWith(next, opts...)
	s.notifier = newNotifier(s, refusalConfig{})
	return &carriedNode{s}
}

// Messages returns the queued messages.
func (n *carriedNode) Messages() (messages [][]byte) {
	for message := n.notifier.next(); message != nil; message = n.notifier.next() {
		messages = append(messages, message)
	}
	return messages
}

// Hear receives one.
func (n *carriedNode) Hear(message []byte) { n.notifier.receive(message) }

// statesOf reads a message.
func statesOf(message []byte) (states []string, ok bool) {
	ok = readStates(message, func(limit uint64, key []byte) {
		states = append(states, string(appendState(nil, changedState{limit, string(key)})))
	})
	return states, ok
}

// Kept counts the refusals that hold.
func (s *refusalCache) Kept() (n int) {
	for i := range s.table.sets {
		set := &s.table.sets[i]
		for j := range set.way {
			if r := set.way[j].Load(); r != nil && r.holds(s.table.era.Load(), set.changes.Load(), s.clock()) {
				n++
			}
		}
	}
	return n
}

// Room counts the refusals that there is room for.
func (s *refusalCache) Room() int { return len(s.table.sets) * setWays }

// setSize is the size of a set in memory.
const setSize = unsafe.Sizeof(refusalSet{})

func TestReturnedUnitsForget(t *testing.T) {
	c := refusalClaim(weir.PerHour(2), 2)
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

// A gatedChanges store's calls wait until they are let through: before the store decides, and before they return.
type gatedChanges struct {
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

func (g *gatedChanges) Decide(ctx context.Context, claims []weir.Claim, times int64,
	d []weir.Decision) (granted int64, err error) {
	g.decide.do(func() { granted, err = g.Store.Decide(ctx, claims, times, d) })
	return granted, err
}

func (g *gatedChanges) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant,
	d []weir.Decision) (err error) {
	g.refund.do(func() { err = g.Store.Refund(ctx, claims, at, d) })
	return err
}

// A call that began before a refund returned is not learned from, whichever returns first: its answer may be
// older than the refund.
func TestRefundDiscardsConcurrentAnswers(t *testing.T) {
	c := []weir.Claim{refusalClaim(weir.PerHour(1), 1)}
	// a, d, D: it is asked, decided, and returns; b, r, R: the refund begins, is executed, returns.
	for _, order := range []string{"adDbrR", "adbrRD", "adbrDR", "abdrRD", "abdDrR", "badDrR", "badrDR", "badrRD"} {
		synctest.Test(t, func(t *testing.T) {
			below := memstore.New()
			below.Charge(t.Context(), c, nil)
			g := &gatedChanges{below, shut(), shut()}
			layer := refusalOver(t, g)
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
		c := []weir.Claim{refusalClaim(weir.PerHour(1), 1)}
		g := &gatedChanges{Store: memstore.New(), refund: shut()}
		layer := refusalOver(t, g)
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
	c := refusalClaim(weir.PerHour(1), 1)
	s.ask(1, true, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	layer := refusalOver(t, failedRefund{s.below})
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

type failedRefund struct{ weir.Store }

func (failedRefund) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return weir.ErrUnavailable
}

// refusalOver is a layer that is closed with the test.
func refusalOver(tb testing.TB, next weir.Store, opts ...refusalOption) *refusalCache {
	tb.Helper()
	store := newRefusalCacheWith(next, opts...)
	tb.Cleanup(func() { store.Close() })
	return store
}

func openRedis(t testing.TB, url string, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url,
		append(opts, redisstore.WithTimeout(time.Minute), redisstore.WithWarn(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// refusalOnRedis returns a node over a Redis, with Updates.
func refusalOnRedis(t testing.TB, url string, opts ...refusalOption) *refusalCache {
	t.Helper()
	updates, err := redisstore.NewUpdates(url, redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { updates.Close() }) // after the layer, which is opened later
	layer := refusalOver(t, openRedis(t, url), append(opts, withUpdates(updates), withWarn(nil))...)
	redistest.Await(t, "the subscription", func() bool { return layer.Stats().Listening })
	return layer
}

// A refund on one node lets the next request on the other one pass.
func TestRefundFreesTheKeyOnOtherNodes(t *testing.T) {
	url := redistest.Start(t).URL()
	a, b := refusalOnRedis(t, url), refusalOnRedis(t, url)
	c := refusalClaim(weir.PerHour(1), 1)
	d := make([]weir.Decision, 1)
	for range 20 {
		if granted, err := a.Decide(t.Context(), []weir.Claim{c}, 1, d); granted != 1 || err != nil {
			t.Fatalf("granted %d (%v)", granted, err)
		}
		takes(t, b, 0, c)
		if b.Kept() == 0 {
			t.Fatal("nothing was learned")
		}
		if err := a.Refund(t.Context(), []weir.Claim{c}, d[0].At, nil); err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, "the update", func() bool { return b.Kept() == 0 })
		takes(t, b, 1, c)
		if err := b.Reset(t.Context(), []weir.Claim{c}); err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, "the update", func() bool { return a.Kept() == 0 })
	}
}

// A node that loses its subscription forgets, and subscribes again.
func TestLostSubscriptionForgetsEverything(t *testing.T) {
	server := redistest.Start(t)
	a, b := refusalOnRedis(t, server.URL()), refusalOnRedis(t, server.URL())
	c := refusalClaim(weir.PerHour(1), 1)
	takes(t, a, 1, c)
	takes(t, b, 0, c)
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	redistest.Await(t, "both to forget", func() bool { return a.Kept() == 0 && b.Kept() == 0 })
	redistest.Await(t, "both to listen", func() bool { return a.Stats().Listening && b.Stats().Listening })
	takes(t, b, 0, c)
	if err := a.Reset(t.Context(), []weir.Claim{c}); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the update", func() bool { return b.Kept() == 0 })
}

// A clock that is stepped, as by a failover, is believed again after WithLongest at most.
func TestRedisClockStep(t *testing.T) {
	var now, steady atomic.Int64
	now.Store(1_790_000_000_000_000)
	below := openRedis(t, redistest.Start(t).URL(),
		redisstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) }))
	layer := refusalOver(t, below, withClock(func() time.Duration { return time.Duration(steady.Load()) }),
		withLongest(time.Second))
	c := refusalClaim(weir.PerHour(1), 1)
	takes(t, layer, 1, c)
	now.Add(2 * time.Hour.Microseconds()) // forward: the store grants, and nobody was told
	takes(t, layer, 0, c)
	steady.Add(int64(time.Second))
	takes(t, layer, 1, c)
	now.Add(-time.Hour.Microseconds()) // back: nothing is granted twice
	takes(t, layer, 0, c)
	steady.Add(int64(time.Second))
	takes(t, layer, 0, c)
}

func TestRefusalsAreAnsweredDuringAnOutage(t *testing.T) {
	server := redistest.Start(t)
	layer := refusalOver(t, openRedis(t, server.URL()))
	c := refusalClaim(weir.PerHour(1), 1)
	takes(t, layer, 1, c)
	server.Kill()
	takes(t, layer, 0, c)
}

// A scene is a layer over a store whose calls are counted and may take time. The test drives both clocks; the
// store's is years off.
type scene struct {
	t     *testing.T
	layer *refusalCache
	below weir.Store
	clock time.Duration // monotonic, of the node
	redis weir.Instant
	calls int
	there time.Duration // a call takes so long until the store decides,
	back  time.Duration // and so long until it returns
	fails error
}

func newScene(t *testing.T, opts ...refusalOption) *scene {
	s := &scene{t: t, redis: 4_000_000_000_000_000}
	s.below = memstore.New(memstore.WithClock(func() weir.Instant { return s.redis }))
	s.layer = refusalOver(t, s, append([]refusalOption{withClock(func() time.Duration { return s.clock })}, opts...)...)
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

func refusalClaim(spec weir.Spec, cost int64) weir.Claim {
	return weir.Claim{Key: "k", Limit: weir.MustLimit("limit", spec), Cost: cost}
}

func TestFloodCostsOneCall(t *testing.T) {
	s := newScene(t)
	c := refusalClaim(weir.PerMinute(1), 1)
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
		c := refusalClaim(spec, 1)
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
	for longest, opts := range map[time.Duration][]refusalOption{
		10 * time.Second: nil,
		time.Second:      {withLongest(time.Second)},
	} {
		s := newScene(t, opts...)
		c := refusalClaim(weir.PerHour(1), 1)
		s.ask(1, true, c)
		s.pass(longest - 1)
		s.ask(0, false, c)
		if d := s.ask(0, false, refusalClaim(weir.PerHour(1), 7)); d[0].RetryAfter != weir.Never {
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
	c := refusalClaim(weir.PerSecond(1), 1)
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
				limit := refusalClaim(test.spec, 1).Limit
				s.ask(1, true, refusalClaim(test.spec, limit.Most()))
				s.ask(0, test.asked, refusalClaim(test.spec, first))
				for _, cost := range []int64{1, 2, 4, limit.Most(), limit.Most() + 1} {
					s.pass(time.Millisecond)
					c := refusalClaim(test.spec, cost)
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
		s.ask(1, true, refusalClaim(spec, 2))
		s.ask(0, true, refusalClaim(spec, 32))
		s.ask(1, true, refusalClaim(spec, 1))
		s.ask(1, true, refusalClaim(spec, 2))
		s.ask(0, true, refusalClaim(spec, 34))
		if d := s.ask(0, true, refusalClaim(spec, 33)); d[0].Remaining != 28 {
			t.Errorf("%s: %+v, want 28 left", spec, d[0])
		}
	}
}

func TestCostZeroCoversOnlyItself(t *testing.T) {
	s := newScene(t)
	c := refusalClaim(weir.PerSecond(1), 0)
	if err := s.layer.Charge(t.Context(), []weir.Claim{refusalClaim(weir.PerSecond(1), 5)}, nil); err != nil {
		t.Fatal(err)
	}
	s.ask(0, true, c)
	s.ask(0, false, c)
	s.ask(0, true, refusalClaim(weir.PerSecond(1), 1))
}

func TestTimes(t *testing.T) {
	s := newScene(t)
	c := []weir.Claim{refusalClaim(weir.PerMinute(3), 1)}
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
	s.ask(1, true, refusalClaim(weir.PerMinute(1), 1))
	s.ask(0, false, refusalClaim(weir.PerMinute(1), 1)) // the same rule, read again
	s.ask(1, true, refusalClaim(weir.GCRA(2, 1, time.Minute), 1))
	s.ask(0, true, refusalClaim(weir.PerMinute(1), 1)) // what the others were granted may have changed it
	renamed := refusalClaim(weir.PerMinute(1), 1)
	renamed.Limit = weir.MustLimit("renamed", weir.PerMinute(1))
	s.ask(1, true, renamed)
	s.ask(1, true, refusalClaim(weir.FixedWindow{Limit: 1, Window: time.Minute}, 1))
}

func TestNotRemembered(t *testing.T) {
	held := refusalClaim(weir.Concurrency{Limit: 1, TTL: time.Hour}, 1)
	long := refusalClaim(weir.PerHour(1), 1)
	long.Key = strings.Repeat("k", maxRememberedKey+1)
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
	c := refusalClaim(weir.PerHour(1), 1)
	buffer := []byte("key")
	c.Key = unsafe.String(&buffer[0], len(buffer))
	s.ask(1, true, c)
	buffer[0] = '#'
	c.Key = "key"
	s.ask(0, false, c)
}

func TestErrorsAreNotRemembered(t *testing.T) {
	s := newScene(t)
	c := refusalClaim(weir.PerHour(1), 1)
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
func byKey(s *refusalCache, key string, limit *weir.Limit, cost int64) (d weir.Decision, ok bool) {
	_, granted, remaining, retry, reset, delay, at, ok := s.DecideKey(key, []*weir.Limit{limit}, cost, 0)
	d = weir.Decision{Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Delay: delay, At: at}
	return d, ok && !granted
}

func TestShortcutEqualsDecide(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerSecond(1), weir.SlidingLog{Limit: 1, Window: time.Second}} {
		s := newScene(t)
		c := refusalClaim(spec, 1)
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
	c := refusalClaim(weir.LeakyQueue(1, time.Second, 1), 2)
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
		if got := refusalOver(t, memstore.New(), withRefusals(asked)).Room(); got != room {
			t.Errorf("WithRefusals(%d) has room for %d, want %d", asked, got, room)
		}
	}
}

// under is a claim of one unit on a key, under a limit with a name.
func under(name, key string, spec weir.Spec) weir.Claim {
	return weir.Claim{Key: key, Limit: weir.MustLimit(name, spec), Cost: 1}
}

// TestSeveralClaims: the decision of each claim is exact, so the store is called unless all of them are known
// refusals.
func TestSeveralClaims(t *testing.T) {
	s := newScene(t, withLongest(Longest))
	site, ip := under("site", "all", weir.PerMinute(2)), under("ip", "1", weir.PerMinute(1))
	s.ask(1, true, site, ip)
	s.pass(time.Second)
	d := s.ask(0, true, site, ip)
	want := []weir.Decision{
		{Remaining: 1, ResetAfter: 29 * time.Second, At: s.redis},
		{RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second, At: s.redis},
	}
	if !slices.Equal(d, want) {
		t.Errorf("got\n  %+v, want\n  %+v", d, want)
	}
	s.ask(1, true, site, under("ip", "2", weir.PerMinute(1)))
	s.pass(time.Second)
	d = s.ask(0, false, site, ip)
	want = []weir.Decision{
		{RetryAfter: 28 * time.Second, ResetAfter: 58 * time.Second, At: s.redis},
		{RetryAfter: 58 * time.Second, ResetAfter: 58 * time.Second, At: s.redis},
	}
	if !slices.Equal(d, want) {
		t.Errorf("both remembered\n  %+v, want\n  %+v", d, want)
	}
}

// TestVerdictAlone: a caller that wants no decisions is answered by one claim that refuses.
func TestVerdictAlone(t *testing.T) {
	s := newScene(t)
	site, ip := under("site", "all", weir.PerMinute(5)), under("ip", "1", weir.PerMinute(1))
	s.ask(1, true, site, ip)
	if granted, err := s.layer.Decide(t.Context(), []weir.Claim{site, ip}, 1, nil); granted != 0 || err != nil ||
		s.calls != 1 {
		t.Errorf("granted %d (%v) by call %d, want 0 from memory", granted, err, s.calls)
	}
}

// All claims of one decision have one instant, although they were learned by calls that took
// different times; and each grants at the instant that it did.
func TestOneInstant(t *testing.T) {
	s := newScene(t)
	a, b := under("a", "k", weir.PerMinute(1)), under("b", "k", weir.PerMinute(1))
	s.ask(1, true, a)
	s.back = 3 * time.Second
	s.ask(1, true, b)
	d := s.ask(0, false, a, b)
	if d[0].At != d[1].At || d[0].At > s.redis {
		t.Errorf("at %d and %d, by the store %d", d[0].At, d[1].At, s.redis)
	}
	for i, due := range []weir.Instant{4_000_000_060_000_000, 4_000_000_060_000_000} {
		if got := d[i].At + weir.Instant(d[i].RetryAfter.Microseconds()); got != due {
			t.Errorf("claim %d is told to grant at %d, want %d", i, got, due)
		}
	}
}

// TestBanBesideALimit: a claim of cost 0 asks whether a ban is there, and is asked about until one is.
func TestBanBesideALimit(t *testing.T) {
	s := newScene(t)
	limit := under("ip", "1", weir.PerMinute(1))
	hold := under("hold", "1", weir.PerHour(1))
	hold.Cost = 0
	s.ask(1, true, limit, hold)
	s.ask(0, true, limit, hold)
	ban := hold
	ban.Cost = 3
	if err := s.layer.Charge(t.Context(), []weir.Claim{ban}, nil); err != nil {
		t.Fatal(err)
	}
	if d := s.ask(0, true, limit, hold); d[1].RetryAfter == 0 {
		t.Errorf("banned, and told %+v", d)
	}
	if d := s.ask(0, false, limit, hold); d[1].RetryAfter == 0 {
		t.Errorf("banned, known, and told %+v", d)
	}
	s.ask(0, false, limit)
}

// answering is a store that says the same of everything, and takes no time.
type answering struct {
	weir.Store
	says  weir.Decision
	calls atomic.Int64
}

func (s *answering) Decide(_ context.Context, _ []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	s.calls.Add(1)
	for i := range d {
		d[i] = s.says
	}
	if s.says.RetryAfter != 0 {
		return 0, nil
	}
	return times, nil
}

func (s *answering) Close() error { return nil }

func TestSetFillsItsCacheLines(t *testing.T) {
	if setSize != 128 {
		t.Errorf("a set has %d bytes, want 128: two cache lines, and none that it shares", setSize)
	}
}

// However many keys are refused, those that are being refused stay known, and the rest take
// the room from one another.
func TestFloodOfKeysKeepsHotOnes(t *testing.T) {
	next := &answering{says: weir.Decision{RetryAfter: time.Hour}}
	layer := refusalOver(t, next, withRefusals(1024))
	limit := weir.MustLimit("limit", weir.PerHour(1))
	ask := func(key string) {
		if granted, err := layer.Decide(t.Context(), []weir.Claim{{Key: key, Limit: limit, Cost: 1}}, 1,
			nil); granted != 0 || err != nil {
			t.Fatalf("granted %d (%v)", granted, err)
		}
	}
	hot := make([]string, 32)
	for i := range hot {
		hot[i] = fmt.Sprint("hot-", i)
		ask(hot[i])
		ask(hot[i])
	}
	const cold = 100_000
	for i := range cold {
		ask(fmt.Sprint("cold-", i))
		ask(hot[i%len(hot)])
	}
	if calls := next.calls.Load(); calls > cold+cold/100 {
		t.Errorf("the store was asked %d times about %d keys that came once, and %d that came all the time", calls,
			cold, len(hot))
	}
	if kept, room := layer.Kept(), layer.Room(); room != 1024 || kept > room || kept < room*9/10 {
		t.Errorf("%d are remembered, there is room for %d", kept, room)
	}
	if layer.Stats().Evicted == 0 {
		t.Error("none was told to have made room")
	}
}

// Refusals that are over are the first to make room.
func TestExpiredRefusalsMakeRoom(t *testing.T) {
	s := newScene(t, withRefusals(8))
	for i := range 8 {
		s.ask(1, true, under("limit", fmt.Sprint("old-", i), weir.PerSecond(1)))
	}
	s.pass(time.Second)
	for i := range 8 {
		s.ask(1, true, under("limit", fmt.Sprint("new-", i), weir.PerSecond(1)))
	}
	if stats := s.layer.Stats(); stats.Evicted != 0 || s.layer.Kept() != 8 {
		t.Errorf("%+v, %d kept; want all of the new ones in the place of the old", stats, s.layer.Kept())
	}
}

// A refusal of a smaller cost is not replaced by one of a larger, which it covers, nor a later
// one by an earlier, whatever order their calls return in.
func TestSmallestThenLatestRefusalStays(t *testing.T) {
	next := &answering{says: weir.Decision{RetryAfter: time.Hour, At: 1}}
	var now atomic.Int64
	clock := func() time.Duration { return time.Duration(now.Load()) }
	var layer *refusalCache
	limit := weir.MustLimit("limit", weir.PerHour(100))
	decide := func(cost int64) weir.Decision {
		d := make([]weir.Decision, 1)
		layer.Decide(context.Background(), []weir.Claim{{Key: "k", Limit: limit, Cost: cost}}, 1, d)
		return d[0]
	}
	inner := &interleaved{answering: next}
	layer = refusalOver(t, inner, withClock(clock))
	// While a cost of 5 is being asked, one of 2 is asked and learned, which then stays.
	inner.during = func() {
		now.Add(1)
		decide(2)
	}
	decide(5)
	calls := next.calls.Load()
	if decide(3); next.calls.Load() != calls {
		t.Error("a refusal of 2 gave way to one of 5")
	}
	layer.Reset(t.Context(), []weir.Claim{{Key: "k", Limit: limit}})
	inner.during = func() {
		now.Add(int64(time.Millisecond))
		next.says.At = 2_000
		decide(2)
		next.says.At = 1
	}
	decide(2)
	if d := decide(2); d.At != 2_000 {
		t.Errorf("told by an answer of instant %d, although a later one came first", d.At)
	}
	layer = refusalOver(t, next, withClock(clock))
	decide(0)
	decide(1)
	if n := layer.Kept(); n != 1 {
		t.Errorf("%d refusals of one state are kept, want the one that covers more", n)
	}
}

// interleaved has something happen during the next call.
type interleaved struct {
	*answering
	during func()
}

func (s *interleaved) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := s.answering.Decide(ctx, claims, times, d)
	if during := s.during; during != nil {
		s.during = nil
		during()
	}
	return granted, err
}

func (s *interleaved) Reset(context.Context, []weir.Claim) error { return nil }

// Many goroutines decide, refund and reset few keys of a small table: refusals end with the store's, which are
// so short that all are granted in the end.
func TestRace(t *testing.T) {
	layer := refusalOver(t, memstore.New(), withRefusals(8))
	limit := weir.MustLimit("limit", weir.GCRA(2, 2000, time.Second))
	var wait sync.WaitGroup
	var granted atomic.Int64
	for worker := range 8 {
		wait.Go(func() {
			d := make([]weir.Decision, 2)
			for i := range 2000 {
				claims := []weir.Claim{
					{Key: fmt.Sprint((worker + i) % 20), Limit: limit, Cost: 1},
					{Key: fmt.Sprint(20 + i%3), Limit: limit, Cost: int64(1 + i%2)},
				}
				decided := d
				if i%2 == 0 { // one claim that refuses is enough
					decided = nil
				}
				n, err := layer.Decide(context.Background(), claims, 1, decided)
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(n)
				switch i % 5 {
				case 0:
					layer.Refund(context.Background(), claims[:1], d[0].At, nil)
				case 1:
					layer.Reset(context.Background(), claims[1:])
				}
			}
		})
	}
	wait.Wait()
	if granted.Load() == 0 || layer.Stats().Recalled == 0 {
		t.Errorf("%d granted, %+v: want both some grants and some memories", granted.Load(), layer.Stats())
	}
}

// A bus is an Updates within the test.
type bus struct {
	mu       sync.Mutex
	hears    map[int]func([]byte)
	next     int
	lost     chan struct{} // closed: all who listen are cut off
	deaf     error         // why nobody can listen
	mute     error         // why nobody can tell
	messages [][]byte
}

func newBus() *bus { return &bus{hears: make(map[int]func([]byte)), lost: make(chan struct{})} }

func (b *bus) Publish(_ context.Context, message []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mute != nil {
		return b.mute
	}
	b.messages = append(b.messages, slices.Clone(message))
	for _, hear := range b.hears {
		hear(message)
	}
	return nil
}

func (b *bus) Subscribe(ctx context.Context, hear func([]byte), missed func()) error {
	b.mu.Lock()
	if b.deaf != nil {
		defer b.mu.Unlock()
		return b.deaf
	}
	b.next++
	id, lost := b.next, b.lost
	b.hears[id] = hear
	missed()
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.hears, id)
		b.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-lost:
		return errors.New("cut off")
	}
}

func (b *bus) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bus) told() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.messages)
}

// nodes returns layers over one store, connected by Updates, and their warnings.
func nodes(t *testing.T, n int, updates Updates) (layers []*refusalCache, warned func() []string) {
	below := memstore.New()
	t.Cleanup(func() { below.Close() })
	var mu sync.Mutex
	var warnings []string
	warn := withWarn(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, text)
	})
	for range n {
		layers = append(layers, refusalOver(t, &unclosed{below}, withUpdates(updates), warn))
	}
	return layers, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(warnings)
	}
}

func takes(t *testing.T, layer *refusalCache, want int64, c weir.Claim) {
	t.Helper()
	if granted, err := layer.Decide(t.Context(), []weir.Claim{c}, 1, nil); granted != want || err != nil {
		t.Fatalf("granted %d (%v), want %d", granted, err, want)
	}
}

func TestOtherNodesForget(t *testing.T) {
	for name, credit := range map[string]func(s weir.Store, c []weir.Claim) error{
		"Refund": func(s weir.Store, c []weir.Claim) error { return s.Refund(context.Background(), c, 0, nil) },
		"Reset":  func(s weir.Store, c []weir.Claim) error { return s.Reset(context.Background(), c) },
		"Charge": func(s weir.Store, c []weir.Claim) error { return s.Charge(context.Background(), c, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			layers, _ := nodes(t, 2, newBus())
			synctest.Wait()
			a, b := layers[0], layers[1]
			if !b.Stats().Listening {
				t.Fatal("a node does not listen")
			}
			c, other := refusalClaim(weir.PerHour(1), 1), under("other", "k", weir.PerHour(1))
			takes(t, b, 1, c)
			takes(t, b, 1, other)
			if err := credit(a, []weir.Claim{c}); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); b.Kept() != 1 {
				t.Errorf("%s on one node: on the other %d refusals of 2 are believed, want 1", name, b.Kept())
			}
		})
	}
}

// A key with many refunds is in a message once, and messages leave a gap.
func TestInvalidationsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates := newBus()
		layers, _ := nodes(t, 1, updates)
		synctest.Wait()
		for i := range 1000 {
			layers[0].Reset(t.Context(), []weir.Claim{under("limit", fmt.Sprint(i%10), weir.PerHour(1))})
			if i == 0 {
				synctest.Wait() // who is alone is told at once
			}
		}
		synctest.Wait()
		if n := len(updates.told()); n != 1 {
			t.Fatalf("%d messages at once, want 1", n)
		}
		time.Sleep(time.Second)
		states := 0
		for _, message := range updates.told() {
			list, ok := statesOf(message)
			if !ok {
				t.Fatalf("a message of our own is not understood: %q", message)
			}
			states += len(list)
		}
		if n := len(updates.told()); n != 2 || states != 11 {
			t.Errorf("%d messages of %d states; want 1 of the first and 1 of ten", n, states)
		}
	})
}

func TestTooManyInvalidationsForgetEverything(t *testing.T) {
	node := newCarriedNode(memstore.New())
	limit := weir.MustLimit("limit", weir.PerHour(1))
	reset := func(i int) {
		key := fmt.Sprint(strings.Repeat("k", maxRememberedKey-10), i)
		if err := node.Reset(t.Context(), []weir.Claim{{Key: key, Limit: limit}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxWaiting {
		reset(i)
	}
	states := make(map[string]bool)
	for _, message := range node.Messages() {
		list, ok := statesOf(message)
		if !ok || len(message) > maxMessage {
			t.Fatalf("a message of %d bytes, understood: %v", len(message), ok)
		}
		for _, s := range list {
			states[s] = true
		}
	}
	if len(states) != maxWaiting {
		t.Errorf("%d states are told, want %d", len(states), maxWaiting)
	}
	for i := range 2 * maxWaiting {
		reset(i)
	}
	all := node.Messages()
	if len(all) != 1 || all[0][0] != 'a' {
		t.Fatalf("%d messages, the first %q; want one that says all", len(all), all[0])
	}
	takes(t, node.refusalCache, 1, refusalClaim(weir.PerHour(1), 1))
	if node.Hear(all[0]); node.Kept() != 1 {
		t.Error("what a node says itself it has forgotten when it happened")
	}
	all[0][1] ^= 1 // another's
	if node.Hear(all[0]); node.Kept() != 0 {
		t.Error("all was to be forgotten")
	}
}

// A lost subscription is restored, and possibly missed messages forget everything.
func TestMissedMessagesForgetEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates := newBus()
		layers, warned := nodes(t, 2, updates)
		synctest.Wait()
		c := refusalClaim(weir.PerHour(1), 1)
		takes(t, layers[0], 1, c)
		takes(t, layers[1], 0, c)
		updates.set(func() { // cut off, and nobody can come back for a while
			updates.deaf = errors.New("no route")
			close(updates.lost)
			updates.lost = make(chan struct{})
		})
		synctest.Wait()
		layers[0].Reset(t.Context(), []weir.Claim{c})
		time.Sleep(time.Second)
		if layers[1].Stats().Listening || layers[1].Kept() != 1 {
			t.Errorf("cut off: %+v, %d kept", layers[1].Stats(), layers[1].Kept())
		}
		updates.set(func() { updates.deaf = nil })
		time.Sleep(10 * time.Second)
		if !layers[1].Stats().Listening || layers[1].Kept() != 0 {
			t.Errorf("back: %+v, %d kept; want none, for messages were missed", layers[1].Stats(), layers[1].Kept())
		}
		takes(t, layers[1], 1, c)
		if list := warned(); len(list) != 2 || !strings.Contains(list[0], "cut off") {
			t.Errorf("warned of %q, want of each node's first failure", list)
		}
	})
}

func TestSendingIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates := newBus()
		layers, warned := nodes(t, 2, updates)
		synctest.Wait()
		c := refusalClaim(weir.PerHour(1), 1)
		takes(t, layers[1], 1, c)
		updates.set(func() { updates.mute = errors.New("no route") })
		layers[0].Reset(t.Context(), []weir.Claim{c})
		time.Sleep(2 * time.Second)
		if layers[1].Kept() != 1 {
			t.Fatal("heard what was not told")
		}
		updates.set(func() { updates.mute = nil })
		time.Sleep(3 * time.Second) // a refusal is believed for 10
		if layers[1].Kept() != 0 {
			t.Error("not told when it could be")
		}
		if list := warned(); len(list) != 1 || !strings.Contains(list[0], "no route") {
			t.Errorf("warned of %q, want of the first failure", list)
		}
	})
}

// A program that resets a key and exits sends the message; without a connection it exits all the same.
func TestCloseSendsQueuedInvalidations(t *testing.T) {
	for _, mute := range []error{nil, errors.New("no route")} {
		synctest.Test(t, func(t *testing.T) {
			updates := newBus()
			layers, _ := nodes(t, 1, updates)
			synctest.Wait()
			updates.set(func() { updates.mute = mute })
			for i := range 2 {
				layers[0].Reset(t.Context(), []weir.Claim{under("limit", fmt.Sprint(i), weir.PerHour(1))})
				if i == 0 {
					synctest.Wait()
				}
			}
			if err := layers[0].Close(); err != nil {
				t.Fatal(err)
			}
			if n := len(updates.told()); (n == 2) != (mute == nil) {
				t.Errorf("%d messages were told (%v)", n, mute)
			}
		})
	}
}

// A message that breaks off within a state forgets everything: it is unknown what the rest would have named.
func TestMessagesThatBreakOffForgetEverything(t *testing.T) {
	told := newCarriedNode(memstore.New())
	told.Reset(t.Context(), []weir.Claim{under("limit", "key", weir.PerHour(1))})
	whole := told.Messages()[0]
	for n := range len(whole) + 1 {
		node, c := newCarriedNode(memstore.New()), refusalClaim(weir.PerHour(1), 1)
		for range 2 {
			if _, err := node.Decide(t.Context(), []weir.Claim{c}, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		kept := node.Kept()
		node.Hear(whole[:n])
		// Behind the head there is no state, which is understood.
		if understood := n == 9 || n == len(whole); kept != 1 || node.Kept() == 0 == understood {
			t.Errorf("%d of %d bytes: of %d refusals %d are believed", n, len(whole), kept, node.Kept())
		}
	}
}

func FuzzMessages(f *testing.F) {
	node := newCarriedNode(memstore.New(), withRefusals(8))
	for _, key := range []string{"k", strings.Repeat("k", maxRememberedKey)} {
		node.Reset(f.Context(), []weir.Claim{under("limit", key, weir.PerHour(1)),
			under("other", key, weir.PerHour(1))})
	}
	for _, message := range node.Messages() {
		f.Add(message)
		f.Add(message[:len(message)-1])
	}
	f.Add([]byte("a"))
	f.Add([]byte("s12345678"))
	f.Add([]byte{})
	f.Add(append([]byte("s1234567812345678"), 0))
	f.Add(append([]byte("s1234567812345678"), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1))
	c := []weir.Claim{under("kept", "kept", weir.PerHour(1))}
	node.Charge(f.Context(), c, nil)
	f.Fuzz(func(t *testing.T, given []byte) {
		message := slices.Clone(given)
		node.Decide(t.Context(), c, 1, nil)
		states, ok := statesOf(message)
		if len(message) > 8 { // not its own
			message[1]++
		}
		if node.Hear(message); !ok && node.Kept() != 0 {
			t.Errorf("not understood, and something is still believed")
		}
		if again := "s12345678" + strings.Join(states, ""); ok && len(again) > len(message) {
			t.Errorf("read %d bytes of states from a message of %d", len(again), len(message))
		}
	})
}

// TestRefusalsAreNeverTooLong: over random schedules of two nodes with late, lost and repeated messages, memory
// refuses what the store would grant only after a lost message, and for no longer than stated.
func TestRefusalsAreNeverTooLong(t *testing.T) {
	specs := []weir.Spec{weir.GCRA(3, 2, time.Second),
		weir.TokenBucket{Capacity: 4, Refill: 3, Period: time.Second, Overdraft: 2},
		weir.TokenBucket{Capacity: 4, Refill: 3, Period: time.Second, Mode: weir.Step},
		weir.FixedWindow{Limit: 3, Window: 2 * time.Second},
		weir.FixedWindow{Limit: 3, Window: 2 * time.Second, Anchor: weir.Epoch},
		weir.SlidingLog{Limit: 3, Window: 2 * time.Second},
		weir.SlidingCounter{Limit: 4, Window: 2 * time.Second, Slices: 4}}
	recalled := int64(0)
	for seed := range uint64(400) {
		w := newRefusalWorld(t, specs[seed%uint64(len(specs))], rand.New(rand.NewPCG(seed, 1)))
		for range 300 {
			w.step()
		}
		recalled += w.nodes[0].Stats().Recalled + w.nodes[1].Stats().Recalled
	}
	if recalled < 4_000 {
		t.Errorf("only %d refusals came from memory: this tested little", recalled)
	}
}

const believed = 1500 * time.Millisecond // at most

// A refusalWorld is two nodes, the messages between them, and the store that knows the truth.
type refusalWorld struct {
	t      *testing.T
	random *rand.Rand
	now    weir.Instant
	below  *memstore.Store
	nodes  [2]*carriedNode
	mail   [2][]letter
	limits [2]*weir.Limit
	unsure [2]map[weir.Claim]weir.Instant // what was given back to, when last, and a node has not heard of
	taken  []weir.Instant
}

// A letter is a message, and the states that it is about.
type letter struct {
	message []byte
	about   []weir.Claim
}

func newRefusalWorld(t *testing.T, spec weir.Spec, random *rand.Rand) *refusalWorld {
	w := &refusalWorld{t: t, random: random, now: 1_790_000_000_000_000, taken: []weir.Instant{0}}
	w.below = memstore.New(memstore.WithClock(func() weir.Instant { return w.now }))
	t.Cleanup(func() { w.below.Close() })
	clock := withClock(func() time.Duration { return time.Duration(w.now) * time.Microsecond })
	for i := range w.nodes {
		node := newCarriedNode(&unclosed{w.below}, clock, withLongest(believed), withRefusals(64))
		w.nodes[i], w.unsure[i] = node, make(map[weir.Claim]weir.Instant)
		w.limits[i] = weir.MustLimit(fmt.Sprint("limit-", i), spec)
	}
	return w
}

func (w *refusalWorld) claims() []weir.Claim {
	key := []string{"a", "b"}[w.random.IntN(2)]
	claims := []weir.Claim{{Key: key, Limit: w.limits[0], Cost: w.random.Int64N(4)}}
	if w.random.IntN(2) == 0 {
		claims = append(claims, weir.Claim{Key: key, Limit: w.limits[1], Cost: 1})
	}
	return claims
}

func (w *refusalWorld) step() {
	node, claims := w.random.IntN(2), w.claims()
	switch w.random.IntN(14) {
	case 0, 1:
		w.now += weir.Instant(w.random.Int64N(400_000))
	case 2:
		w.post(node, w.nodes[node].Refund(w.t.Context(), claims, w.taken[w.random.IntN(len(w.taken))], nil), claims)
	case 3:
		w.post(node, w.nodes[node].Reset(w.t.Context(), claims), claims)
	case 4:
		w.post(node, w.nodes[node].Charge(w.t.Context(), claims, nil), claims)
	case 5, 6:
		w.receive(node)
	default:
		w.decide(node, claims)
	}
}

// post queues a message for the other node; some are lost, some are sent twice.
func (w *refusalWorld) post(from int, err error, claims []weir.Claim) {
	if err != nil {
		w.t.Fatal(err)
	}
	to := 1 - from
	for i := range claims {
		claims[i].Cost = 0
		w.unsure[to][claims[i]] = w.now
	}
	for _, message := range w.nodes[from].Messages() {
		for range []int{0, 1, 1, 2}[w.random.IntN(4)] {
			w.mail[to] = append(w.mail[to], letter{message, claims})
		}
	}
}

func (w *refusalWorld) receive(node int) {
	for _, l := range w.mail[node] {
		w.nodes[node].Hear(l.message)
		for _, c := range l.about {
			delete(w.unsure[node], c)
		}
	}
	w.mail[node] = nil
}

// excused reports whether a node may not know yet that units were given back.
func (w *refusalWorld) excused(node int, claims []weir.Claim) bool {
	for _, c := range claims {
		c.Cost = 0
		at, unsure := w.unsure[node][c]
		if unsure && time.Duration(w.now-at)*time.Microsecond < believed {
			return true
		}
	}
	return false
}

func (w *refusalWorld) decide(node int, claims []weir.Claim) {
	truth, decided := make([]weir.Decision, len(claims)), make([]weir.Decision, len(claims))
	if _, err := w.below.Decide(w.t.Context(), claims, 0, truth); err != nil {
		w.t.Fatal(err)
	}
	refuses := slices.ContainsFunc(truth, func(d weir.Decision) bool { return d.RetryAfter != 0 })
	granted, err := w.nodes[node].Decide(w.t.Context(), claims, 1, decided)
	if err != nil {
		w.t.Fatal(err)
	}
	if granted > 0 {
		w.taken = append(w.taken, w.now)
	}
	if (granted == 0) != refuses && (granted > 0 || !w.excused(node, claims)) {
		w.t.Fatalf("at %d node %d granted %d:\n  decided %+v\n  true %+v", w.now, node, granted, decided, truth)
	}
}
