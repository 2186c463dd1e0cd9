package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxLine is the longest line that is read.
	maxLine = 64 << 10
	// endless is the length of a line that no log has.
	endless = 64 << 20
)

var errTooLong = errors.New("the line is longer than 64 KiB")

// lines reads the lines of a file, which may be compressed with gzip.
type lines struct {
	name   string
	text   *bufio.Reader
	gzip   bool
	number int64 // of the last line
	size   int64 // of the text up to there
}

// foreign are the first bytes of files that have to be decompressed first.
var foreign = map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\x50\x2a\x4d\x18": "zstd", "BZh": "bzip2",
	"\xfd7zXZ\x00": "xz", "PK\x03\x04": "zip"}

// openLines finds out by the first bytes how the file is compressed.
func openLines(name string, r io.Reader) (*lines, error) {
	l := &lines{name: name, text: bufio.NewReaderSize(r, maxLine+2)} // with CR LF
	head, _ := l.text.Peek(6)
	for magic, kind := range foreign {
		if strings.HasPrefix(string(head), magic) {
			return nil, fmt.Errorf("%s is compressed with %s, which is not read; decompress it first, such as: "+
				"zstdcat log.zst | weir backtest weir.yaml -", name, kind)
		}
	}
	if strings.HasPrefix(string(head), "\x1f\x8b") {
		plain, err := gzip.NewReader(l.text)
		if err != nil {
			return nil, fmt.Errorf("%s: gzip: %w", name, err)
		}
		l.text, l.gzip = bufio.NewReaderSize(plain, maxLine+2), true
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

// readPast reads past the rest of a line that starts with beginning.
func (l *lines) readPast(beginning []byte) (line []byte, err error) {
	line = bytes.Clone(beginning[:maxExample])
	l.number++
	length := len(beginning)
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var more []byte
		more, err = l.text.ReadSlice('\n')
		length += len(more)
		l.size += int64(len(more))
		if length > endless {
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
		what = "the file is cut off (gzip)"
	case l.gzip:
		what = "the file is damaged (gzip)"
	}
	return fmt.Errorf("%s: %s after %d lines, %d bytes of text: %w", l.name, what, l.number, l.size, err)
}
