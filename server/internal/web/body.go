package web

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// A Body is the body of a request, in memory that is used again for the next.
type Body struct {
	bytes.Buffer
	source io.LimitedReader
}

// ReadAll reads the whole body: at most so many bytes of one of the media types, in UTF-8. The type is
// checked because a page of another site can send text/plain and forms without asking the server, but
// not these.
func (b *Body) ReadAll(r *http.Request, most int64, kinds ...string) error {
	if !hasType(r.Header["Content-Type"], kinds) {
		return Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.80q; allowed: %s",
			r.Header.Get("Content-Type"), strings.Join(kinds, ", "))
	}
	if coding := first(r.Header["Content-Encoding"]); coding != "" && coding != "identity" {
		return Refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.80q; allowed: none", coding)
	}
	b.Reset()
	var err error
	if r.ContentLength <= most {
		b.source = io.LimitedReader{R: r.Body, N: most + 1}
		_, err = b.ReadFrom(&b.source)
		b.source.R = nil
	}
	switch {
	case err != nil:
		return Refuse(http.StatusBadRequest, "the body could not be read to its end")
	case max(r.ContentLength, int64(b.Len())) > most:
		return Refuse(http.StatusRequestEntityTooLarge, "the body has over %d bytes", most)
	}
	return nil
}

// first returns the first value of a field. http.Header.Get does the same, and spends longer on the form of the name.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func hasType(values, kinds []string) bool {
	if len(values) != 1 {
		return false
	}
	if slices.Contains(kinds, values[0]) {
		return true
	}
	kind, parameters, err := mime.ParseMediaType(values[0])
	charset, given := parameters["charset"]
	return err == nil && slices.Contains(kinds, kind) && (!given || strings.EqualFold(charset, "utf-8"))
}
