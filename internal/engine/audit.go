package engine

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/audit"
)

// AuditStream is the stream of refusals in Redis. The others of the audit log are named after it.
const AuditStream = "weir:audit"

// checkAudit checks the settings of the audit log.
func (e *Engine) checkAudit() error {
	for i, to := range e.Server.Audit {
		switch kind := kindOfSink(to); {
		case to == "":
			return wrong("server.audit has an empty value; allowed: redis, the URL of a Redis, or the name of a file")
		case slices.ContainsFunc(e.Server.Audit[:i], func(other string) bool { return kindOfSink(other) == kind }):
			return wrong("server.audit has two of the kind %s; allowed: one of each", kind)
		case to == InStore && e.Store == Memory:
			return e.noStore("server.audit")
		}
	}
	if audit.Keys(e.AuditKeys) == audit.Hashed && e.HashKey == "" {
		return wrong("server.audit.keys is hashed, and there is no secret for it: addresses could be found by trying " +
			"all of them; give server.hash_key_file")
	}
	return nil
}

// kindOfSink is redis or file.
func kindOfSink(to string) string {
	if to == InStore || strings.Contains(to, "://") {
		return InStore
	}
	return "file"
}

// openAudit begins to record, if there is a sink.
func (e *Engine) openAudit(ctx context.Context) error {
	if len(e.Server.Audit) == 0 {
		return nil
	}
	c := audit.Config{Node: e.Node(), Keys: audit.Keys(e.AuditKeys), Secret: []byte(e.HashKey), Log: e.Log}
	for _, to := range e.Server.Audit {
		sink, err := e.sink(ctx, to)
		if err != nil {
			return wrong("server.audit: %s: %v", Masked(to), err)
		}
		c.Sinks = append(c.Sinks, sink)
	}
	e.audit = audit.New(c)
	e.markers = append(e.markers, e.audit.Mark)
	for i, c := range e.audit.Counts() {
		now := func() *audit.Counts { return &e.audit.Counts()[i] }
		for _, m := range []struct {
			name, help string
			value      func() int64
		}{
			{"weir_audit_written_total", "Audit records written, by sink.", func() int64 { return now().Written }},
			{"weir_audit_lost_total", "Audit records lost because a queue was full or the sink failed, by sink.",
				func() int64 { return now().Lost }},
			{"weir_audit_failures_total", "Failed writes of audit records, by sink. They are repeated.",
				func() int64 { return now().Failures }},
		} {
			e.Metrics.Count(m.name, m.help, m.value, "sink", c.Sink)
		}
	}
	return nil
}

// sink opens one sink. A Redis is connected at the first record.
func (e *Engine) sink(ctx context.Context, to string) (audit.Sink, error) {
	if kindOfSink(to) == InStore {
		if to == InStore {
			to = e.Store
		}
		return audit.NewStreamSink(to, AuditStream, e.AuditKeep), probe(ctx, to)
	}
	return audit.NewFileSink(to, int64(e.AuditSize)<<20)
}

// readable is where audit records can be read; "": nowhere. A Redis has the records of all nodes.
func (e *Engine) readable() (to string) {
	for _, kind := range []string{InStore, "file"} {
		if i := slices.IndexFunc(e.Server.Audit, func(to string) bool { return kindOfSink(to) == kind }); i >= 0 {
			return e.Server.Audit[i]
		}
	}
	return ""
}

// CanSearchAudit reports whether SearchAudit has something to read.
func (e *Engine) CanSearchAudit() bool { return e.readable() != "" }

// SearchAudit returns the last audit records that a filter selects, the oldest first.
func (e *Engine) SearchAudit(ctx context.Context, f *audit.Filter, most int) ([]audit.Record, error) {
	to := e.readable()
	open := func() (audit.Reader, error) { return audit.OpenFile(to) }
	if kindOfSink(to) == InStore {
		if to == InStore {
			to = e.Store
		}
		open = func() (audit.Reader, error) { return audit.OpenStream(ctx, to, AuditStream) }
	}
	reader, err := open()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if audit.Keys(e.AuditKeys) == audit.Hashed && f.Key != "" {
		f.Digest = audit.Hashed.Redact(f.Key, []byte(e.HashKey))
	}
	return reader.Last(ctx, f, most)
}

// Node is the name of this process in records: server.node_name, or the host's.
func (c *Config) Node() string {
	if c.Server.NodeName != "" {
		return c.Server.NodeName
	}
	name, err := os.Hostname()
	if err != nil {
		return "unnamed"
	}
	return name
}

// Mark records a change or an incident in the audit log, and in the history.
func (e *Engine) Mark(m telemetry.Mark) {
	m.Node = e.Node()
	if m.At.IsZero() {
		m.At = time.Now().UTC()
	}
	for _, mark := range e.markers {
		mark(m)
	}
}
