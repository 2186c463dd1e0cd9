package web

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirproject/weir/internal/bounds"
)

// ShortKey is a caller's key as stores get it: a key of more than bounds.PlainKey bytes is hashed, which
// bounds the bytes that a store keeps. Equal keys stay equal, on every node.
func ShortKey(key string) string {
	if len(key) <= bounds.PlainKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
