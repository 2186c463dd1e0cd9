package respguard

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// small are ceilings that a short input can pass.
var small = Ceilings{Text: 100, Bytes: 200, Elements: 20, Depth: 3}

// FuzzReader compares the reader, which keeps its state between the bytes, with a parser that has all of them: where
// each reply ends, and whether the rest is refused. A reader that is given the input in pieces does the same.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		"+OK\r\n:1\r\n-ERR x\r\n", "*2\r\n:1\r\n$3\r\nabc\r\n", "$-1\r\n*-1\r\n_\r\n", "*0\r\n%0\r\n~0\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n", ">3\r\n+message\r\n$1\r\nx\r\n$0\r\n\r\n:1\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n",
		"*1\r\n*1\r\n*1\r\n*0\r\n", ",1.5\r\n(123\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n", "*2147483647\r\n", "$9223372036854775807\r\n",
		"$536870912\r\n", "%4611686018427387904\r\n", "$101\r\n", "*19\r\n", "*20\r\n", "%10\r\n", "$3\r\nabcd\r\n", "$3\r\nabc\n\r",
		"*2\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n",
		"*3\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n$1\r\nx\r\n",
		"*1\r\n>1\r\n:1\r\n", "\r\n", "\n", "+\n", ":1234567890123456789012345\r\n", "$?\r\n", "|1\r\n", "_x\r\n", "#x\r\n", "*1\r\n$-1\r\n:2\r\n",
	} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		wantEnds, want := replies(text, small)
		ends, err := readAll(text, 1)
		if !slices.Equal(ends, wantEnds) || (err != nil) != (want != nil) {
			t.Fatalf("%q: replies end at %v, %v; want %v, %v", text, ends, err, wantEnds, want)
		}
		if _, pieces := readAll(text, 1+int(piece)); fmt.Sprint(pieces) != fmt.Sprint(err) {
			t.Fatalf("%q in pieces of %d: %v; byte by byte %v", text, 1+piece, pieces, err)
		}
	})
}

// readAll has a reader read pieces of a length. ends are the pieces after which no reply is open.
func readAll(text []byte, length int) (ends []int, err error) {
	r := reader{most: small}
	at := 0
	for piece := range slices.Chunk(text, length) {
		if err := r.read(piece, nil); err != nil {
			return ends, err
		}
		if at += len(piece); r.elements == 0 && r.length == 0 {
			ends = append(ends, at)
		}
	}
	return ends, nil
}

var errCut, errWrong = errors.New("the input ends within a reply"), errors.New("it is refused")

// replies is where the replies of the text end, and errWrong if what follows them is refused.
func replies(text []byte, most Ceilings) (ends []int, err error) {
	p := parser{text: text, most: most}
	for p.at < len(text) {
		p.elements, p.bytes = 0, 0
		switch err := p.element(0); err {
		case nil:
			ends = append(ends, p.at)
		case errCut:
			return ends, nil
		default:
			return ends, err
		}
	}
	return ends, nil
}

// parser is the protocol written down by recursion.
type parser struct {
	text            []byte
	at              int
	most            Ceilings
	elements, bytes int64
}

func (p *parser) element(depth int) error {
	line, err := p.line()
	if err != nil {
		return err
	}
	p.elements++
	if p.elements > p.most.Elements {
		return errWrong
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+', '-', ',', '(', ':':
		return nil
	case '_':
		return wrongIf(rest != "")
	case '#':
		return wrongIf(rest != "t" && rest != "f")
	case '$', '*':
		if rest == "-1" {
			return nil
		}
	}
	n, ok := natural(rest)
	if !ok {
		return errWrong
	}
	switch kind {
	case '$', '=', '!':
		return p.body(n)
	case '%':
		return p.array(2*n, depth)
	case '>':
		if depth > 0 {
			return errWrong
		}
		return p.array(n, depth)
	case '*', '~':
		return p.array(n, depth)
	}
	return errWrong
}

// line takes a line, without its end.
func (p *parser) line() ([]byte, error) {
	rest := p.text[p.at:]
	if len(rest) == 0 {
		return nil, errCut
	}
	line, _, ended := bytes.Cut(rest, []byte("\n"))
	most := maxNumber
	if len(line) > 0 && bytes.IndexByte([]byte("+-,("), line[0]) >= 0 {
		most = maxLine
	}
	switch {
	case len(line) > most:
		return nil, errWrong
	case !ended:
		return nil, errCut
	case len(line) < 2 || line[len(line)-1] != '\r':
		return nil, errWrong
	}
	p.at += len(line) + 1
	return line[:len(line)-1], nil
}

// body takes a text of n bytes and its end.
func (p *parser) body(n int64) error {
	if p.bytes += n; n > p.most.Text || p.bytes > p.most.Bytes {
		return errWrong
	}
	rest := p.text[p.at:]
	end := rest[min(int(n), len(rest)):]
	if !bytes.HasPrefix([]byte("\r\n"), end[:min(2, len(end))]) {
		return errWrong
	}
	if len(end) < 2 {
		return errCut
	}
	p.at += int(n) + 2
	return nil
}

func (p *parser) array(n int64, depth int) error {
	if depth == p.most.Depth || p.elements+n > p.most.Elements {
		return errWrong
	}
	for range n {
		if err := p.element(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func wrongIf(bad bool) error {
	if bad {
		return errWrong
	}
	return nil
}

// natural reads up to 18 digits.
func natural(text string) (n int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(text) >= 1 && len(text) <= 18
}
