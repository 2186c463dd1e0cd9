package audit

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/telemetry"
)

//go:embed read.lua
var readText string

// page is how many entries one call reads. Each takes about a microsecond of Redis.
const page = 100

// A Reader reads an audit log from where it is written.
type Reader interface {
	// Last returns the last most records that a filter selects, the oldest first.
	Last(ctx context.Context, f *Filter, most int) ([]Record, error)
	// Next returns records that were added after the last call's.
	Next(ctx context.Context, f *Filter) ([]Record, error)
	Close()
}

// OpenStream reads the streams of a log in the Redis at a URL.
func OpenStream(ctx context.Context, url, stream string) (Reader, error) {
	conn, err := redisconn.Open(ctx, url, redisconn.Config{Timeout: streamTimeout})
	if err != nil {
		return nil, err
	}
	script := redisconn.ScriptOf(readText)
	r := &logReader{conn: conn}
	for _, name := range streamsOf(stream) {
		r.streams = append(r.streams, &streamReader{conn: conn, stream: name, script: script, last: "0"})
	}
	return r, nil
}

// A logReader reads the streams of a log.
type logReader struct {
	conn    redisconn.Conn
	streams []*streamReader
}

func (r *logReader) Close() { r.conn.Close() }

func (r *logReader) Last(ctx context.Context, f *Filter, most int) ([]Record, error) {
	list, err := r.merge(f, func(s *streamReader) ([]Record, error) { return s.before(ctx, f, most) })
	return list[max(0, len(list)-most):], err
}

func (r *logReader) Next(ctx context.Context, f *Filter) ([]Record, error) {
	return r.merge(f, func(s *streamReader) ([]Record, error) { return s.after(ctx, f) })
}

// merge returns the records of all streams that may have some for a filter, in the order of time.
func (r *logReader) merge(f *Filter, read func(s *streamReader) ([]Record, error)) (list []Record, err error) {
	for i, s := range r.streams {
		if i == ofCosts && !f.Costs() || i != ofCosts && f.Outcome == telemetry.AuditCost {
			continue
		}
		part, err := read(s)
		list = append(list, part...)
		if err != nil {
			return list, err
		}
	}
	slices.SortStableFunc(list, func(a, b Record) int { return a.At.Compare(b.At) })
	return list, nil
}

// A streamReader reads one stream.
type streamReader struct {
	conn   redisconn.Conn
	stream string
	script *redisconn.Script
	last   string // id of the newest entry that was read
}

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
	args := []string{command, from, to, strconv.Itoa(page), "at"}
	for _, f := range numberFields {
		args = append(args, f.name)
	}
	for _, f := range textFields {
		args = append(args, f.name)
	}
	reply, err := s.conn.Run(ctx, s.script, []string{s.stream}, args, nil)
	if err != nil {
		return nil, err
	}
	var list []entryOf
	size := 2 + len(numberFields) + len(textFields)
	for fields := range slices.Chunk(reply, size) {
		if len(fields) < size {
			return nil, redisconn.Malformed("an entry has %d fields", len(fields))
		}
		list = append(list, entryBy(fields))
	}
	return list, nil
}

// entryBy reads an entry, which another program may have written: a number that is none is 0.
func entryBy(fields []redisconn.Value) entryOf {
	e := entryOf{id: fields[0].Text}
	at, err := time.Parse(time.RFC3339Nano, fields[1].Text)
	if err != nil {
		at = time.UnixMilli(e.millis()).UTC()
	}
	e.At, fields = at, fields[2:]
	for i, f := range numberFields {
		*f.of(&e.Record), _ = strconv.ParseInt(fields[i].Text, 10, 64)
	}
	for i, f := range textFields {
		*f.of(&e.Record) = fields[len(numberFields)+i].Text
	}
	return e
}

// late is by how much the id of an entry may be older than its record: nodes have different clocks.
const late = time.Minute

// before reads backwards, page by page.
func (s *streamReader) before(ctx context.Context, f *Filter, most int) (list []Record, err error) {
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
			slices.Reverse(list)
			return list, nil
		}
		to = "(" + entries[page-1].id
	}
}

// after reads forwards, page by page.
func (s *streamReader) after(ctx context.Context, f *Filter) (list []Record, err error) {
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
