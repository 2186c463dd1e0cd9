package resp

import (
	"bytes"
	"strconv"
)

const unbalanced = protocolError("unbalanced quotes in request")

// splitLine cuts a line into words as Redis does it: words may be quoted, "like this\n"
// with escapes or 'like this' without, and after a quote must come a space. The words lie
// in the line itself, which is written over: none is longer than what it is written as.
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

// cutWord cuts the first word off a line that begins with one.
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

// unquote writes what is quoted to into, which may be the same bytes, up to the closing
// quote: n bytes, and what follows begins at end; −1 if there is no such quote.
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

// escape reads what follows a backslash; width 0 means that it stands for itself.
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
