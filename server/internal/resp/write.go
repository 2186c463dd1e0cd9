package resp

import (
	"strconv"
	"unicode/utf8"
)

// A reply is the unsent answers of a connection, in RESP2 or, after HELLO 3, in RESP3.
type reply struct {
	buf   []byte
	proto int // 2 or 3
}

func (r *reply) head(kind byte, n int64) {
	r.buf = append(r.buf, kind)
	r.buf = strconv.AppendInt(r.buf, n, 10)
	r.buf = append(r.buf, '\r', '\n')
}

func (r *reply) integer(n int64) { r.head(':', n) }
func (r *reply) array(n int)     { r.head('*', int64(n)) }

// fields begins n names with their values: a map in RESP3, a flat array in RESP2.
func (r *reply) fields(n int) {
	if r.proto == 3 {
		r.head('%', int64(n))
		return
	}
	r.array(2 * n)
}

// set begins n members: a set in RESP3, an array in RESP2.
func (r *reply) set(n int) {
	if r.proto == 3 {
		r.head('~', int64(n))
		return
	}
	r.array(n)
}

func (r *reply) null() {
	if r.proto == 3 {
		r.buf = append(r.buf, "_\r\n"...)
		return
	}
	r.buf = append(r.buf, "$-1\r\n"...)
}

func (r *reply) bulk(text string) {
	r.head('$', int64(len(text)))
	r.buf = append(append(r.buf, text...), '\r', '\n')
}

// bulkOrNull is null for the empty text.
func (r *reply) bulkOrNull(text string) {
	if text == "" {
		r.null()
		return
	}
	r.bulk(text)
}

// verbatim is text for people: redis-cli shows its lines unquoted.
func (r *reply) verbatim(text string) {
	if r.proto == 3 {
		r.head('=', int64(len(text)+4))
		r.buf = append(append(append(r.buf, "txt:"...), text...), '\r', '\n')
		return
	}
	r.bulk(text)
}

// simple is a text without line ends.
func (r *reply) simple(text string) {
	r.buf = append(r.buf, '+')
	r.buf = append(append(r.buf, text...), '\r', '\n')
}

func (r *reply) ok() { r.simple("OK") }

// maxError is the maximum length of a part of an error, which may quote a client.
const maxError = 1024

// fail is an error. Its text begins with its code; control characters become spaces.
func (r *reply) fail(parts ...string) {
	r.buf = append(r.buf, '-')
	from := len(r.buf)
	for _, part := range parts {
		r.buf = append(r.buf, part[:min(len(part), maxError)]...)
	}
	for i := from; i < len(r.buf); i++ {
		if c := r.buf[i]; c < ' ' && c != '\t' || c == 0x7f {
			r.buf[i] = ' '
		}
	}
	r.buf = append(r.buf, '\r', '\n')
}

// quoted is at most n bytes of text, cut between characters.
func quoted(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n])
}
