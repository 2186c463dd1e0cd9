package resp

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/weirproject/weir"
)

const (
	maxCachedLimits = 1024
	maxCachedWords  = 256 // bytes of the words of a cached limit
)

// A limitCache holds compiled limits by the words of the commands that name them. Clients choose the
// words, so it is bounded.
type limitCache struct {
	mu     sync.RWMutex
	limits map[string]*weir.Limit
}

func newLimitCache() *limitCache { return &limitCache{limits: make(map[string]*weir.Limit)} }

// get is the limit of these words, or nil.
func (c *limitCache) get(words []byte) *weir.Limit {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.limits[text(words)]
}

// put adds a limit. In a full cache it replaces any other: choosing well would cost ordinary clients
// more than compiling a limit again.
func (c *limitCache) put(words []byte, limit *weir.Limit) {
	if len(words) > maxCachedWords {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.limits {
		if len(c.limits) < maxCachedLimits {
			break
		}
		delete(c.limits, other)
	}
	c.limits[strings.Clone(text(words))] = limit
}

// key joins words into one text, which no other words have: a limit that could be read has no zero
// byte in its words.
func (c *conn) key(kind byte, words ...[]byte) []byte {
	c.scratch = append(c.scratch[:0], kind)
	for _, word := range words {
		c.scratch = append(append(c.scratch, word...), 0)
	}
	return c.scratch
}

// text is bytes as a string, valid as long as the bytes do not change.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
