package jsonvalues

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"slices"
	"strings"
)

// The media types of sequences of documents.
const serverSentEvents = "text/event-stream"

var jsonLines = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}

// Events reports whether a body of a Content-Type is a sequence: server-sent events, or JSON lines.
func Events(contentType string) bool {
	media := mediaType(contentType)
	return media == serverSentEvents || slices.Contains(jsonLines, media)
}

// mediaType is a Content-Type without its parameters, which may be malformed; "" if it has none.
func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return ""
	}
	return media
}

// Body returns a writer that reads a body of a Content-Type: server-sent events, JSON lines or one JSON text. nil if
// the type is none of these. Set Each of the reader, not Many. Texts that are not kept are not checked for control
// characters, unknown escapes and UTF-8.
func (r *Reader) Body(contentType string) io.WriteCloser {
	r.loose = true
	switch media := mediaType(contentType); {
	case media == serverSentEvents:
		return &events{reader: r, line: atStart}
	case slices.Contains(jsonLines, media):
		r.Many = true
		return r
	case media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"):
		return r
	}
	return nil
}

// events reads the data of server-sent events, by the WHATWG's rules. Data that is not JSON, such as [DONE], has no
// document. An event that the end of the stream cuts off after its data is read all the same.
type events struct {
	reader *Reader
	line   lineState
	known  int  // bytes of the field's name that are as those of "data:"
	ended  bool // the last line ended with a carriage return
	data   bool // the event has data
}

// A lineState is a place in a line of an event.
type lineState uint8

const (
	atStart lineState = iota // in the name of the field
	afterColon
	inData
	inOther
)

const dataField = "data:"

// bom may begin a stream.
const bom = "\ufeff"

// Write reads a piece of the stream. It never fails.
func (e *events) Write(piece []byte) (int, error) {
	for rest := piece; len(rest) > 0; {
		c := rest[0]
		if e.ended && c == '\n' {
			e.ended, rest = false, rest[1:]
			continue
		}
		e.ended = false
		switch {
		case c == '\n' || c == '\r':
			e.endLine()
			e.ended = c == '\r'
			rest = rest[1:]
		case e.line == atStart:
			e.field(c)
			rest = rest[1:]
		case e.line == afterColon:
			if e.line = inData; c == ' ' {
				rest = rest[1:]
			}
		default:
			n := toLineEnd(rest)
			if e.line == inData {
				e.reader.Write(rest[:n])
			}
			rest = rest[n:]
		}
	}
	return len(piece), nil
}

// Close ends the stream.
func (e *events) Close() error {
	e.endEvent()
	return nil
}

// field reads a byte of a field's name.
func (e *events) field(c byte) {
	if e.known >= 0 && c == dataField[e.known] {
		if e.known++; e.known == len(dataField) {
			e.line = afterColon
			if e.data { // lines of data are joined by ends of lines
				e.reader.Write([]byte{'\n'})
			}
			e.data = true
		}
		return
	}
	if e.known == 0 && strings.IndexByte(bom, c) >= 0 {
		return
	}
	e.line = inOther
}

// endLine ends a line; an empty one ends the event.
func (e *events) endLine() {
	if e.line == atStart && e.known == 0 {
		e.endEvent()
	}
	e.line, e.known = atStart, 0
}

func (e *events) endEvent() {
	if e.data {
		e.reader.Close()
	}
	e.reader.Reset()
	e.data = false
}

func toLineEnd(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	if i := bytes.IndexByte(text, '\r'); i >= 0 {
		text = text[:i]
	}
	return len(text)
}
