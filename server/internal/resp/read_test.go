package resp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

// small are ceilings that a fuzzer can reach.
func small() *limits { return &limits{Line: 600, Elements: 12, Bulk: 700, Request: 2000} }

// pieces reads a text in pieces of a length.
type pieces struct {
	text []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// commandsOf are the commands of a text that comes in pieces, and what ended them.
func commandsOf(t testing.TB, text []byte, size int, ceilings *limits, trusted bool) (list [][]string, end error) {
	r, src := newReader(ceilings), &pieces{bytes.Clone(text), size}
	r.trusted = trusted
	for {
		args, err := r.next()
		if err != nil {
			return list, err
		}
		if args == nil {
			if cap(r.buf) > max(2*ceilings.Request, 2*firstBuffer) {
				t.Fatalf("a buffer of %d bytes for commands of at most %d", cap(r.buf), ceilings.Request)
			}
			if err := r.fill(src); err != nil {
				return list, nil
			}
			continue
		}
		words := make([]string, len(args))
		for i, arg := range args {
			words[i] = string(arg)
		}
		list = append(list, words)
	}
}

// plainly reads whole text by looking at it as people would; it is slow and knows nothing
// of pieces. Lines as people type them it leaves to splitLine.
func plainly(text string, max *limits) (list [][]string, bad bool) {
	for text != "" {
		line, rest, whole := strings.Cut(text, "\n")
		if text[0] != '*' {
			if len(line) > max.Line {
				return list, true
			}
			if !whole {
				return list, false
			}
			words, err := splitLine([]byte(strings.TrimSuffix(line, "\r")), nil, max.Elements)
			if err != nil {
				return list, true
			}
			if len(words) > 0 {
				list = append(list, texts(words))
			}
			text = rest
			continue
		}
		n, more, bad := plainNumber(text[1:])
		if more || bad || n > max.Elements {
			return list, !more
		}
		from := len(text)
		text = rest
		var words []string
		for range n {
			if text == "" {
				return list, false
			}
			if text[0] != '$' {
				return list, true
			}
			size, more, bad := plainNumber(text[1:])
			if more {
				return list, false
			}
			_, body, _ := strings.Cut(text, "\n")
			long := size > max.Bulk // it is read past
			if bad || size < 0 || size > maxBulk || !long && from-len(body)+size > max.Request {
				return list, true
			}
			if len(body) < size+2 {
				return list, false
			}
			if body[size:size+2] != "\r\n" {
				return list, true
			}
			word := body[:size]
			if long {
				word, from = "", from-size
			}
			words, text = append(words, word), body[size+2:]
		}
		if n > 0 {
			list = append(list, words)
		}
	}
	return list, false
}

func plainNumber(text string) (n int, more, bad bool) {
	line, _, whole := strings.Cut(text, "\n")
	if !whole && len(line) < maxHeader-1 {
		return 0, true, false
	}
	digits, cr := strings.CutSuffix(line, "\r")
	n, err := strconv.Atoi(digits)
	return n, false, !whole || !cr || err != nil || strconv.Itoa(n) != digits || len(line) > maxHeader-2
}

func texts(words [][]byte) (list []string) {
	for _, word := range words {
		list = append(list, string(word))
	}
	return list
}

func same(a, b [][]string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if strings.Join(a[i], "\x00") != strings.Join(b[i], "\x00") || len(a[i]) != len(b[i]) {
			return false
		}
	}
	return true
}

// FuzzRead: nothing panics or makes room beyond its ceilings, pieces change nothing, and
// the commands are those that a plain reading finds.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n", "PING\r\nPING a\n", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$1\r\na\r\n", "*1000000000\r\n", "*-1\r\nPING\r\n", "*0\r\n\r\n",
		"*1\r\n$-1\r\n", "*1\r\n$5\r\nabc\r\nPING\r\n", "*1\n$1\na\n", "\n", "\r\n", "*1\r\n$1000000\r\n", "*13\r\n", "*2\r\n$700\r\n" + strings.Repeat("a", 700) + "\r\n$700\r\n",
		"PING \"a\\x41\\n\" 'b\\'' c\r\n", "PING \"\r\n", strings.Repeat("a", 700), strings.Repeat(" a", 20) + "\n", "*" + strings.Repeat("1", 40), "*1\r\n$" + strings.Repeat("1", 40) + "\r\n",
		"*1\r\n:1\r\n", "*007\r\n", "*1\r\n$4\r\nPINGxx*1\r\n", "*\r\n", "\"\\", "'\\'", "*1\r\n$999999999999999999\r\n", "*-999999999999999999\r\n", "*-0\r\n",
	} {
		f.Add([]byte(seed), 1)
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		whole, end := commandsOf(t, text, len(text)+1, small(), true)
		cut, cutEnd := commandsOf(t, text, max(1, size), small(), true)
		if !same(whole, cut) || !errors.Is(cutEnd, end) {
			t.Errorf("whole: %q, %v\npieces of %d: %q, %v", whole, end, size, cut, cutEnd)
		}
		plain, bad := plainly(string(text), small())
		if !same(whole, plain) || bad != (end != nil) {
			t.Errorf("read: %q, %v\nplainly: %q, %t", whole, end, plain, bad)
		}
		commandsOf(t, text, max(1, size), small(), false)
	})
}

// TestAnnouncedLengthsAllocateNothing: room is made for bytes that have arrived.
func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	max := defaultLimits()
	r := newReader(&max)
	r.trusted = true
	for _, text := range []string{"*1024\r\n", "$65536\r\n"} {
		if err := r.fill(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if args, err := r.next(); args != nil || err != nil {
			t.Fatal(args, err)
		}
	}
	if cap(r.buf) != firstBuffer || cap(r.spans) > 8 {
		t.Errorf("%d bytes and %d elements of room for nothing", cap(r.buf), cap(r.spans))
	}
}

// TestBufferShrinksAfterLargeCommand checks that one long command does not keep its memory.
func TestBufferShrinksAfterLargeCommand(t *testing.T) {
	max := defaultLimits()
	r := newReader(&max)
	r.trusted = true
	long := strings.Repeat("$60000\r\n"+strings.Repeat("a", 60000)+"\r\n", 10)
	src := strings.NewReader("*10\r\n" + long + "PING\r\n")
	seen := 0
	for r.fill(src) == nil {
		for args, err := r.next(); args != nil; args, err = r.next() {
			if err != nil {
				t.Fatal(err)
			}
			seen++
		}
	}
	if seen != 2 || cap(r.buf) != firstBuffer {
		t.Errorf("%d commands, and a buffer of %d bytes remains", seen, cap(r.buf))
	}
}
