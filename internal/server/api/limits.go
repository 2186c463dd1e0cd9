package api

import (
	"strings"
	"sync"

	"github.com/weirproject/weir"
)

// maxCached is the number of limits in a cache. Callers choose the texts, so it is bounded: a full cache
// is cleared.
const maxCached = 16384

// limits caches parsed and printed limits: parsing or printing one takes as long as the rest of a
// decision.
type limits struct {
	parsed  cache[named, *weir.Limit]
	printed cache[*weir.Limit, []byte]
}

// A named limit is one as a caller writes it.
type named struct{ name, text string }

func newLimits() *limits {
	return &limits{
		parsed:  cache[named, *weir.Limit]{entries: make(map[named]*weir.Limit)},
		printed: cache[*weir.Limit, []byte]{entries: make(map[*weir.Limit][]byte)},
	}
}

// limit parses a limit. The strings may be in memory that is reused.
func (l *limits) limit(name, text string) (*weir.Limit, error) {
	if limit, ok := l.parsed.get(named{name, text}); ok {
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
	l.parsed.put(named{name, text}, limit)
	return limit, nil
}

// append appends a limit as two members of an object: its name, and its text as callers write it.
func (l *limits) append(b []byte, limit *weir.Limit) []byte {
	text, ok := l.printed.get(limit)
	if !ok {
		text = append(text, `"name":`...)
		text = appendString(text, limit.Name())
		text = append(text, `,"limit":`...)
		text = appendString(text, limit.String())
		l.printed.put(limit, text)
	}
	return append(b, text...)
}

// A cache is a map of at most maxCached entries.
type cache[K comparable, V any] struct {
	mu      sync.RWMutex
	entries map[K]V
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.RLock()
	value, ok := c.entries[key]
	c.mu.RUnlock()
	return value, ok
}

func (c *cache[K, V]) put(key K, value V) {
	c.mu.Lock()
	if len(c.entries) >= maxCached {
		clear(c.entries)
	}
	c.entries[key] = value
	c.mu.Unlock()
}
