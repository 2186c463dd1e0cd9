//go:build small

package gateway

import "github.com/weirproject/weir/httplimit"

// Decoders returns nil: gzip is the only compression that a small program reads.
func Decoders() httplimit.Decoders { return nil }
