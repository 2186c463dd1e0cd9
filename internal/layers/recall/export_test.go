package recall

import (
	"unsafe"

	"github.com/weirproject/weir"
)

// A Node is a layer whose messages the test carries.
type Node struct{ *Store }

// NewNode makes one.
func NewNode(next weir.Store, opts ...Option) (*Node, error) {
	s, err := New(next, opts...)
	if err == nil {
		s.notifier = newNotifier(s, nil, nil)
	}
	return &Node{s}, err
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
