package recall

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// News carries messages between the nodes that share a store, such as [redisstore.News].
// It is safe for concurrent use.
//
// [redisstore.News]: https://pkg.go.dev/github.com/weirproject/weir/redisstore#News
type News interface {
	// Tell sends a message of at most 16 KiB to all who listen, itself included or not. It
	// may be sent twice.
	Tell(ctx context.Context, message []byte) error

	// Listen calls hear for each message until it no longer can, and says why; it is called
	// again then. It calls missed once it listens: what was told before may not have been
	// heard. Neither call waits for anything.
	Listen(ctx context.Context, hear func(message []byte), missed func()) error
}

const (
	maxMessage = 16 << 10
	maxWaiting = 4096 // states to be told of; where there are more, all is to be forgotten
	tellGap    = time.Millisecond
	tellTime   = time.Second // of one Tell
	lastWords  = 250 * time.Millisecond
	firstPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
)

// A message is one byte, 8 bytes that are its sender's own, and what the first byte says.
// Other ones are of a newer version.
const (
	head       = 9
	kindAll    = 'a' // nothing: forget all
	kindStates = 's' // for each state 8 bytes weir.Limit.Hash, the key's length (uvarint), the key
)

// A state is where a key's state lies: under which limit's name and algorithm.
type state struct {
	limit uint64
	key   string
}

// A desk tells and hears news, never in the way of a request: what is to be told waits in a
// bounded set, in which a key that is given back to a thousand times stands once.
type desk struct {
	store     *Store
	sender    uint64
	news      News
	warn      func(string)
	listening atomic.Bool
	stop      context.CancelFunc
	done      sync.WaitGroup

	mu      sync.Mutex
	waiting map[state]struct{}
	all     bool
	wake    chan struct{}
}

func newDesk(s *Store, news News, warn func(string)) *desk {
	if warn == nil {
		warn = func(string) {}
	}
	return &desk{store: s, sender: rand.Uint64(), news: news, warn: warn, stop: func() {}, waiting: make(map[state]struct{}), wake: make(chan struct{}, 1)}
}

func (d *desk) open() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() { d.listen(ctx) })
	d.done.Go(func() { d.send(ctx) })
}

func (d *desk) close() {
	d.stop()
	d.done.Wait()
}

// tell has other nodes forget a state, soon.
func (d *desk) tell(limit uint64, key string) {
	d.mu.Lock()
	_, waits := d.waiting[state{limit, key}]
	switch {
	case waits || d.all:
	case len(d.waiting) == maxWaiting:
		d.all = true
		clear(d.waiting)
	default:
		d.waiting[state{limit, strings.Clone(key)}] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next is a message of what waits; nil if nothing does.
func (d *desk) next() []byte {
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
		if message = appendState(message, s); len(message) > maxMessage-MaxKey-binary.MaxVarintLen64-8 {
			delete(d.waiting, s)
			break
		}
		delete(d.waiting, s)
	}
	return message
}

func (d *desk) begin(kind byte) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, d.sender)
}

func appendState(b []byte, s state) []byte {
	b = binary.BigEndian.AppendUint64(b, s.limit)
	b = binary.AppendUvarint(b, uint64(len(s.key)))
	return append(b, s.key...)
}

// readStates calls each for the states of a message. ok is false where it is not understood.
func readStates(message []byte, each func(limit uint64, key []byte)) (ok bool) {
	if len(message) < head || len(message) > maxMessage || message[0] != kindStates {
		return false
	}
	for rest := message[head:]; len(rest) > 0; {
		if len(rest) < 8 {
			return false
		}
		length, n := binary.Uvarint(rest[8:])
		if n <= 0 || length < 1 || length > MaxKey || length > uint64(len(rest)-8-n) {
			return false
		}
		end := 8 + n + int(length)
		each(binary.BigEndian.Uint64(rest), rest[8+n:end])
		rest = rest[end:]
	}
	return true
}

// hear forgets what another node tells, and everything where it does not understand: anybody
// who may write to the channel can make it ask the store, and nothing else.
func (d *desk) hear(message []byte) {
	if len(message) >= head && binary.BigEndian.Uint64(message[1:]) == d.sender {
		return // what it tells was forgotten here when it happened
	}
	s := d.store
	if !readStates(message, func(limit uint64, key []byte) {
		s.table.set(mix(maphash.Bytes(s.seed, key), limit)).forget()
	}) {
		s.table.forget()
	}
}

// send tells one message after the other, with a gap in which more can come together, until
// ctx is over, and then what is left.
func (d *desk) send(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-d.wake:
		case <-ctx.Done():
		}
		for message := d.next(); message != nil; message = d.next() {
			if !d.deliver(ctx, message) {
				d.leave(ctx, message)
				return
			}
			sleep(ctx, tellGap)
		}
	}
}

// deliver tries until a message is told, or ctx is over.
func (d *desk) deliver(ctx context.Context, message []byte) bool {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		one, cancel := context.WithTimeout(ctx, tellTime)
		err := d.news.Tell(one, message)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() == nil && pause == firstPause {
			d.warn(fmt.Sprintf("recall: other nodes cannot be told what was given back, and may refuse it for up to %v: %v", d.store.longest, err))
		}
		sleep(ctx, pause)
	}
	return false
}

// leave tells what is left although ctx is over: a program that resets a key and ends.
func (d *desk) leave(ctx context.Context, message []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	for ; message != nil && d.news.Tell(ctx, message) == nil; message = d.next() {
	}
}

// listen hears until ctx is over.
func (d *desk) listen(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		err := d.news.Listen(ctx, d.hear, func() {
			d.store.table.forget()
			d.listening.Store(true)
		})
		if d.listening.Swap(false) {
			pause = firstPause
		}
		if ctx.Err() == nil && pause == firstPause {
			d.warn(fmt.Sprintf("recall: what other nodes give back is not heard, and may be refused here for up to %v: %v", d.store.longest, err))
		}
		sleep(ctx, pause/2+rand.N(pause/2))
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
