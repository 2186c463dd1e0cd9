package redissource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// reloadAll is the message that requests a reading of all hashes.
const reloadAll = "RELOAD_ALL"

// queued is the number of messages that may wait. With more, everything is read instead.
const queued = 256

// An inbox is filled by the connection's reader, which must not block.
type inbox struct {
	all  func(string) bool // the state's
	wake chan struct{}     // has a value if take returns anything

	mu       sync.Mutex
	messages []string
	reload   bool // everything is to be read; one stands for any number
	before   int  // messages that came before the last request to read everything
}

func newInbox(all func(string) bool) *inbox { return &inbox{all: all, wake: make(chan struct{}, 1)} }

func (b *inbox) put(text string) {
	all := b.all(text)
	if len(text) > MaxMessage { // a truncated message is invalid JSON, and is reported as such
		text = fmt.Sprintf("%.40s… (%d bytes; at most %d)", text, len(text), MaxMessage)
	}
	b.mu.Lock()
	if all || len(b.messages) >= queued {
		b.reload, b.before = true, len(b.messages)
	} else {
		b.messages = append(b.messages, text)
	}
	b.mu.Unlock()
	b.signal()
}

// refetch requests a reading of everything.
func (b *inbox) refetch() {
	b.mu.Lock()
	b.reload, b.before = true, len(b.messages)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns the messages that a reading of everything supersedes, if all is true, and the messages that came later.
func (b *inbox) take() (superseded, later []string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	superseded, later, all = b.messages[:b.before], b.messages[b.before:], b.reload
	b.messages, b.reload, b.before = nil, false, 0
	return superseded, later, all
}

var errMessage = errors.New("allowed: RELOAD_ALL, or one rule as a JSON object of the hash's fields with its id, " +
	`such as {"id":"login","deleted":true}`)

// decode reads the fields of a message. Numbers and booleans may be of JSON or strings, as in
// hashes.
func decode(text string) (map[string]string, error) {
	if !utf8.ValidString(text) { // the decoder would replace characters
		return nil, errMessage
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, errMessage
	}
	fields := make(map[string]string)
	for d.More() {
		if err := field(d, fields); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errMessage
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the object; send one rule a message")
	}
	return fields, nil
}

func field(d *json.Decoder, fields map[string]string) error {
	key, err := d.Token()
	name, ok := key.(string)
	if err != nil || !ok {
		return errMessage
	}
	if _, twice := fields[name]; twice {
		return fmt.Errorf("field %.80q is given twice", name)
	}
	value, err := d.Token()
	if err == nil && value == json.Delim('[') {
		value, err = typed(d)
	}
	if err != nil {
		return errMessage
	}
	switch v := value.(type) {
	case string:
		fields[name] = v
	case json.Number:
		fields[name] = v.String()
	case bool:
		fields[name] = fmt.Sprint(v)
	default:
		return fmt.Errorf("field %.80q is not a string, number, true or false; leave out what has no value", name)
	}
	return nil
}
