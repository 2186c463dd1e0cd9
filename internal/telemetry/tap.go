package telemetry

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// perTick is the capacity of a tap, which is emptied each tick: two taps are at most 20,000 samples a second.
const (
	tick    = 100 * time.Millisecond
	perTick = 1000
)

// maxText is the most bytes of a key, of a request id, and of a method with a path that are copied.
const maxText = 64

// A tap takes decisions that are drawn at random with a probability that adapts to the traffic. It never waits:
// what does not fit, or arrives while another goroutine writes, is lost and counted.
type tap struct {
	least atomic.Uint64 // a draw from here on is taken; 0: all
	lost  atomic.Uint64
	taken atomic.Uint64

	mu     sync.Mutex
	events []event
	spare  []event
	missed uint64 // lost and taken at the last drain
}

// An event is a decision, or the name of a key. Its texts are in arrays, because a verdict's are reused.
type event struct {
	at   time.Time
	rule *rules.Rule // nil: none decided
	keyed
	more    bool // of a decision that another event stands for
	outcome gate.Outcome
	reason  gate.Reason
	cost    int64
	wait    time.Duration
	client  netip.Addr
	key     text
	id      text
	target  text // method, blank, path
}

// keyed says where a request was counted for its key.
type keyed struct {
	watched *watched // nil: the keys of the rule are not watched
	hash    uint64
	counted bool // in the table of watched
	refused bool
}

// A text is a copy of at most maxText bytes.
type text struct {
	size  uint8
	bytes [maxText]byte
}

func (t *text) set(s string) { t.size = uint8(copy(t.bytes[:], s)) }

func (t *text) add(s string) { t.size += uint8(copy(t.bytes[t.size:], s)) }

func (t *text) String() string { return string(t.bytes[:t.size]) }

func newTap() *tap {
	return &tap{events: make([]event, 0, perTick), spare: make([]event, 0, perTick)}
}

// draws reports whether a decision with a random number is drawn.
func (t *tap) draws(noise uint64) bool { return noise >= t.least.Load() }

// begin returns an event to be filled, and then passed on by end; nil: the event is lost.
func (t *tap) begin() *event {
	if !t.mu.TryLock() {
		t.lost.Add(1)
		return nil
	}
	if len(t.events) == cap(t.events) {
		t.mu.Unlock()
		t.lost.Add(1)
		return nil
	}
	t.events = t.events[:len(t.events)+1]
	return &t.events[len(t.events)-1]
}

func (t *tap) end() { t.mu.Unlock() }

// drain returns the events since the last call, which are valid until the next one, and the number of decisions
// that each stands for. It adapts the probability, so that a tick takes about half of what fits.
func (t *tap) drain() (events []event, weight float64) {
	t.mu.Lock()
	events, t.events, t.spare = t.events, t.spare[:0], t.events
	t.mu.Unlock()
	lost := t.lost.Load()
	drawn := float64(len(events)) + float64(lost-t.missed)
	t.missed = lost
	t.taken.Add(uint64(len(events)))
	p := t.probability()
	if len(events) > 0 {
		weight = drawn / float64(len(events)) / p
	}
	switch {
	case drawn > perTick*3/4:
		p *= perTick / 2 / drawn
	case drawn < perTick/4:
		p = min(1, 2*p)
	}
	t.least.Store(uint64((1 - p) * math.MaxUint64))
	return events, weight
}

// probability is the probability of being drawn.
func (t *tap) probability() float64 { return 1 - float64(t.least.Load())/math.MaxUint64 }
