package resp

import (
	"bytes"
	"fmt"
	"io"
)

// A protocolError is what is wrong with bytes that are no command. Nothing that follows
// them can be understood: the connection is closed after it is told.
type protocolError string

// Error is the text as Redis has it, without what stands before each of them.
func (e protocolError) Error() string { return string(e) }

const (
	// firstBuffer is what a connection begins to read into, and returns to after a large
	// command: a pipeline of some dozens of ordinary ones. One whose reads fill it gets up to
	// pipelineBuffer, so that a long pipeline comes with few reads and goes to the store in few
	// calls.
	firstBuffer    = 4 << 10
	pipelineBuffer = 4 * firstBuffer

	// longestHeader is of "*3\r\n" and "$17\r\n": 19 digits and some.
	longestHeader = 32

	// A client that is not authenticated may send what AUTH and HELLO need and no more. These
	// are Redis' own numbers.
	strangersElements = 10
	strangersBulk     = 16 << 10

	// longestBulk is the longest word that is read past, so that the connection can go on
	// after the error: Redis' proto-max-bulk-len.
	longestBulk = 512 << 20
)

// A reader cuts a stream of bytes into commands. It remembers how far it came, so that a
// command that arrives byte by byte costs no more than one that arrives whole, and makes
// room only for bytes that came: announced lengths cost nothing.
type reader struct {
	max     *Limits
	trusted bool // whoever sends has the right to long commands

	buf   []byte
	start int // where the command begins that is being read
	pos   int // what comes before it was understood
	seen  int // what lies before it has no line end; never before pos
	left  int // elements of the command that are still to come
	bulk  int // the length of the one whose header was read; −1: none was
	skip  int // bytes of a word over the ceiling that are still to be dropped
	long  int // the length of the command's longest word, if it is over the ceiling; else 0
	spans []span
	args  [][]byte
}

// A span is where an element lies, from the start of its command.
type span struct{ from, to int }

func newReader(max *Limits, trusted bool) *reader {
	return &reader{max: max, trusted: trusted, buf: make([]byte, 0, firstBuffer), bulk: -1}
}

// fill reads once. What next returned is gone then.
func (r *reader) fill(src io.Reader) error {
	r.makeRoom()
	n, err := src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil // the error, if there is one, comes again
	}
	return err
}

func (r *reader) makeRoom() {
	switch {
	case r.start == len(r.buf):
		switch full := len(r.buf) == cap(r.buf); {
		case cap(r.buf) > 16*firstBuffer:
			r.buf = make([]byte, 0, firstBuffer)
		case full && cap(r.buf) < pipelineBuffer:
			r.buf = make([]byte, 0, 2*cap(r.buf))
		}
		r.buf = r.buf[:0]
		r.moved(r.start)
	case len(r.buf) < cap(r.buf):
	case r.start > 0 && cap(r.buf) < pipelineBuffer:
		r.buf = append(make([]byte, 0, 2*cap(r.buf)), r.buf[r.start:]...)
		r.moved(r.start)
	case r.start > 0:
		r.buf = r.buf[:copy(r.buf, r.buf[r.start:])]
		r.moved(r.start)
	default:
		r.buf = append(make([]byte, 0, 2*cap(r.buf)), r.buf...)
	}
}

func (r *reader) moved(by int) { r.start, r.pos, r.seen = r.start-by, r.pos-by, max(0, r.seen-by) }

// next is the next command, its name and its arguments; nil if it has not come yet.
func (r *reader) next() ([][]byte, error) {
	for {
		if r.left == 0 {
			r.start, r.long = r.pos, 0
			if r.pos == len(r.buf) {
				return nil, nil
			}
			if r.buf[r.pos] != '*' {
				args, more, err := r.inline()
				if more || err != nil || len(args) > 0 {
					return args, err
				}
				continue // an empty line
			}
			if more, err := r.begin(); more || err != nil {
				return nil, err
			}
			continue
		}
		if more, err := r.element(); more || err != nil {
			return nil, err
		}
		if r.left == 0 {
			return r.whole(), nil
		}
	}
}

// whole is the command whose last element has come.
func (r *reader) whole() [][]byte {
	r.args = r.args[:0]
	for _, s := range r.spans {
		r.args = append(r.args, r.buf[r.start+s.from:r.start+s.to:r.start+s.to])
	}
	r.start = r.pos
	return r.args
}

