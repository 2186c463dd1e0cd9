package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// longestLine is that of a line that is read.
	longestLine = 64 << 10
	// endless is the length of a line that no log has.
	endless = 64 << 20
	// zstdWindow is the memory that a file may ask for: what zstd --long=27 makes, and zstd reads without an option.
	zstdWindow = 128 << 20
)

var errTooLong = errors.New("the line is longer than 64 KiB")

// lines reads the lines of a file, which may be compressed.
type lines struct {
	name   string
	text   *bufio.Reader
	kind   string // gzip, zstd or ""
	number int64  // of the last line
	size   int64  // of the text up to there
	limit  int64  // of size; 0 is none
	close  func()
}

var compressions = []struct {
	magic, name string
	open        func(io.Reader) (io.Reader, func(), error)
}{
	{"\x1f\x8b", "gzip", func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}},
	{"\x28\xb5\x2f\xfd", "zstd", openZstd},
	{"\x50\x2a\x4d\x18", "zstd", openZstd}, // of pzstd, which begins with a frame to skip
	{"BZh", "bzip2", nil},
	{"\xfd7zXZ\x00", "xz", nil},
	{"PK\x03\x04", "zip", nil},
}

func openZstd(r io.Reader) (io.Reader, func(), error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(zstdWindow))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

// openLines finds out by the first bytes how the file is compressed.
func openLines(name string, r io.Reader, limit int64) (*lines, error) {
	l := &lines{name: name, limit: limit, close: func() {}}
	raw := bufio.NewReaderSize(r, longestLine+2) // with CR LF
	l.text = raw
	head, _ := raw.Peek(6)
	for _, c := range compressions {
		if !bytes.HasPrefix(head, []byte(c.magic)) {
			continue
		}
		if c.open == nil {
			return nil, fmt.Errorf("%s is compressed with %s, which is not read; decompress it first", name, c.name)
		}
		plain, stop, err := c.open(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, c.name, err)
		}
		l.text, l.kind, l.close = bufio.NewReaderSize(plain, longestLine+2), c.name, stop
	}
	if mark, _ := l.text.Peek(3); string(mark) == "\xef\xbb\xbf" {
		l.text.Discard(3)
	}
	return l, nil
}

// next is the next line without its end, valid until the next call. After errTooLong, the line is the beginning of one
// that was read past.
func (l *lines) next() (line []byte, err error) {
	line, err = l.text.ReadSlice('\n')
	l.size += int64(len(line))
	if l.limit > 0 && l.size > l.limit {
		return nil, fmt.Errorf("%s: there is more than the %d bytes of text that are allowed", l.name, l.limit)
	}
	switch {
	case err == nil:
		line = line[:len(line)-1]
	case err == bufio.ErrBufferFull:
		return l.readPast(line)
	case len(line) > 0 && err == io.EOF: // the last line has no end
	case err == io.EOF:
		return nil, io.EOF
	default:
		return nil, l.broken(err)
	}
	l.number++
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// readPast reads past the rest of a line, of which beginning is the first part.
func (l *lines) readPast(beginning []byte) (line []byte, err error) {
	line = bytes.Clone(beginning[:longestExample])
	l.number++
	length := len(beginning)
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var more []byte
		more, err = l.text.ReadSlice('\n')
		length += len(more)
		l.size += int64(len(more))
		if length > endless || l.limit > 0 && l.size > l.limit {
			return nil, fmt.Errorf("%s: line %d is longer than %d bytes; this is no access log", l.name, l.number,
				length)
		}
	}
	if err != nil && err != io.EOF {
		return nil, l.broken(err)
	}
	return line, errTooLong
}

// broken says how far the file was read.
func (l *lines) broken(err error) error {
	what := "reading failed"
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		what = "the file is cut off"
	case l.kind != "":
		what = "the file is damaged"
	}
	if l.kind != "" {
		what += " (" + l.kind + ")"
	}
	return fmt.Errorf("%s: %s after %d lines, %d bytes of text: %w", l.name, what, l.number, l.size, err)
}
