package jsonvalues

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// plain are the bytes that stand for themselves in a text, alone.
var plain = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// plainRun is the number of leading plain bytes, of which it looks at eight at once: answers are mostly such bytes.
func plainRun(piece []byte) (n int) {
	const (
		each = 0x0101010101010101
		tops = 0x80 * each
	)
	for ; len(piece)-n >= 8; n += 8 {
		word := binary.LittleEndian.Uint64(piece[n:])
		quote, backslash := word^('"'*each), word^('\\'*each)
		// The top bit of a byte is set if the byte is below ' ', a quote, a backslash, or beyond ASCII. A borrow from
		// the byte before may set it too, which only ends the run early.
		if ((word-' '*each)|(quote-each)|(backslash-each)|word)&tops != 0 {
			break
		}
	}
	return n
}

// skip reads a part of a text that is not kept, up to its end: a quote after an even number of backslashes. Nearly all
// of an answer is such text, and its characters do not matter.
func (r *Reader) skip(piece []byte, position int64) (n int) {
	r.high, r.rest = 0, 0
	for {
		quote := bytes.IndexByte(piece[n:], '"')
		if quote < 0 {
			if escaping(piece) {
				r.state = inEscape
			}
			return len(piece)
		}
		if n += quote; !escaping(piece[:n]) {
			r.endText(position + int64(n))
			return n + 1
		}
		n++
	}
}

// escaping reports whether the last byte of a text is a backslash that begins an escape.
func escaping(text []byte) bool {
	n := len(text)
	for n > 0 && text[n-1] == '\\' {
		n--
	}
	return (len(text)-n)%2 == 1
}

// skips reports whether the rest of a text of a response is not kept.
func (r *Reader) skips() bool {
	return r.loose && !r.naming && (r.taken == nil || len(r.taken.Text) == MaxText)
}

// text reads a part of a text or name, up to its end or an escape.
func (r *Reader) text(piece []byte, position int64) (n int, ok bool) {
	if r.skips() {
		return r.skip(piece, position), true
	}
	if piece[0] != '\\' && r.high != 0 {
		r.half()
	}
	for n < len(piece) {
		c := piece[n]
		switch {
		case r.rest > 0:
			if c < r.lo || r.hi < c {
				return n, false
			}
			r.rest--
			r.lo, r.hi = 0x80, 0xbf
		case plain[c]:
			n += plainRun(piece[n+1:])
		case c == '"':
			r.keep(piece[:n])
			r.endText(position + int64(n))
			return n + 1, true
		case c == '\\':
			r.keep(piece[:n])
			r.state = inEscape
			return n + 1, true
		default:
			if !r.lead(c) {
				return n, false
			}
		}
		n++
	}
	r.keep(piece)
	return n, true
}

// lead begins a character of several bytes, in the ranges of RFC 3629.
func (r *Reader) lead(c byte) bool {
	r.lo, r.hi = 0x80, 0xbf
	switch {
	case 0xc2 <= c && c <= 0xdf:
		r.rest = 1
	case 0xe0 <= c && c <= 0xef:
		r.rest = 2
	case 0xf0 <= c && c <= 0xf4:
		r.rest = 3
	default:
		return false
	}
	switch c {
	case 0xe0:
		r.lo = 0xa0
	case 0xed:
		r.hi = 0x9f
	case 0xf0:
		r.lo = 0x90
	case 0xf4:
		r.hi = 0x8f
	}
	return true
}

// endText ends a text or a name at its quote.
func (r *Reader) endText(position int64) {
	if r.naming {
		r.named()
		return
	}
	r.endScalar(position - r.start - 1)
}

// escaped are the bytes for the letters of escapes.
var escaped = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads the byte after a backslash.
func (r *Reader) escape(c byte) bool {
	if r.skips() {
		r.state = inText
		return true
	}
	if c == 'u' {
		r.state, r.digits, r.unit = inUnit, 4, 0
		return true
	}
	if r.high != 0 {
		r.half()
	}
	meant, ok := escaped[c]
	r.keep([]byte{meant})
	r.state = inText
	return ok
}

// codeUnit reads a digit of \uXXXX.
func (r *Reader) codeUnit(c byte) bool {
	digit := rune(0)
	switch {
	case '0' <= c && c <= '9':
		digit = rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		digit = rune(c|0x20-'a') + 10
	default:
		return false
	}
	r.unit = r.unit<<4 | digit
	if r.digits--; r.digits > 0 {
		return true
	}
	r.state = inText
	high := r.high
	if r.high = 0; high != 0 {
		if both := utf16.DecodeRune(high, r.unit); both != utf8.RuneError {
			r.keepRune(both)
			return true
		}
		r.half()
	}
	switch {
	case 0xd800 <= r.unit && r.unit < 0xdc00:
		r.high = r.unit
	case 0xdc00 <= r.unit && r.unit < 0xe000:
		r.half()
	default:
		r.doubtIf(r.unit == 0)
		r.keepRune(r.unit)
	}
	return true
}

// half keeps half of a surrogate pair as U+FFFD, which some services do.
func (r *Reader) half() {
	r.high = 0
	r.doubtIf(true)
	r.keepRune(utf8.RuneError)
}

func (r *Reader) doubtIf(doubtful bool) {
	if doubtful && !r.naming && r.taken != nil {
		r.taken.Doubtful = true
	}
}

func (r *Reader) keepRune(c rune) {
	var room [utf8.UTFMax]byte
	r.keep(utf8.AppendRune(room[:0], c))
}

// A numeral is the state of reading a number.
type numeral uint8

const (
	numeralBegin numeral = iota
	numeralMinus
	numeralZero
	numeralWhole
	numeralDot
	numeralFraction
	numeralE
	numeralSign
	numeralExponent
)

// next reads a byte; false if it does not belong to the number.
func (n *numeral) next(c byte) bool {
	digit := '0' <= c && c <= '9'
	to := numeralBegin
	switch *n {
	case numeralBegin, numeralMinus:
		switch {
		case c == '-' && *n == numeralBegin:
			to = numeralMinus
		case c == '0':
			to = numeralZero
		case digit:
			to = numeralWhole
		}
	case numeralDot, numeralFraction:
		if digit {
			to = numeralFraction
		}
	case numeralE, numeralSign, numeralExponent:
		if digit {
			to = numeralExponent
		} else if *n == numeralE && (c == '+' || c == '-') {
			to = numeralSign
		}
	case numeralWhole:
		if digit {
			to = numeralWhole
		}
	}
	if to == numeralBegin && n.whole() && *n != numeralExponent {
		switch {
		case c == '.' && *n != numeralFraction:
			to = numeralDot
		case c|0x20 == 'e':
			to = numeralE
		}
	}
	if to == numeralBegin {
		return false
	}
	*n = to
	return true
}

// whole reports whether the number may end here.
func (n numeral) whole() bool {
	return n == numeralZero || n == numeralWhole || n == numeralFraction || n == numeralExponent
}
