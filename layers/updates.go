package layers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/pause"
)

const (
	maxMessage = 16 << 10
	maxWaiting = 4096 // queued states; beyond it, one message to forget everything
	sendGap    = time.Millisecond
	sendTime   = time.Second            // of one Publish
	closeTime  = 250 * time.Millisecond // to send what is queued at Close
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// A message is one byte for its kind, 8 bytes for its sender, and a body. Unknown kinds are of newer versions.
const (
	messageHead = 9
	kindAll     = 'a' // no body: forget everything
	kindStates  = 's' // for each state: 8 bytes weir.Limit.Hash, the key's length (uvarint), the key
)

// A changedState is a key under a limit's name and algorithm.
type changedState struct {
	limit uint64
	key   string
}

// A notifier sends and receives invalidations, outside of requests: they wait in a bounded set, so that a key with
// a thousand refunds is sent once.
type notifier struct {
	store     *refusalCache
	sender    uint64
	updates   Updates
	warn      func(string)
	listening atomic.Bool
	stop      context.CancelFunc
	done      sync.WaitGroup

	mu      sync.Mutex
	waiting map[changedState]struct{}
	all     bool
	wake    chan struct{}
}

func newNotifier(s *refusalCache, c refusalConfig) *notifier {
	warn := c.Warn
	if warn == nil {
		warn = func(string) {}
	}
	return &notifier{
		store: s, sender: rand.Uint64(), updates: c.Updates, warn: warn,
		stop: func() {}, waiting: make(map[changedState]struct{}), wake: make(chan struct{}, 1),
	}
}

func (d *notifier) open() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() { d.listen(ctx) })
	d.done.Go(func() { d.send(ctx) })
}

func (d *notifier) close() {
	d.stop()
	d.done.Wait()
}

// enqueue queues a state for other nodes to forget.
func (d *notifier) enqueue(limit uint64, key string) {
	d.mu.Lock()
	_, waits := d.waiting[changedState{limit, key}]
	switch {
	case waits || d.all:
	case len(d.waiting) == maxWaiting:
		d.all = true
		clear(d.waiting)
	default:
		d.waiting[changedState{limit, strings.Clone(key)}] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next returns a message of queued states; nil without states.
func (d *notifier) next() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all {
		d.all = false
		return d.begin(kindAll)
	}
	if len(d.waiting) == 0 {
		return nil
	}
	message := d.begin(kindStates)
	for s := range d.waiting {
		if message = appendState(message, s); len(message) > maxMessage-maxRememberedKey-binary.MaxVarintLen64-8 {
			delete(d.waiting, s)
			break
		}
		delete(d.waiting, s)
	}
	return message
}

func (d *notifier) begin(kind byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, d.sender)
}

func appendState(b []byte, s changedState) []byte {
	b = binary.BigEndian.AppendUint64(b, s.limit)
	b = binary.AppendUvarint(b, uint64(len(s.key)))
	return append(b, s.key...)
}

// readStates calls each for the states of a message. ok is false for an unknown or malformed one.
func readStates(message []byte, each func(limit uint64, key []byte)) (ok bool) {
	if len(message) < messageHead || len(message) > maxMessage || message[0] != kindStates {
		return false
	}
	for rest := message[messageHead:]; len(rest) > 0; {
		if len(rest) < 8 {
			return false
		}
		length, n := binary.Uvarint(rest[8:])
		if n <= 0 || length < 1 || length > maxRememberedKey || length > uint64(len(rest)-8-n) {
			return false
		}
		end := 8 + n + int(length)
		each(binary.BigEndian.Uint64(rest), rest[8+n:end])
		rest = rest[end:]
	}
	return true
}

// receive forgets the states of a message, and everything for an unknown one: a client with write access to the
// channel can make this node call the store, and do no other harm.
func (d *notifier) receive(message []byte) {
	if len(message) >= messageHead && binary.BigEndian.Uint64(message[1:]) == d.sender {
		return // forgotten here at the time of the change
	}
	s := d.store
	if !readStates(message, func(limit uint64, key []byte) {
		s.table.set(s.seed.state(limit, string(key))).forget()
	}) {
		s.table.forget()
	}
}

// send sends messages until ctx ends, with gaps to gather states, and then sends the rest.
func (d *notifier) send(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-d.wake:
		case <-ctx.Done():
		}
		for message := d.next(); message != nil; message = d.next() {
			if !d.deliver(ctx, message) {
				d.flush(ctx, message)
				return
			}
			pause.For(sendGap, ctx.Done())
		}
	}
}

// deliver retries a message until it is sent or ctx ends.
func (d *notifier) deliver(ctx context.Context, message []byte) bool {
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, maxPause) {
		one, cancel := context.WithTimeout(ctx, sendTime)
		err := d.updates.Publish(one, message)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() == nil && wait == firstPause {
			d.warn(fmt.Sprintf("recall: invalidations cannot be sent, and other nodes may refuse returned units "+
				"for up to %v: %v", d.store.longest, err))
		}
		pause.For(wait, ctx.Done())
	}
	return false
}

// flush sends the queue after ctx has ended, for a program that resets a key and exits.
func (d *notifier) flush(ctx context.Context, message []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	for ; message != nil && d.updates.Publish(ctx, message) == nil; message = d.next() {
	}
}

// listen receives until ctx ends.
func (d *notifier) listen(ctx context.Context) {
	for wait := firstPause; ctx.Err() == nil; wait = min(2*wait, maxPause) {
		err := d.updates.Subscribe(ctx, d.receive, func() {
			d.store.table.forget()
			d.listening.Store(true)
		})
		if d.listening.Swap(false) {
			wait = firstPause
		}
		if ctx.Err() == nil && wait == firstPause {
			d.warn(fmt.Sprintf("recall: invalidations are not received, and this node may refuse units "+
				"returned on other nodes for up to %v: %v", d.store.longest, err))
		}
		pause.For(wait/2+time.Duration(rand.Int64N(int64(wait/2))), ctx.Done())
	}
}
