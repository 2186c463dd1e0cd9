package resp

import (
	"bytes"
	"strconv"
)

const unbalanced = protocolError("unbalanced quotes in request")

// splitLine splits a line into words as Redis does: words may be quoted, "like this\n" with escapes or
// 'like this' without, and a space must follow a closing quote. The words are in the line itself, which
// is overwritten: no word is longer than its spelling.
func splitLine(line []byte, words [][]byte, most int) ([][]byte, error) {
	for {
		line = bytes.TrimLeft(line, " \t\r\n\v\f")
		if len(line) == 0 {
			return words, nil
		}
		if len(words) == most {
			return nil, protocolError("too big inline request")
		}
		word, rest, err := cutWord(line)
		if err != nil {
			return nil, err
		}
		words, line = append(words, word), rest
	}
}

// cutWord returns the first word of a line that begins with one, and the rest.
func cutWord(line []byte) (word, rest []byte, err error) {
	n := 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\n', '\r', '\t', 0:
			return line[:n:n], line[i+1:], nil
		case '"', '\'':
			m, end := unquote(line[i+1:], c, line[n:])
			after := i + 1 + end
			if end < 0 || after < len(line) && !isSpace(line[after]) {
				return nil, nil, unbalanced
			}
			n += m
			return line[:n:n], line[after:], nil
		default:
			line[n] = c
			n++
		}
	}
	return line[:n:n], nil, nil
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// unquote writes n bytes, those up to the closing quote, to into, which may be the same bytes. The rest
// begins at end, which is −1 without a closing quote.
func unquote(text []byte, quote byte, into []byte) (n, end int) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == quote:
			return n, i + 1
		case c == '\\' && i+1 < len(text):
			var width int
			if c, width = escape(text[i+1:], quote); width > 0 {
				i += width
			}
		}
		into[n] = c
		n++
	}
	return 0, -1
}

// escape reads the text after a backslash; with width 0 the backslash is a plain character.
func escape(text []byte, quote byte) (c byte, width int) {
	if quote == '\'' {
		if text[0] == '\'' {
			return '\'', 1
		}
		return '\\', 0
	}
	if text[0] == 'x' && len(text) >= 3 {
		if n, err := strconv.ParseUint(string(text[1:3]), 16, 8); err == nil {
			return byte(n), 3
		}
	}
	switch text[0] {
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	}
	return text[0], 1
}
