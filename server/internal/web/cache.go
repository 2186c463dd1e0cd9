package web

import "sync"

// A Cache is a map of a bounded number of entries, because callers choose the keys. A full one is cleared: choosing
// well would cost ordinary callers more than making an entry again. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	most    int
	mu      sync.RWMutex
	entries map[K]V
}

// NewCache makes a cache of at most so many entries.
func NewCache[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, entries: make(map[K]V)}
}

// Get returns the value of a key.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.RLock()
	value, ok = c.entries[key]
	c.mu.RUnlock()
	return value, ok
}

// Put sets the value of a key.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= c.most {
		clear(c.entries)
	}
	c.entries[key] = value
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}
