package resp

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/weirproject/weir"
)

const (
	// mostCompiled is how many limits are kept ready; longestCompiled is the longest text
	// that is kept. Strangers choose both the numbers and how many of them.
	mostCompiled    = 1024
	longestCompiled = 256
)

// compiled keeps limits that were asked for, by the words that they were asked for with,
// so that words that come again are not read again.
type compiled struct {
	mu     sync.RWMutex
	limits map[string]*weir.Limit
}

func newCompiled() *compiled { return &compiled{limits: make(map[string]*weir.Limit)} }

// get is the limit of these words, or nil.
func (c *compiled) get(words []byte) *weir.Limit {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.limits[unsafe.String(unsafe.SliceData(words), len(words))]
}

// put keeps a limit. Where there are too many, any other makes room: choosing well would
// cost those who do no harm more than reading words again costs.
func (c *compiled) put(words []byte, limit *weir.Limit) {
	if len(words) > longestCompiled {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.limits {
		if len(c.limits) < mostCompiled {
			break
		}
		delete(c.limits, other)
	}
	c.limits[strings.Clone(unsafe.String(unsafe.SliceData(words), len(words)))] = limit
}

// key is one string made of words, none of which can pass for another's: a limit that
// could be read has no zero byte in its words, so what has one more finds nothing.
func (c *conn) key(kind byte, words ...[]byte) []byte {
	c.scratch = append(c.scratch[:0], kind)
	for _, word := range words {
		c.scratch = append(append(c.scratch, word...), 0)
	}
	return c.scratch
}
