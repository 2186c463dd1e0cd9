package resp

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// A protocolError is a mistake in the protocol. The input after it cannot be interpreted, so the
// connection is closed after the answer.
type protocolError string

// Error is the text of Redis, without its prefix "ERR Protocol error".
func (e protocolError) Error() string { return string(e) }

const (
	// firstBuffer is the length of a connection's buffer at first and after a large command: some
	// dozens of ordinary commands. Reads that fill it grow it to pipelineBuffer, so that a long pipeline
	// is read in few reads and decided in few calls of the store.
	firstBuffer    = 4 << 10
	pipelineBuffer = 4 * firstBuffer

	// maxHeader is the maximum length of "*3\r\n" and "$17\r\n": 19 digits and some.
	maxHeader = 32

	// Before authentication a client may send what AUTH and HELLO need. These are Redis' numbers.
	unauthenticatedElements = 10
	unauthenticatedBulk     = 16 << 10

	// maxBulk is the longest word that is skipped, so that the connection stays open after the
	// error: Redis' proto-max-bulk-len.
	maxBulk = 512 << 20
)

// A reader splits a stream of bytes into commands. It remembers its position in a partial command, so
// that a command that arrives byte by byte costs no more than a whole one. It makes room only for bytes
// that have arrived: announced lengths cost no memory.
type reader struct {
	max     *limits
	trusted bool // the client is authenticated

	buf   []byte
	start int // of the current command
	pos   int // end of its parsed part
	seen  int // no line end lies between pos and here
	left  int // missing elements of the command
	bulk  int // length of the element whose header was read; −1: none was
	skip  int // bytes of a too long element that are still to be dropped
	long  int // length of the command's longest element, if it is too long; else 0
	spans []span
	args  [][]byte
}

// A span is the position of an element, relative to the start of its command.
type span struct{ from, to int }

func newReader(max *limits) *reader {
	return &reader{max: max, buf: make([]byte, 0, firstBuffer), bulk: -1}
}

// fill reads once. It invalidates the results of next.
func (r *reader) fill(src io.Reader) error {
	r.makeRoom()
	n, err := src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil // an error will be repeated
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

// next returns the next command, its name and its arguments; nil if it is incomplete.
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

// whole returns the complete command.
func (r *reader) whole() [][]byte {
	r.args = r.args[:0]
	for _, s := range r.spans {
		r.args = append(r.args, r.buf[r.start+s.from:r.start+s.to:r.start+s.to])
	}
	r.start = r.pos
	return r.args
}

// begin reads "*3\r\n". Zero and negative numbers are no command.
func (r *reader) begin() (more bool, err error) {
	n, more, err := r.header("mbulk", "invalid multibulk length")
	if more || err != nil || n <= 0 {
		return more, err
	}
	if !r.trusted && n > unauthenticatedElements {
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
	// Redis skips these two bytes unchecked. Here a client that counts wrongly gets an error.
	if r.buf[end] != '\r' || r.buf[end+1] != '\n' {
		return false, protocolError("expected CRLF after a bulk")
	}
	r.spans = append(r.spans, span{r.pos - r.start, end - r.start})
	r.pos, r.seen, r.bulk = end+2, end+2, -1
	r.left--
	return false, nil
}

// drop removes the bytes of an element that is too long.
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
	case n >= 0 && !r.trusted && n > unauthenticatedBulk:
		return false, protocolError("unauthenticated bulk length")
	case n < 0 || n > maxBulk:
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

// printable replaces characters that would end the line of the error.
func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// header reads the number of a line such as "*3\r\n".
func (r *reader) header(name, invalid string) (n int64, more bool, err error) {
	line := r.buf[r.pos:min(len(r.buf), r.pos+maxHeader)]
	end := bytes.IndexByte(line, '\n')
	switch {
	case end < 0 && len(line) == maxHeader:
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

// length reads a number as strictly as Redis: no plus, no leading zeros.
func length(text []byte) (n int64, ok bool) {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '+' || digits[0] == '0' && len(text) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// inline reads a command typed as a line.
func (r *reader) inline() (args [][]byte, more bool, err error) {
	r.seen = max(r.seen, r.pos)
	end := bytes.IndexByte(r.buf[r.seen:], '\n')
	if more = end < 0; more {
		end = len(r.buf) - r.seen
	}
	end += r.seen
	switch {
	case end-r.pos > r.max.Line:
		return nil, false, protocolError("too big inline request")
	case more:
		r.seen = end
		return nil, true, nil
	}
	line := bytes.TrimSuffix(r.buf[r.pos:end], []byte("\r"))
	r.pos = end + 1
	r.start, r.seen = r.pos, r.pos
	if r.args, err = splitLine(line, r.args[:0], r.max.Elements); err != nil {
		return nil, false, err
	}
	return r.args, false, nil
}
