package pathform

import "strings"

// delimiters are the reserved characters that may stand in a segment (RFC 3986, 3.3).
const delimiters = "!$&'()*+,;=:@"

// char writes the form of the first character of rest. It returns the character's length in
// rest; if the character is refused, allowed is not "".
func (f Form) char(w *writer, rest string) (size int, allowed string) {
	c, size := rest[0], 1
	if isUnreserved(c) && !(f.IgnoreCase && 'A' <= c && c <= 'Z') { // most characters; nothing below changes them
		w.put(c)
		return size, ""
	}
	if c == '%' {
		if len(rest) < 3 || !isHex(rest[1]) || !isHex(rest[2]) {
			return 0, validEscapes
		}
		c, size = unhex(rest[1])<<4|unhex(rest[2]), 3
	}
	if allowed := f.refuses(c, size == 3); allowed != "" {
		return 0, allowed
	}
	switch {
	case f.IgnoreCase && 'A' <= c && c <= 'Z':
		w.put(c | 0x20)
	case isUnreserved(c), size == 1 && strings.IndexByte(delimiters, c) >= 0:
		w.put(c)
	default:
		w.putEscaped(c)
	}
	return size, ""
}

// refuses is the allowed paths if a character is refused, else "".
func (f Form) refuses(c byte, escaped bool) (allowed string) {
	switch {
	case c == '\\' && !f.AllowBackslash:
		return noBackslash
	case c == '/' && !f.AllowEncodedSlash: // an encoded one: a plain slash ends the segment before
		return noEncodedSlash
	case c == 0 && !f.AllowNUL:
		return noNUL
	case !escaped && (c < ' ' || c == 0x7f):
		return noControls
	case !escaped && (c == '?' || c == '#'):
		return noQuery
	case !escaped && c == ';' && f.RefuseParameters:
		return noSemicolon
	}
	return ""
}

// A writer writes a path that usually equals its source: it does not copy before the first
// difference. The text so far begins and, between segments, ends with a slash.
type writer struct {
	source  string
	buffer  []byte // nil: the text so far is source[:length]
	length  int
	segment int // the index at which the last segment begins, after its slash
}

func (w *writer) put(c byte) {
	if w.buffer == nil {
		if w.length < len(w.source) && w.source[w.length] == c {
			w.length++
			return
		}
		w.buffer = append(make([]byte, 0, len(w.source)+8), w.source[:w.length]...)
	}
	w.buffer = append(w.buffer[:w.length], c)
	w.length++
}

func (w *writer) putEscaped(c byte) {
	const digits = "0123456789ABCDEF"
	w.put('%')
	w.put(digits[c>>4])
	w.put(digits[c&15])
}

// endSegment ends the last segment with a slash, unless the segment is removed: empty, or of
// dots. It is false if the segment is refused.
func (w *writer) endSegment() bool {
	if !w.settle() {
		return false
	}
	if w.segment < w.length {
		w.put('/')
		w.segment = w.length
	}
	return true
}

// end ends the path. It is false if the last segment is refused.
func (w *writer) end(dropSlash bool) bool {
	ok := w.settle()
	if dropSlash && w.segment == w.length && w.length > 1 {
		w.length--
	}
	return ok
}

// settle removes a segment of dots, and with .. the segment before it. It is false for dots
// with parameters, because some servers cut off parameters before they look for dots.
func (w *writer) settle() bool {
	last := w.last()
	switch {
	case last == ".":
		w.length = w.segment
	case last == "..":
		w.segment = w.parent()
		w.length = w.segment
	case strings.HasPrefix(last, ".;"), strings.HasPrefix(last, "..;"):
		return false
	}
	return true
}

// last is the segment that is being written; of one in the buffer, only the first bytes of dots.
func (w *writer) last() string {
	if w.buffer == nil {
		return w.source[w.segment:w.length]
	}
	text := w.buffer[w.segment:w.length]
	if len(text) > 0 && text[0] == '.' {
		return string(text[:min(len(text), 3)])
	}
	return ""
}

// parent is the index at which the segment before the last one begins; at the root, 1.
func (w *writer) parent() int {
	at := max(1, w.segment-1)
	for at > 1 && w.byteAt(at-1) != '/' {
		at--
	}
	return at
}

func (w *writer) byteAt(i int) byte {
	if w.buffer == nil {
		return w.source[i]
	}
	return w.buffer[i]
}

// String is the text that was written.
func (w *writer) String() string {
	if w.buffer == nil {
		return w.source[:w.length]
	}
	return string(w.buffer[:w.length])
}

func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// unhex is the value of a hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