// begin reads "*3\r\n". None and less than none are no command.
func (r *reader) begin() (more bool, err error) {
	n, more, err := r.header("mbulk", "invalid multibulk length")
	if more || err != nil || n <= 0 {
		return more, err
	}
	if !r.trusted && n > strangersElements {
		return false, protocolError("unauthenticated multibulk length")
	}
	if n > int64(r.max.Elements) {
		return false, protocolError("invalid multibulk length")
	}
	r.left, r.spans = int(n), r.spans[:0]
	return false, nil
}

// element reads "$3\r\nfoo\r\n".
func (r *reader) element() (more bool, err error) {
	if r.bulk < 0 {
		if more, err := r.bulkHeader(); more || err != nil {
			return more, err
		}
	}
	r.drop()
	end := r.pos + r.bulk
	if r.skip > 0 || len(r.buf) < end+2 {
		return true, nil
	}
	// Redis skips these two without a look, and whatever they are becomes nobody's.
	if r.buf[end] != '\r' || r.buf[end+1] != '\n' {
		return false, protocolError("expected CRLF after a bulk")
	}
	r.spans = append(r.spans, span{r.pos - r.start, end - r.start})
	r.pos, r.seen, r.bulk = end+2, end+2, -1
	r.left--
	return false, nil
}

// drop removes what came of a word that is over the ceiling.
func (r *reader) drop() {
	n := min(r.skip, len(r.buf)-r.pos)
	if n > 0 {
		r.buf = append(r.buf[:r.pos], r.buf[r.pos+n:]...)
		r.skip -= n
	}
}

func (r *reader) bulkHeader() (more bool, err error) {
	if r.pos == len(r.buf) {
		return true, nil
	}
	if c := r.buf[r.pos]; c != '$' {
		return false, protocolError(fmt.Sprintf("expected '$', got '%c'", printable(c)))
	}
	n, more, err := r.header("bulk", "invalid bulk length")
	switch {
	case more || err != nil:
		return more, err
	case n >= 0 && !r.trusted && n > strangersBulk:
		return false, protocolError("unauthenticated bulk length")
	case n < 0 || n > longestBulk:
		return false, protocolError("invalid bulk length")
	case n > int64(r.max.Bulk):
		r.bulk, r.skip, r.long = 0, int(n), max(r.long, int(n))
		return false, nil
	case int64(r.pos-r.start)+n > int64(r.max.Request):
		return false, protocolError("too big request")
	}
	r.bulk = int(n)
	return false, nil
}

// printable keeps what a client sent from ending the line of the error.
func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// header reads the number of a line such as "*3\r\n".
func (r *reader) header(name, invalid string) (n int64, more bool, err error) {
	line := r.buf[r.pos:min(len(r.buf), r.pos+longestHeader)]
	end := bytes.IndexByte(line, '\n')
	switch {
	case end < 0 && len(line) == longestHeader:
		return 0, false, protocolError("too big " + name + " count string")
	case end < 0:
		return 0, true, nil
	case line[end-1] != '\r':
		return 0, false, protocolError(invalid)
	}
	n, ok := length(line[1 : end-1])
	if !ok {
		return 0, false, protocolError(invalid)
	}
	r.pos += end + 1
	r.seen = r.pos
	return n, false, nil
}

// length reads a number as strictly as Redis does: no sign but a minus, no zero before it.
func length(text []byte) (n int64, ok bool) {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(text) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}

// inline reads a line as people type it.
func (r *reader) inline() (args [][]byte, more bool, err error) {
	r.seen = max(r.seen, r.pos)
	end := bytes.IndexByte(r.buf[r.seen:], '\n')
	if end < 0 {
		r.seen = len(r.buf)
		end = len(r.buf) - r.pos
		more = true
	} else {
		end += r.seen - r.pos
	}
	if most := r.max.Line; end > most {
		return nil, false, protocolError("too big inline request")
	}
	if more {
		return nil, true, nil
	}
	line := bytes.TrimSuffix(r.buf[r.pos:r.pos+end], []byte("\r"))
	r.pos += end + 1
	r.start, r.seen = r.pos, r.pos
	if r.args, err = splitLine(line, r.args[:0], r.max.Elements); err != nil {
		return nil, false, err
	}
	return r.args, false, nil
}
