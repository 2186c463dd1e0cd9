package httplimit

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// Decoders are functions that decompress bodies of responses, by their Content-Encoding in lower case, such as br. They
// read a copy: the response is sent as it is.
type Decoders map[string]func(io.Reader) (io.Reader, error)

// maxDecoded bounds the bytes of a compressed response that are read: a small one may have many.
const maxDecoded = 256 << 20

// reader returns a writer for the body of the response, from which the answer gets the cost; nil if it is not read.
func (s *served) reader(h http.Header, decoders Decoders) io.WriteCloser {
	body := s.answer.Body(h.Get("Content-Type"))
	if body == nil {
		return nil
	}
	encodings := h["Content-Encoding"]
	switch {
	case len(encodings) == 0:
		return body
	case len(encodings) > 1:
		return nil
	}
	switch encoding := strings.ToLower(strings.TrimSpace(encodings[0])); encoding {
	case "", "identity":
		return body
	case "gzip", "x-gzip":
		return newDecoded(body, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) })
	default:
		if decoder := decoders[encoding]; decoder != nil {
			return newDecoded(body, decoder)
		}
	}
	return nil
}

// decoded decompresses what is written to it, on a goroutine that ends with Close.
type decoded struct {
	*io.PipeWriter
	done chan struct{}
}

func newDecoded(to io.WriteCloser, decoder func(io.Reader) (io.Reader, error)) *decoded {
	from, w := io.Pipe()
	d := &decoded{w, make(chan struct{})}
	go func() {
		defer close(d.done)
		decode(to, from, decoder)
		from.CloseWithError(io.ErrClosedPipe) // later writes do not wait
		to.Close()
	}()
	return d
}

// decode decompresses what it can. A panic of a decoder, by bytes of the service, would end the process here: it is as
// an error, after which the response states no cost.
func decode(to io.Writer, from io.Reader, decoder func(io.Reader) (io.Reader, error)) {
	defer func() { _ = recover() }()
	if r, err := decoder(from); err == nil {
		io.Copy(to, io.LimitReader(r, maxDecoded))
	}
}

// Close waits until all that was written is read.
func (d *decoded) Close() error {
	d.PipeWriter.Close()
	<-d.done
	return nil
}
