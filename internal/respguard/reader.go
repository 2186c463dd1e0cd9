package respguard

import (
	"bytes"
	"strings"
)

const (
	maxLine   = 64 << 10 // of a simple text or an error
	maxNumber = 24       // digits of a number, with its sign
	kept      = 64       // bytes of a line that are kept
)

// reader parses the framing of replies. It refuses all that the client library may parse
// otherwise: the two must never disagree about where a reply ends.
type reader struct {
	most Ceilings

	line   []byte  // the beginning of the line that is read
	length int     // of that line so far
	last   byte    // of that line so far
	skip   int64   // bytes of a text, and of the end of its line, that are still to come
	open   []int64 // for each array that is open, how many elements are still to come

	elements, bytes int64 // of the reply so far
	reply           shape // of the reply so far
}

// shape is the type of a reply, on which its handling by the library depends.
type shape struct {
	push  bool
	kind  string // of a push message: its first element
	first bool   // the element that is read is the first of a push message
	text  bool   // the reply is a simple text: kind
}

func (r *reader) read(p []byte, asked *writer) (err error) {
	for len(p) > 0 && err == nil {
		done := false
		if r.skip > 0 {
			p, done, err = r.text(p)
		} else {
			p, done, err = r.header(p)
		}
		if done && err == nil {
			err = r.ended(asked)
		}
	}
	return err
}

// text passes bytes of a text and of its "\r\n".
func (r *reader) text(p []byte) (rest []byte, done bool, err error) {
	n := min(r.skip, int64(len(p)))
	words := max(0, min(n, r.skip-2))
	if r.reply.first && len(r.reply.kind) < kept {
		r.reply.kind += string(p[:min(words, kept)])
	}
	for i := words; i < n; i++ {
		if p[i] != "\r\n"[2-(r.skip-i)] {
			return nil, false, wrong("a text of another length than it says")
		}
	}
	r.skip -= n
	return p[n:], r.skip == 0, nil
}

// header passes bytes of the first line of each element.
func (r *reader) header(p []byte) (rest []byte, done bool, err error) {
	part, end := p, bytes.IndexByte(p, '\n')
	if end >= 0 {
		part = p[:end]
	}
	r.line = append(r.line, part[:min(len(part), kept-len(r.line))]...)
	r.length += len(part)
	if len(part) > 0 {
		r.last = part[len(part)-1]
	}
	most := maxNumber
	if len(r.line) > 0 && strings.IndexByte("+-,(", r.line[0]) >= 0 {
		most = maxLine
	}
	switch {
	case r.length > most:
		return nil, false, wrong("a line of more than %d bytes", most)
	case end < 0:
		return nil, false, nil
	case r.last != '\r' || r.length < 2:
		return nil, false, wrong("a line that does not end with \\r\\n")
	}
	done, err = r.element(r.line[0], r.line[1:min(len(r.line), r.length-1)])
	r.line, r.length, r.last = r.line[:0], 0, 0
	return p[end+1:], done, err
}

// element begins an element; done says that its line is all of it.
func (r *reader) element(kind byte, line []byte) (done bool, err error) {
	if r.elements++; r.elements > r.most.Elements {
		return false, wrong("a reply of more than %d elements", r.most.Elements)
	}
	switch kind {
	case '$', '=', '!':
		n, null, err := count(line)
		if err != nil || null {
			return null && kind == '$', cond(null && kind != '$', err)
		}
		if r.bytes += n; n > r.most.Text || r.bytes > r.most.Bytes {
			return false, wrong("a text of %d bytes; at most %d are asked for", n, r.most.Text)
		}
		r.skip = n + 2
		return false, nil
	case '*', '~', '%', '>':
		return r.array(kind, line)
	case '+', '-', ',', '(', ':':
		r.simple(kind, line)
		return true, nil
	case '_':
		return true, cond(len(line) > 0, nil)
	case '#':
		return true, cond(string(line) != "t" && string(line) != "f", nil)
	}
	return false, wrong("an element of the type %q", kind)
}

// cond is err, or an error of the framing if bad.
func cond(bad bool, err error) error {
	if bad && err == nil {
		return wrong("a line that is not RESP")
	}
	return err
}

// simple keeps the text of a line that is a whole reply, or the first element of a push message.
func (r *reader) simple(kind byte, line []byte) {
	if r.reply.first || len(r.open) == 0 {
		r.reply.kind, r.reply.text = string(line), kind == '+'
	}
}

func (r *reader) array(kind byte, line []byte) (done bool, err error) {
	n, null, err := count(line)
	switch {
	case err != nil:
		return false, err
	case null:
		return true, cond(kind != '*', nil)
	case kind == '>' && len(r.open) > 0:
		return false, wrong("a push message within a reply")
	case len(r.open) == r.most.Depth:
		return false, wrong("arrays within arrays, more than %d deep", r.most.Depth)
	}
	if kind == '%' {
		n *= 2
	}
	if r.elements+n > r.most.Elements {
		return false, wrong("an array of %d elements; at most %d are asked for", n, r.most.Elements)
	}
	if kind == '>' {
		r.reply.push, r.reply.first = true, true
	} else {
		r.reply.first = false
	}
	if n == 0 {
		return true, nil
	}
	r.open = append(r.open, n)
	return false, nil
}

// ended closes the element that has been read, and the arrays that end with it.
func (r *reader) ended(asked *writer) error {
	for len(r.open) > 0 {
		if r.elements > 1 {
			r.reply.first = false
		}
		last := len(r.open) - 1
		if r.open[last]--; r.open[last] > 0 {
			return nil
		}
		r.open = r.open[:last]
	}
	reply := r.reply
	r.reply, r.elements, r.bytes = shape{}, 0, 0
	if asked == nil {
		return nil
	}
	return asked.answered(reply)
}

// count reads a length: up to 18 digits, or -1 for null.
func count(line []byte) (n int64, null bool, err error) {
	if string(line) == "-1" {
		return 0, true, nil
	}
	if len(line) == 0 || len(line) > 18 {
		return 0, false, wrong("the length %q", line)
	}
	for _, c := range line {
		if c < '0' || c > '9' {
			return 0, false, wrong("the length %q", line)
		}
		n = 10*n + int64(c-'0')
	}
	return n, false, nil
}
