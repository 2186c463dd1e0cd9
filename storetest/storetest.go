// Package storetest is the conformance suite that every [weir.Store] passes: the
// embedded one, Redis, and every layer that promises exactness.
//
//	func TestStore(t *testing.T)   { storetest.Run(t, open) }
//	func TestVectors(t *testing.T) { storetest.Vectors(t, open) }
//
// It drives the store's clock, compares each field of each decision with a slow model
// that was written apart from the stores, and holds both to the promises of the limits.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir"
)

// A Subject opens a fresh, empty store; several are asked for at once. If clock is not nil it drives the store: it may
// be called from several goroutines, and it may step back. The suite closes the store.
type Subject func(t testing.TB, clock func() weir.Instant) Handle

// A Handle is a store under test, and what can be done to its state from outside. A nil
// function says that it cannot be done.
type Handle struct {
	weir.Store

	// Peer opens another handle on the same state, with the same clock: another node.
	Peer func() weir.Store
	// Foreign are ways to put state that is not weir's where a claim's state would be,
	// by name: another type, garbage, a newer version. Each returns a function that
	// reports whether it is still there, unchanged.
	Foreign map[string]func(claim weir.Claim) (unchanged func() bool)
	// Keys counts the keys that hold state now, and those of them that would stay for ever.
	Keys func() (live, everlasting int)
	// Work is what the store has had a server do so far; Costs needs it.
	Work func() Work
	// Recalls says that the store remembers refusals: other numbers of a limit that only another
	// handle (Peer) uses are not noticed, so no peer is given any. All else is compared as ever.
	Recalls bool
}

// TB is what a check needs of a test: less than testing.TB, so that the suite can test itself.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A driven clock.
type clock struct{ now atomic.Int64 }

func (c *clock) read() weir.Instant { return weir.Instant(c.now.Load()) }
func (c *clock) set(now int64)      { c.now.Store(now) }

// A bench is a store on a driven clock, and the means to ask it for one thing in a line.
type bench struct {
	Handle
	peer  weir.Store // the store itself if it has no peer
	clock *clock
	keys  atomic.Int64
}

func open(t testing.TB, s Subject) *bench {
	t.Helper()
	b := &bench{clock: &clock{}}
	b.clock.set(epoch)
	b.Handle = s(t, b.clock.read)
	closeAfter(t, b.Store)
	b.peer = b.Store
	if b.Peer != nil {
		b.peer = b.Peer()
		closeAfter(t, b.peer)
	}
	return b
}

func closeAfter(t testing.TB, store weir.Store) {
	t.Cleanup(func() {
		if err := store.Close(); err != nil && !errors.Is(err, weir.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
}

// epoch is when the driven clocks start: a plain instant of 2026.
const epoch = 1_790_000_000_123_456

// key is one that nobody used.
func (b *bench) key() string { return fmt.Sprint("key-", b.keys.Add(1)) }

// keysTogether are n different keys in one slot of a Redis Cluster: only there is a
// decision over several of them exact.
func (b *bench) keysTogether(n int) []string {
	tag, keys := b.key(), make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("{%s}-%d", tag, i)
	}
	return keys
}

// decide fails the test on an error.
func (b *bench) decide(t TB, times int64, claims ...weir.Claim) (int64, []weir.Decision) {
	t.Helper()
	decisions := make([]weir.Decision, len(claims))
	granted, err := b.Decide(context.Background(), claims, times, decisions)
	if err != nil {
		t.Fatalf("Decide(%s, times %d): %v", claimsText(claims), times, err)
	}
	return granted, decisions
}

func claimsText(claims []weir.Claim) string {
	text := ""
	for i, c := range claims {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d of %s", c.Cost, c.Limit)
		if c.Lease != "" {
			text += fmt.Sprintf(" lease %q", c.Lease)
		}
		if c.Renew {
			text += " renewed"
		}
	}
	return text
}

// Run runs everything but the vectors, which Vectors does: in parallel, as some of it waits
// for state to expire. A store that is a [weir.Batcher] is asked for batches too. Under the race
// detector it is shorter.
func Run(t *testing.T, s Subject) {
	for _, part := range []struct {
		name  string
		check func(*testing.T, Subject)
	}{
		{"expiry", expiry}, {"properties", properties}, {"bad input", badInput}, {"foreign state", foreignState},
		{"linearizable", linearizable}, {"numbers change", numbersChange}, {"batches", batches}, {"known faults", knownFaults},
		{"conditions", conditions},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.check(t, s)
		})
	}
}
