package recall

import (
	"time"
	"unsafe"

	"github.com/weirproject/weir"
)

// An Option changes a Config.
type Option func(*Config)

// NewWith is New with options.
func NewWith(next weir.Store, options ...Option) *Store {
	var config Config
	for _, option := range options {
		option(&config)
	}
	return New(next, config)
}

// WithLongest sets Config.Longest.
func WithLongest(longest time.Duration) Option { return func(c *Config) { c.Longest = longest } }

// WithRefusals sets how many refusals are remembered.
func WithRefusals(n int) Option { return func(c *Config) { c.refusals = n } }

// WithUpdates sets Config.Updates.
func WithUpdates(updates Updates) Option { return func(c *Config) { c.Updates = updates } }

// WithClock sets Config.Clock.
func WithClock(clock func() time.Duration) Option { return func(c *Config) { c.Clock = clock } }

// WithWarn sets Config.Warn.
func WithWarn(warn func(text string)) Option { return func(c *Config) { c.Warn = warn } }

// A Node is a layer whose messages the test carries.
type Node struct{ *Store }

// NewNode makes one.
func NewNode(next weir.Store, opts ...Option) *Node {
	s := NewWith(next, opts...)
	s.notifier = newNotifier(s, Config{})
	return &Node{s}
}

// Messages returns the queued messages.
func (n *Node) Messages() (messages [][]byte) {
	for message := n.notifier.next(); message != nil; message = n.notifier.next() {
		messages = append(messages, message)
	}
	return messages
}

// Hear receives one.
func (n *Node) Hear(message []byte) { n.notifier.receive(message) }

// ReadStates reads a message.
func ReadStates(message []byte) (states []string, ok bool) {
	ok = readStates(message, func(limit uint64, key []byte) {
		states = append(states, string(appendState(nil, state{limit, string(key)})))
	})
	return states, ok
}

// Kept counts the refusals that hold.
func (s *Store) Kept() (n int) {
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
func (s *Store) Room() int { return len(s.table.sets) * ways }

// SetSize is the size of a set in memory.
const SetSize = unsafe.Sizeof(set{})

// MaxMessage is the longest message.
const MaxMessage = maxMessage

// MaxWaiting is how many states wait at most.
const MaxWaiting = maxWaiting
