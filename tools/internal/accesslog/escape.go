package accesslog

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// texts holds the texts that are not part of their line: many share one piece of memory.
type texts struct{ strings.Builder }

const textsBlock = 4 << 10

// room makes room for n bytes, and is the position of the next byte.
func (t *texts) room(n int) (at int) {
	if t.Cap()-t.Len() < n {
		t.Builder = strings.Builder{}
		t.Grow(max(n, textsBlock))
	}
	return t.Len()
}

func (t *texts) join(parts ...string) string {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	at := t.room(n)
	for _, part := range parts {
		t.WriteString(part)
	}
	return t.String()[at:]
}

// An escape undoes the escapes of a format.
type escape struct {
	sign byte // 0: there are none
	undo func(t *texts, rest string) (used int)
}

var backslash = escape{'\\', undoBackslash}

// escapes are by the word after escape= in a template.
var escapes = map[string]escape{"default": backslash, "json": backslash, "none": {}, "haproxy": {'#', undoHex}}

// plain is the text without its escapes. An escape that is not one stays as it is.
func (e escape) plain(t *texts, text string) string {
	if e.sign == 0 {
		return text
	}
	at := strings.IndexByte(text, e.sign)
	if at < 0 {
		return text
	}
	from := t.room(len(text))
	for {
		t.WriteString(text[:at])
		text = text[at+1:]
		used := e.undo(t, text)
		if used == 0 {
			t.WriteByte(e.sign)
		}
		text = text[used:]
		if at = strings.IndexByte(text, e.sign); at < 0 {
			t.WriteString(text)
			return t.String()[from:]
		}
	}
}

// undoHex writes the byte of two hexadecimal digits.
func undoHex(t *texts, rest string) (used int) {
	if len(rest) < 2 {
		return 0
	}
	high, low := hex(rest[0]), hex(rest[1])
	if high|low > 15 {
		return 0
	}
	t.WriteByte(high<<4 | low)
	return 2
}

func hex(c byte) byte {
	switch {
	case c-'0' <= 9:
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}

// undoBackslash knows the escapes of nginx (\x22), Apache (\", \x80, \n) and JSON (\", \u00e4).
func undoBackslash(t *texts, rest string) (used int) {
	if rest == "" {
		return 0
	}
	switch rest[0] {
	case 'x':
		if used := undoHex(t, rest[1:]); used > 0 {
			return 1 + used
		}
		return 0
	case 'u':
		return undoUnicode(t, rest)
	}
	if at := strings.IndexByte(`"\/bfnrtv`, rest[0]); at >= 0 {
		t.WriteByte("\"\\/\b\f\n\r\t\v"[at])
		return 1
	}
	return 0
}

// undoUnicode takes u00e4, and surrogates in pairs: \ud83d\ude00.
func undoUnicode(t *texts, rest string) (used int) {
	first, ok := unicodeEscape(rest)
	if !ok {
		return 0
	}
	if !utf16.IsSurrogate(first) {
		t.WriteRune(first)
		return 5
	}
	if len(rest) > 5 && rest[5] == '\\' {
		second, ok := unicodeEscape(rest[6:])
		if pair := utf16.DecodeRune(first, second); ok && pair != utf8.RuneError {
			t.WriteRune(pair)
			return 11
		}
	}
	t.WriteRune(utf8.RuneError)
	return 5
}

func unicodeEscape(text string) (r rune, ok bool) {
	if len(text) < 5 || text[0] != 'u' {
		return 0, false
	}
	for _, c := range []byte(text[1:5]) {
		digit := hex(c)
		if digit > 15 {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}
