// Package storetest is the conformance suite that every [weir.Store] passes: the
// embedded one, Redis, and the stacks of layers that rules ask for.
//
//	func TestStore(t *testing.T)   { storetest.Run(t, open) }
//	func TestVectors(t *testing.T) { storetest.Vectors(t, open) }
//
// It drives the store's clock, compares each field of each decision with a slow, independent
// model, and checks the promises of the limits on both.
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

// A Handle is a store under test, with functions that act on its state from outside. A function
// that the store cannot have is nil.
type Handle struct {
	weir.Store

	// Peer opens another handle on the same state, with the same clock: another node.
	Peer func() weir.Store
	// Foreign are ways to write foreign state under a claim's key, by name: another type,
	// garbage, a newer version. Each returns a function that reports whether that state is still
	// there, unchanged.
	Foreign map[string]func(claim weir.Claim) (unchanged func() bool)
	// Keys counts the keys that hold state now, and those of them without an expiry.
	Keys func() (live, everlasting int)
	// Work is the load of the store's server so far; Costs needs it.
	Work func() Work
	// Recalls: the store remembers refusals, and does not notice other numbers of a limit that only
	// a Peer uses. Peers then use the same numbers; everything else is compared.
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

// A fixture is a store on a driven clock, with helpers for single calls.
type fixture struct {
	Handle
	peer  weir.Store // the store itself if it has no peer
	clock *clock
	keys  atomic.Int64
}

func open(t testing.TB, s Subject) *fixture {
	t.Helper()
	b := &fixture{clock: &clock{}}
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

// epoch is the start of the driven clocks: a plain instant of 2026.
const epoch = 1_790_000_000_123_456

// key is a new key.
func (b *fixture) key() string { return fmt.Sprint("key-", b.keys.Add(1)) }

// keysTogether are n different keys in one slot of a Redis Cluster: only there is a
// decision over several of them exact.
func (b *fixture) keysTogether(n int) []string {
	tag, keys := b.key(), make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("{%s}-%d", tag, i)
	}
	return keys
}

// decide fails the test on an error.
func (b *fixture) decide(t TB, times int64, claims ...weir.Claim) (int64, []weir.Decision) {
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

// Run runs the suite except Vectors: in parallel, because some parts wait for state to expire. A store that
// is a [weir.Batcher] is asked for batches too. Its length is in proportion to RAPID_CHECKS, which is 100 by default.
func Run(t *testing.T, s Subject) {
	for _, part := range []struct {
		name  string
		check func(*testing.T, Subject)
	}{
		{"expiry", expiry}, {"properties", properties}, {"bad input", badInput}, {"foreign state", foreignState},
		{"linearizable", linearizable}, {"numbers change", numbersChange}, {"batches", batches},
		{"known faults", knownFaults},
		{"conditions", conditions}, {"ids", ids},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.check(t, s)
		})
	}
}
