package redisstore

import "github.com/weirproject/weir"

// KeyOf is where a store keeps a claim's state.
func KeyOf(s *Store, c *weir.Claim) string { return s.key(c) }

// HasKind reports whether an algorithm is decided here.
func HasKind(a weir.Algorithm) bool { return int(a) < len(algorithms) && algorithms[a].kind != nil }
