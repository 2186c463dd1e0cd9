package gateway_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/weirproject/weir/server/internal/gateway"
)

// TestDecoders: what was compressed is read, in pieces too, and a window that takes much memory is refused.
func TestDecoders(t *testing.T) {
	text := strings.Repeat(`{"usage":{"in":7,"out":5}}`, 100_000)
	for name, compress := range map[string]func(io.Writer) io.WriteCloser{
		"br": func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			e, _ := zstd.NewWriter(w)
			return e
		},
	} {
		var b bytes.Buffer
		w := compress(&b)
		io.WriteString(w, text)
		w.Close()
		r, err := gateway.Decoders()[name](pieces{&b})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b, zstd.WithWindowSize(64<<20))
	io.Copy(w, io.LimitReader(zeros{}, 128<<20))
	w.Close()
	if r, err := gateway.Decoders()["zstd"](&b); err == nil {
		if n, err := io.Copy(io.Discard, r); err == nil {
			t.Errorf("a window of 64 MiB: %d bytes are read", n)
		}
	}
}

// pieces reads at most three bytes at once.
type pieces struct{ io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(3, len(b))]) }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
