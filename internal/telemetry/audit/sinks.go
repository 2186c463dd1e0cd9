package audit

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// NewLogSink writes records as JSON lines of slog, of refusals and bans at most rate a second. A line of its own
// says how many were left out.
func NewLogSink(to io.Writer, rate int) Sink {
	return &logSink{log: slog.New(slog.NewJSONHandler(to, nil)), rate: rate}
}

type logSink struct {
	log     *slog.Logger
	rate    int
	second  int64 // since 1970
	written int   // in that second
	leftOut int
}

func (*logSink) Name() string { return "log" }
func (*logSink) Batch() int   { return maxQueued }

// Close says what was left out last.
func (s *logSink) Close() { s.turn(context.Background(), 0) }

func (s *logSink) Write(ctx context.Context, list []Record) (written int, err error) {
	for i := range list {
		r := &list[i]
		s.turn(ctx, time.Now().Unix())
		if isFrequent(r) && s.written >= s.rate {
			s.leftOut++
			continue
		}
		s.written++
		written++
		s.log.LogAttrs(ctx, slog.LevelInfo, "audit", attributes(r)...)
	}
	return written, nil
}

// isFrequent reports whether requests cause records of this kind, and not operators.
func isFrequent(r *Record) bool { return r.Reason != "" || r.Outcome == "ban" }

// turn begins another second.
func (s *logSink) turn(ctx context.Context, second int64) {
	if second == s.second {
		return
	}
	if s.leftOut > 0 {
		s.log.LogAttrs(ctx, slog.LevelInfo, "audit: records were left out by --audit-rate",
			slog.Int("left_out", s.leftOut), slog.Time("second", time.Unix(s.second, 0).UTC()))
	}
	s.second, s.written, s.leftOut = second, 0, 0
}

// attributes are the fields of a record that are not empty.
func attributes(r *Record) []slog.Attr {
	list := []slog.Attr{slog.Time("at", r.At)}
	for _, f := range textFields {
		if text := *f.of(r); text != "" {
			list = append(list, slog.String(f.name, text))
		}
	}
	if r.Wait != 0 {
		list = append(list, slog.Int64("wait_ns", int64(r.Wait)))
	}
	return list
}

// textFields are the fields that are texts, in the order of a stream's entry.
var textFields = []struct {
	name string
	of   func(r *Record) *string
}{
	{"node", func(r *Record) *string { return &r.Node }},
	{"outcome", func(r *Record) *string { return &r.Outcome }},
	{"reason", func(r *Record) *string { return &r.Reason }},
	{"rule", func(r *Record) *string { return &r.Rule }},
	{"key", func(r *Record) *string { return &r.Key }},
	{"request_id", func(r *Record) *string { return &r.RequestID }},
	{"method", func(r *Record) *string { return &r.Method }},
	{"path", func(r *Record) *string { return &r.Path }},
	{"client", func(r *Record) *string { return &r.Client }},
	{"actor", func(r *Record) *string { return &r.Actor }},
	{"text", func(r *Record) *string { return &r.Text }},
}
