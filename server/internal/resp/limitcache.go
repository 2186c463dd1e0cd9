package resp

import (
	"unsafe"

	"github.com/weirproject/weir"
)

const (
	maxCachedLimits = 1024
	maxCachedWords  = 256 // bytes of the words of a cached limit
)

// compiled is the limit of the words of a command that name it, or nil.
func (s *Server) compiled(words []byte) *weir.Limit {
	limit, _ := s.limits.Get(text(words))
	return limit
}

// remember adds a limit to those compiled.
func (s *Server) remember(words []byte, limit *weir.Limit) {
	if len(words) <= maxCachedWords {
		s.limits.Put(string(words), limit)
	}
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
