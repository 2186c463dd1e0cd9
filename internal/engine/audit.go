package engine

import (
	"cmp"
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

// An Audit says where audit records go; the zero Audit writes none.
type Audit struct {
	To   []string   // InStore, the URL of a Redis, or the name of a file; each kind once
	Keys audit.Keys // "": shown
	Keep int        // records in each stream, about
	Size int        // of a file, in MB
}

// checkAudit checks the settings of the audit log.
func (l *Setup) checkAudit() error {
	a := &l.Audit
	for i, to := range a.To {
		switch kind := kindOfSink(to); {
		case to == "":
			return wrong("%s has an empty value; allowed, with commas: redis, the URL of a Redis, or the name of a "+
				"file", l.field("Audit"))
		case slices.ContainsFunc(a.To[:i], func(other string) bool { return kindOfSink(other) == kind }):
			return wrong("%s has two of the kind %s; allowed: one of each", l.field("Audit"), kind)
		case to == InStore && l.Store == Memory:
			return l.noStore("Audit")
		}
	}
	a.Keys = cmp.Or(a.Keys, audit.Shown)
	switch {
	case !slices.Contains([]audit.Keys{audit.Shown, audit.Hashed, audit.Hidden}, a.Keys):
		return wrong("%s is %.80q; allowed: shown, hashed, hidden", l.field("AuditKeys"), a.Keys)
	case a.Keys == audit.Hashed && l.HashKey == "":
		return wrong("%s is hashed, and there is no secret for it: addresses could be found by trying all of them; "+
			"give %s", l.field("AuditKeys"), l.field("HashKey"))
	case len(a.To) == 0:
		return nil
	case a.Keep < 1 || a.Keep > maxAuditKeep:
		return wrong("%s is %d; allowed: 1 to %d", l.field("AuditKeep"), a.Keep, maxAuditKeep)
	case a.Size < 1 || a.Size > maxAuditSize:
		return wrong("%s is %d; allowed: 1 to %d", l.field("AuditSize"), a.Size, maxAuditSize)
	}
	return nil
}

const (
	maxAuditKeep = 100_000_000
	maxAuditSize = 100_000
)

// kindOfSink is redis or file.
func kindOfSink(to string) string {
	if to == InStore || strings.Contains(to, "://") {
		return InStore
	}
	return "file"
}

// openAudit begins to record, if there is a sink.
func (e *Engine) openAudit(ctx context.Context) error {
	a := &e.Audit
	if len(a.To) == 0 {
		return nil
	}
	c := audit.Config{Node: e.NodeName(), Keys: a.Keys, Secret: []byte(e.HashKey), Log: e.Log}
	for _, to := range a.To {
		sink, err := e.sink(ctx, to)
		if err != nil {
			return wrong("%s: %s: %v", e.field("Audit"), Masked(to), err)
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
		return audit.NewStreamSink(to, AuditStream, e.Audit.Keep), probe(ctx, to)
	}
	return audit.NewFileSink(to, int64(e.Audit.Size)<<20)
}

// readable is where audit records can be read; "": nowhere. A Redis has those of all nodes.
func (a *Audit) readable() (to string) {
	for _, kind := range []string{InStore, "file"} {
		if i := slices.IndexFunc(a.To, func(to string) bool { return kindOfSink(to) == kind }); i >= 0 {
			return a.To[i]
		}
	}
	return ""
}

// CanSearchAudit reports whether SearchAudit has something to read.
func (e *Engine) CanSearchAudit() bool { return e.Audit.readable() != "" }

// SearchAudit returns the last audit records that a filter selects, the oldest first.
func (e *Engine) SearchAudit(ctx context.Context, f *audit.Filter, most int) ([]audit.Record, error) {
	to := e.Audit.readable()
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
	if e.Audit.Keys == audit.Hashed && f.Key != "" {
		f.Digest = audit.Hashed.Redact(f.Key, []byte(e.HashKey))
	}
	return reader.Last(ctx, f, most)
}

// NodeName is the name of this process in records: Config.Node, or the host's.
func (c *Config) NodeName() string {
	if c.Node != "" {
		return c.Node
	}
	name, err := os.Hostname()
	if err != nil {
		return "unnamed"
	}
	return name
}

// Mark records a change or an incident in the audit log, and in the history.
func (e *Engine) Mark(m telemetry.Mark) {
	m.Node = e.NodeName()
	if m.At.IsZero() {
		m.At = time.Now().UTC()
	}
	for _, mark := range e.markers {
		mark(m)
	}
}
