package api

import (
	"strings"
	"sync"

	"github.com/weirproject/weir"
)

// maxRemembered is how many limits are kept read. Callers choose the texts, so there must
// be an end; at it all are forgotten, which costs reading them again.
const maxRemembered = 16384

// limits remembers what was read and written of limits: parsing and printing one takes as
// long as the rest of a decision.
type limits struct {
	read    remembered[named, *weir.Limit]
	written remembered[*weir.Limit, []byte]
}

// named is a limit as a caller writes it.
type named struct{ name, text string }

func newLimits() *limits {
	return &limits{
		read:    remembered[named, *weir.Limit]{known: make(map[named]*weir.Limit)},
		written: remembered[*weir.Limit, []byte]{known: make(map[*weir.Limit][]byte)},
	}
}

// limit is that of a name and a text. The strings may lie in a buffer that is used again.
func (l *limits) limit(name, text string) (*weir.Limit, error) {
	if limit, ok := l.read.get(named{name, text}); ok {
		return limit, nil
	}
	name, text = strings.Clone(name), strings.Clone(text)
	spec, err := weir.ParseLimit(text)
	if err != nil {
		return nil, err
	}
	limit, err := weir.NewLimit(name, spec)
	if err != nil {
		return nil, err
	}
	l.read.put(named{name, text}, limit)
	return limit, nil
}

// append writes a limit as members of an object: its name, and its text as callers write
// it. Both are of plain letters.
func (l *limits) append(b []byte, limit *weir.Limit) []byte {
	text, ok := l.written.get(limit)
	if !ok {
		text = append(text, `"name":`...)
		text = appendString(text, limit.Name())
		text = append(text, `,"limit":`...)
		text = appendString(text, limit.String())
		l.written.put(limit, text)
	}
	return append(b, text...)
}

// remembered is a map that never grows beyond maxRemembered.
type remembered[K comparable, V any] struct {
	mu    sync.RWMutex
	known map[K]V
}

func (r *remembered[K, V]) get(key K) (V, bool) {
	r.mu.RLock()
	value, ok := r.known[key]
	r.mu.RUnlock()
	return value, ok
}

func (r *remembered[K, V]) put(key K, value V) {
	r.mu.Lock()
	if len(r.known) >= maxRemembered {
		clear(r.known)
	}
	r.known[key] = value
	r.mu.Unlock()
}
