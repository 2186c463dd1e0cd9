//go:build !small

package gateway

import (
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/weirproject/weir/httplimit"
)

// maxWindow is the most memory that a response compressed with zstd takes: browsers accept as much (RFC 9659).
const maxWindow = 8 << 20

// Decoders read copies of compressed responses, besides gzip.
func Decoders() httplimit.Decoders {
	return httplimit.Decoders{
		"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
		"zstd": func(r io.Reader) (io.Reader, error) { // without goroutines, which would have to be ended
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
				zstd.WithDecoderLowmem(true))
		},
	}
}
