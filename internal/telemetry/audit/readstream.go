package audit

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
)

//go:embed read.lua
var readText string

// page is how many entries one call reads. Each takes about a microsecond of Redis.
const page = 100

// A Reader reads an audit log from where it is written.
type Reader interface {
	// Last returns the last most records that a filter selects, the oldest first.
	Last(ctx context.Context, f *Filter, most int) ([]Record, error)
	// Next returns those that were added after the records of the last call.
	Next(ctx context.Context, f *Filter) ([]Record, error)
	Close()
}

// OpenStream reads a stream of the Redis at a URL.
func OpenStream(ctx context.Context, url, stream string) (Reader, error) {
	conn, err := redisconn.Open(ctx, url, redisconn.Config{Timeout: streamTimeout})
	if err != nil {
		return nil, err
	}
	return &streamReader{conn: conn, stream: stream, script: redisconn.ScriptOf(readText), last: "0"}, nil
}

type streamReader struct {
	conn   redisconn.Conn
	stream string
	script *redisconn.Script
	last   string // id of the newest entry that was read
}

func (s *streamReader) Close() { s.conn.Close() }

// An entryOf is an entry of a stream.
type entryOf struct {
	id string
	Record
}

// millis is the time in the id of an entry, by the clock of Redis.
func (e *entryOf) millis() int64 {
	first, _, _ := strings.Cut(e.id, "-")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}

func (s *streamReader) read(ctx context.Context, command, from, to string) ([]entryOf, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	args := []string{command, from, to, strconv.Itoa(page), "at", "wait_ns"}
	for _, f := range textFields {
		args = append(args, f.name)
	}
	reply, err := s.conn.Run(ctx, s.script, []string{s.stream}, args, nil)
	if err != nil {
		return nil, err
	}
	var list []entryOf
	for fields := range slices.Chunk(reply, 3+len(textFields)) {
		if len(fields) < 3+len(textFields) {
			return nil, redisconn.Malformed("an entry has %d fields", len(fields))
		}
		e := entryOf{id: fields[0].Text}
		if e.At, err = time.Parse(time.RFC3339Nano, fields[1].Text); err != nil {
			e.At = time.UnixMilli(e.millis()).UTC() // another program wrote it
		}
		wait, _ := strconv.ParseInt(fields[2].Text, 10, 64)
		e.Wait = time.Duration(wait)
		for i, f := range textFields {
			*f.of(&e.Record) = fields[3+i].Text
		}
		list = append(list, e)
	}
	return list, nil
}

// late is by how much the id of an entry may be older than its record: nodes have clocks of their own.
const late = time.Minute

// Last reads backwards, page by page.
func (s *streamReader) Last(ctx context.Context, f *Filter, most int) (list []Record, err error) {
	to := "+"
	for {
		entries, err := s.read(ctx, "XREVRANGE", to, "-")
		if err != nil {
			return nil, err
		}
		if to == "+" && len(entries) > 0 {
			s.last = entries[0].id
		}
		for i := range entries {
			if f.Matches(&entries[i].Record) && len(list) < most {
				list = append(list, entries[i].Record)
			}
		}
		if len(entries) < page || len(list) == most || entries[page-1].millis() < f.Since.Add(-late).UnixMilli() {
			slices.SortStableFunc(list, func(a, b Record) int { return a.At.Compare(b.At) })
			return list, nil
		}
		to = "(" + entries[page-1].id
	}
}

// Next reads forwards, page by page.
func (s *streamReader) Next(ctx context.Context, f *Filter) (list []Record, err error) {
	for {
		entries, err := s.read(ctx, "XRANGE", "("+s.last, "+")
		if err != nil {
			return list, err
		}
		for i := range entries {
			if s.last = entries[i].id; f.Matches(&entries[i].Record) {
				list = append(list, entries[i].Record)
			}
		}
		if len(entries) < page {
			return list, nil
		}
	}
}
