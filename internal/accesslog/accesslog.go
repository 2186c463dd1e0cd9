// Package accesslog reads access logs in the combined format of Apache and nginx, and
// generates synthetic ones, to try limits on.
//
//	192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 203023 "https://…" "Mozilla/5.0 …"
//
// The format: https://httpd.apache.org/docs/2.4/logs.html#combined.
package accesslog

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// maxLine is the longest line that is read, in bytes.
const maxLine = 64 << 10

// An Entry is one request of a log.
type Entry struct {
	Client   netip.Addr
	User     string // "" where the log has a dash
	Time     time.Time
	Method   string
	Target   string // path and query, as the client sent them
	Protocol string
	Status   int
	Bytes    int64 // of the response's body; 0 where the log has a dash
	Referer  string
	Agent    string
}

// Read yields the entries of a log. A malformed line yields an error that names it; the lines
// after it are read.
func Read(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		number := 0
		for lines.Scan() {
			number++
			entry, err := Parse(lines.Text())
			if err != nil {
				err = fmt.Errorf("line %d: %w", number, err)
			}
			if !yield(entry, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Entry{}, fmt.Errorf("line %d: %w", number+1, err))
		}
	}
}

// Parse reads one line, without its end. Referer and agent may be missing, as in the
// common format, or cut off, because the line was too long for its logger: then they are empty.
func Parse(line string) (e Entry, err error) {
	f := fields{rest: line}
	e.Client, err = netip.ParseAddr(f.word())
	f.note(err, "the client's address")
	f.word() // identd, which is obsolete
	e.User = f.word()
	e.Time, err = time.Parse("02/Jan/2006:15:04:05 -0700", f.between('[', ']'))
	f.note(err, "the time")
	e.Method, e.Target, e.Protocol = f.request()
	e.Status, err = strconv.Atoi(f.word())
	f.note(err, "the status")
	if size := f.word(); size != "" {
		e.Bytes, err = strconv.ParseInt(size, 10, 64)
		f.note(err, "the size")
	}
	err = f.err
	if f.rest != "" {
		e.Referer, e.Agent = f.quoted(), f.quoted()
	}
	return e, err
}

// fields are the unread rest of a line, and its first error.
type fields struct {
	rest string
	err  error
}

func (f *fields) note(err error, field string) {
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", field, err)
	}
}

// word is the text up to a space; a dash is "".
func (f *fields) word() string {
	word, rest, _ := strings.Cut(f.rest, " ")
	f.rest = rest
	if word == "-" {
		return ""
	}
	return word
}

func (f *fields) between(open, end byte) string {
	if f.rest == "" || f.rest[0] != open {
		f.note(fmt.Errorf("%c is missing before %.40q", open, f.rest), "the line")
		return ""
	}
	inner, rest, found := strings.Cut(f.rest[1:], string(end))
	if !found {
		f.note(fmt.Errorf("%c is missing after %.40q", end, inner), "the line")
	}
	f.rest = strings.TrimPrefix(rest, " ")
	return inner
}

// quoted is a text in quotation marks, in which \ keeps the next character from ending it.
func (f *fields) quoted() string {
	for i := 1; i < len(f.rest); i++ {
		switch f.rest[i] {
		case '\\':
			i++
		case '"':
			inner, rest := f.rest[:i+1], strings.TrimPrefix(f.rest[i+1:], " ")
			text, err := strconv.Unquote(inner)
			if err != nil { // escapes that are not Go's stay as they are
				text = inner[1:i]
			}
			f.note(f.opens(), "the line")
			f.rest = rest
			if text == "-" {
				return ""
			}
			return text
		}
	}
	f.note(fmt.Errorf("the quotation mark after %.40q is missing", f.rest), "the line")
	f.rest = ""
	return ""
}

func (f *fields) opens() error {
	if f.rest[0] != '"' {
		return fmt.Errorf("the quotation mark before %.40q is missing", f.rest)
	}
	return nil
}

// request is the request line. The client wrote it, so it may hold anything.
func (f *fields) request() (method, target, protocol string) {
	line := f.quoted()
	method, rest, _ := strings.Cut(line, " ")
	if at := strings.LastIndexByte(rest, ' '); at >= 0 {
		return method, rest[:at], rest[at+1:]
	}
	return method, rest, ""
}
