package web

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// minCompressed is the smallest size of a compressed answer, in bytes: smaller ones fit a packet or two.
const minCompressed = 2 << 10

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// Gzip returns a body compressed, or nil if it is too small.
func Gzip(body []byte) []byte {
	if len(body) < minCompressed {
		return nil
	}
	var out bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, _ = z.Write(body) // a Buffer has no errors
	_ = z.Close()
	return out.Bytes()
}

// WriteCompressed writes the whole body of an answer. zipped is the same body compressed, or nil; it is sent if the
// client accepts it.
func WriteCompressed(w http.ResponseWriter, r *http.Request, body, zipped []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if zipped != nil && AcceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		body = zipped
	}
	_, _ = w.Write(body) // an error means that the connection is gone
}

// AcceptsGzip reports whether Accept-Encoding (RFC 9110, section 12.5.3) has gzip with a weight above 0.
func AcceptsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, value, weighted := strings.Cut(weight, "=")
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		return !weighted || err == nil && q > 0
	}
	return false
}
