package backtest

import (
	"context"
	"io"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// A reader makes requests of the lines of a log.
type reader struct {
	config *Config
	spread spreader
	fields fields // room for those of the next requests
	from   int64  // µs
	to     int64
	units  []int64           // of the files' times, in microseconds
	hosts  map[string]string // forms of hosts
	counts readCounts
}

// readCounts are the counts of a log while it is read.
type readCounts struct {
	requests    int64 // of the log
	replayed    int64 // those that are not left out
	refused     int64 // by the log
	unformed    int64 // a server refuses them before the rules
	noUser      int64
	noHost      int64
	noDuration  int64
	noStatus    int64
	noClient    int64
	first, last int64 // times
}

// batchSize is how many requests are passed on together.
const batchSize = 4096

// read reads the log, and passes on the requests that are replayed, in order. pass returns the memory for the next
// batch.
func (r *reader) read(ctx context.Context, source Source, pass func([]event) (free []event, err error)) error {
	out := make([]event, 0, batchSize)
	var failed error
	r.spread.emit = func(e *event) {
		out = append(out, *e)
		if len(out) == batchSize && failed == nil {
			out, failed = pass(out)
		}
	}
	for _, file := range source.Files() {
		r.units = append(r.units, max(1, file.Resolution.Microseconds()))
	}
	var record accesslog.Record
	for failed == nil {
		if r.counts.requests&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		err := source.Next(&record)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		r.record(&record)
	}
	r.spread.flush(0)
	if len(out) > 0 && failed == nil {
		_, failed = pass(out)
	}
	return failed
}

// each reads the whole log, and calls f with each request.
func (r *reader) each(ctx context.Context, source Source, f func(*event) error) error {
	return r.read(ctx, source, func(events []event) ([]event, error) {
		for i := range events {
			if err := f(&events[i]); err != nil {
				return nil, err
			}
		}
		return events[:0], nil
	})
}

// record takes a request of the log.
func (r *reader) record(record *accesslog.Record) {
	c := &r.counts
	c.requests++
	refused := refusedThen(record.Status)
	if refused {
		c.refused++
	}
	if record.Time < r.from || record.Time >= r.to || refused && r.config.DropRetries {
		return
	}
	var e event
	r.fill(&e, record)
	if where := r.config.Where; where != nil && !where.meets(&e, r.config.Set) {
		return
	}
	if r.config.Good != nil {
		e.good = r.config.Good.has(&e)
	}
	if c.replayed++; c.replayed == 1 {
		c.first = e.time
	}
	c.last = e.time
	r.note(&e, record)
	r.spread.add(&e, r.units[record.File])
}

// note counts the missing parts of a replayed request.
func (r *reader) note(e *event, record *accesslog.Record) {
	for _, missing := range []struct {
		is    bool
		count *int64
	}{
		{e.path == "" && len(e.descriptors) == 0, &r.counts.unformed}, {e.user == "", &r.counts.noUser},
		{e.host == "", &r.counts.noHost},
		{e.took == accesslog.Unknown, &r.counts.noDuration}, {e.status == 0, &r.counts.noStatus},
		{!record.Client.IsValid(), &r.counts.noClient},
	} {
		if missing.is {
			*missing.count++
		}
	}
}

// fill makes the event of a record.
func (r *reader) fill(e *event, record *accesslog.Record) {
	e.time, e.took, e.bytes, e.line, e.file = record.Time, record.Took, record.Bytes, record.Line, int32(record.File)
	if record.Status > 0 && record.Status < 1000 {
		e.status = int16(record.Status)
	}
	e.fields = r.keep(record.Fields)
	e.client = r.client(record, e.fields)
	e.id = idOf(e.client)
	e.method, e.user, e.agent = record.Method, record.User, record.Agent
	if e.domain, e.descriptors, e.hits = record.Domain, record.Descriptors, record.Hits; len(e.descriptors) == 0 {
		r.target(e, record)
	}
}

// keep copies header fields, many to an allocation: the record's memory is used again.
func (r *reader) keep(list []accesslog.Field) fields {
	if len(list) > cap(r.fields)-len(r.fields) {
		r.fields = make(fields, 0, max(1024, len(list)))
	}
	start := len(r.fields)
	r.fields = append(r.fields, list...)
	return r.fields[start:len(r.fields):len(r.fields)]
}

// client is the client's address, as a front end finds it.
func (r *reader) client(record *accesslog.Record, header fields) netip.Addr {
	if !record.Client.IsValid() {
		return netip.Addr{}
	}
	if !r.config.Clients.Trusts(record.Client) {
		return record.Client.Unmap().WithZone("")
	}
	client, _ := r.config.Clients.From(record.Client.String(), header.Values(r.config.Clients.Header()))
	return client
}

// target sets host, path and query. A request that a front end would refuse leaves the path empty.
func (r *reader) target(e *event, record *accesslog.Record) {
	raw, query, _ := strings.Cut(record.Target, "?")
	host := record.Host
	if i := strings.Index(raw, "://"); i > 0 && !strings.Contains(raw[:i], "/") { // the absolute form of a proxy
		authority, path, _ := strings.Cut(raw[i+3:], "/")
		host, raw = authority, "/"+path
	}
	e.raw, e.query = raw, query
	ok := true
	if host != "" {
		if e.host, ok = r.hosts[host]; !ok {
			e.host, ok = r.host(host)
		}
	}
	path, err := r.config.Form.Path(e.raw)
	if err != nil || !ok || raw == "*" || e.method == "CONNECT" || e.method == "TRACE" ||
		!r.config.AnyMethod && !webvalues.IsRegistered(e.method) {
		return
	}
	e.path = path
}

// maxHosts bounds the forms of hosts that are kept.
const maxHosts = 10_000

func (r *reader) host(text string) (form string, ok bool) {
	host, err := pathform.Host(text)
	if err != nil {
		return "", false
	}
	if len(r.hosts) < maxHosts {
		r.hosts[strings.Clone(text)] = strings.Clone(host)
	}
	return host, true
}

func newReader(c *Config) *reader {
	r := &reader{config: c, spread: spreader{way: c.Spread}, from: -1 << 62, to: 1 << 62,
		hosts: make(map[string]string)}
	if !c.From.IsZero() {
		r.from = c.From.UnixMicro()
	}
	if !c.To.IsZero() {
		r.to = c.To.UnixMicro()
	}
	return r
}
