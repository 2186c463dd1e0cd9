package recall_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/memstore"
)

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
func nodes(t *testing.T, n int, updates recall.Updates) (layers []*recall.Store, warned func() []string) {
	below := memstore.New()
	t.Cleanup(func() { below.Close() })
	var mu sync.Mutex
	var warnings []string
	warn := recall.WithWarn(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, text)
	})
	for range n {
		layers = append(layers, over(t, shared{below}, recall.WithUpdates(updates), warn))
	}
	return layers, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(warnings)
	}
}

func takes(t *testing.T, layer *recall.Store, want int64, c weir.Claim) {
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
			c, other := claim(weir.PerHour(1), 1), under("other", "k", weir.PerHour(1))
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
			list, ok := recall.ReadStates(message)
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
	node := recall.NewNode(memstore.New())
	limit := weir.MustLimit("limit", weir.PerHour(1))
	reset := func(i int) {
		key := fmt.Sprint(strings.Repeat("k", recall.MaxKey-10), i)
		if err := node.Reset(t.Context(), []weir.Claim{{Key: key, Limit: limit}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range recall.MaxWaiting {
		reset(i)
	}
	states := make(map[string]bool)
	for _, message := range node.Messages() {
		list, ok := recall.ReadStates(message)
		if !ok || len(message) > recall.MaxMessage {
			t.Fatalf("a message of %d bytes, understood: %v", len(message), ok)
		}
		for _, s := range list {
			states[s] = true
		}
	}
	if len(states) != recall.MaxWaiting {
		t.Errorf("%d states are told, want %d", len(states), recall.MaxWaiting)
	}
	for i := range 2 * recall.MaxWaiting {
		reset(i)
	}
	all := node.Messages()
	if len(all) != 1 || all[0][0] != 'a' {
		t.Fatalf("%d messages, the first %q; want one that says all", len(all), all[0])
	}
	takes(t, node.Store, 1, claim(weir.PerHour(1), 1))
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
		c := claim(weir.PerHour(1), 1)
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
		c := claim(weir.PerHour(1), 1)
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
	told := recall.NewNode(memstore.New())
	told.Reset(t.Context(), []weir.Claim{under("limit", "key", weir.PerHour(1))})
	whole := told.Messages()[0]
	for n := range len(whole) + 1 {
		node, c := recall.NewNode(memstore.New()), claim(weir.PerHour(1), 1)
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
	node := recall.NewNode(memstore.New(), recall.WithRefusals(8))
	for _, key := range []string{"k", strings.Repeat("k", recall.MaxKey)} {
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
		states, ok := recall.ReadStates(message)
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
		w := newWorld(t, specs[seed%uint64(len(specs))], rand.New(rand.NewPCG(seed, 1)))
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

// A world is two nodes, the messages between them, and the store that knows the truth.
type world struct {
	t      *testing.T
	random *rand.Rand
	now    weir.Instant
	below  *memstore.Store
	nodes  [2]*recall.Node
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

func newWorld(t *testing.T, spec weir.Spec, random *rand.Rand) *world {
	w := &world{t: t, random: random, now: 1_790_000_000_000_000, taken: []weir.Instant{0}}
	w.below = memstore.New(memstore.WithClock(func() weir.Instant { return w.now }))
	t.Cleanup(func() { w.below.Close() })
	clock := recall.WithClock(func() time.Duration { return time.Duration(w.now) * time.Microsecond })
	for i := range w.nodes {
		node := recall.NewNode(shared{w.below}, clock, recall.WithLongest(believed), recall.WithRefusals(64))
		w.nodes[i], w.unsure[i] = node, make(map[weir.Claim]weir.Instant)
		w.limits[i] = weir.MustLimit(fmt.Sprint("limit-", i), spec)
	}
	return w
}

func (w *world) claims() []weir.Claim {
	key := []string{"a", "b"}[w.random.IntN(2)]
	claims := []weir.Claim{{Key: key, Limit: w.limits[0], Cost: w.random.Int64N(4)}}
	if w.random.IntN(2) == 0 {
		claims = append(claims, weir.Claim{Key: key, Limit: w.limits[1], Cost: 1})
	}
	return claims
}

func (w *world) step() {
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
func (w *world) post(from int, err error, claims []weir.Claim) {
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

func (w *world) receive(node int) {
	for _, l := range w.mail[node] {
		w.nodes[node].Hear(l.message)
		for _, c := range l.about {
			delete(w.unsure[node], c)
		}
	}
	w.mail[node] = nil
}

// excused reports whether a node may not know yet that units were given back.
func (w *world) excused(node int, claims []weir.Claim) bool {
	for _, c := range claims {
		c.Cost = 0
		at, unsure := w.unsure[node][c]
		if unsure && time.Duration(w.now-at)*time.Microsecond < believed {
			return true
		}
	}
	return false
}

func (w *world) decide(node int, claims []weir.Claim) {
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
