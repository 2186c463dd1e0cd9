package gateway_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/weirproject/weir/httplimit"
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

// TestBombs: of a small response that has 300 MiB of JSON, in any encoding, 256 MiB are read, in memory that does not grow
// with them. It costs its estimate, and the client gets it as it is. A short test reads a shorter one, to its end.
func TestBombs(t *testing.T) {
	length, want := 300<<20, int64(505) // the limit of what is read comes first
	if testing.Short() {
		length, want = 20<<20, 2
	}
	for name, compress := range map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 1) },
		"zstd": func(w io.Writer) io.WriteCloser {
			e, _ := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			var bomb bytes.Buffer
			w := compress(&bomb)
			io.WriteString(w, `{"usage":{"total_tokens":1},"text":[`)
			for range length / len(blank) {
				w.Write(blank)
			}
			io.WriteString(w, `],"usage":{"total_tokens":2}}`)
			w.Close()
			if bomb.Len() > length/500 {
				t.Fatalf("the response has %d bytes", bomb.Len())
			}
			e := engineWith(t, "memory", modelRules(100_000))
			limit, err := e.Middleware(&httplimit.RuleOptions{Decoders: gateway.Decoders()})
			if err != nil {
				t.Fatal(err)
			}
			handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Encoding", name)
				w.Write(bomb.Bytes())
			}))
			r := httptest.NewRequest("POST", "/openai", strings.NewReader(`{"max_tokens":500}`))
			r.Header.Set("X-Team", "a")
			to := &counter{header: make(http.Header)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			handler.ServeHTTP(to, r)
			runtime.ReadMemStats(&after)
			if all := after.TotalAlloc - before.TotalAlloc; all > 32<<20 {
				t.Errorf("%d bytes were allocated", all)
			}
			if got := spentOn(t, e, 0, 100_000); got != want || to.bytes != bomb.Len() {
				t.Errorf("%d are charged, and %d bytes sent of %d", got, to.bytes, bomb.Len())
			}
		})
	}
}

var blank = bytes.Repeat([]byte(" "), 1<<20)

// A counter is a client that keeps nothing.
type counter struct {
	header http.Header
	bytes  int
}

func (c *counter) Header() http.Header { return c.header }
func (c *counter) WriteHeader(int)     {}
func (c *counter) Write(b []byte) (int, error) {
	c.bytes += len(b)
	return len(b), nil
}

// pieces reads at most three bytes at once.
type pieces struct{ io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(3, len(b))]) }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
