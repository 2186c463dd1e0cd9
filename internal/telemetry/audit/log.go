package audit

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

const (
	// every is how often the queue is emptied.
	every = 100 * time.Millisecond
	// maxQueued and maxText bound the queue, in records and in bytes of their texts: 80,000
	// records a second. Records beyond that are counted as lost, so that a flood cannot take the processor from
	// requests.
	maxQueued = 8192
	maxText   = 2 << 20
	// maxMarks bounds the changes and incidents that are queued.
	maxMarks = 1024
	// maxShards is the most parts of the queue, each with its own lock.
	maxShards = 16
	// closeWithin is how long Close waits for the sinks.
	closeWithin = 2 * time.Second
)

// A Config describes a Log.
type Config struct {
	Node   string // in each record
	Keys   Keys
	Secret []byte // for Hashed
	Sinks  []Sink
	Log    *slog.Logger // for losses and failures of sinks
}

// A Log records verdicts and marks. It is safe for concurrent use.
type Log struct {
	Config
	shards  []shard
	outlets []*outlet
	lost    atomic.Int64 // before the sinks, so for each of them

	// Of the goroutine: lost records that were logged, and when.
	said   int64
	saidAt time.Time

	mu    sync.Mutex
	marks []Record

	stop  chan struct{}
	ended sync.WaitGroup
}

// A shard is a part of the queue. Memory is reused: two sets of it take turns.
type shard struct {
	mu      sync.Mutex
	entries []entry
	text    []byte // key, request id, method and path of each entry
	spare   struct {
		entries []entry
		text    []byte
	}
	_ [64]byte // keep shards in different cache lines
}

// An entry is a record before it has texts, which are made outside of requests.
type entry struct {
	at      time.Time
	rule    *rules.Rule // nil: none
	class   *rules.Class
	wait    time.Duration
	client  netip.Addr
	sizes   [texts]int32
	outcome uint8
	reason  uint8 // a gate.Reason, or of a cost a gate.CountResult

	estimate, cost int64 // units of a metered rule
}

// The texts of an entry.
const (
	ofKey = iota
	ofID
	ofMethod
	ofPath
	texts
)

// Clients choose methods and paths: longer ones are cut.
const (
	maxMethod = 32
	maxPath   = 256
)

// ban and cost are the outcomes of entries for bans and costs; the others are gate's.
const (
	ban = uint8(gate.Failed) + 1 + iota
	cost
)

// New makes a Log, and starts to write. Close ends it.
func New(c Config) *Log {
	n := 1
	for n < min(runtime.GOMAXPROCS(0), maxShards) {
		n *= 2
	}
	l := &Log{Config: c, shards: make([]shard, n), stop: make(chan struct{})}
	for _, sink := range c.Sinks {
		l.outlets = append(l.outlets, newOutlet(sink, c.Log))
	}
	l.ended.Go(l.run)
	return l
}

// Verdict records a verdict that did not pass, as an observer for gate.WithObserver. A look, which does not
// charge, is no decision.
func (l *Log) Verdict(v *gate.Verdict) {
	if v.Times == 0 || v.Outcome == gate.Passed && len(v.Banned()) == 0 {
		return
	}
	method, path := v.Target()
	of := targetOf([texts]string{}, v.RequestID(), method, path)
	l.bans(v.Banned(), v.Client, of)
	if v.Outcome == gate.Passed {
		return
	}
	e := entry{at: time.Now(), rule: v.Rule, class: v.Class(), outcome: uint8(v.Outcome), reason: uint8(v.Reason),
		client: v.Client}
	if check, ok := v.Worst(); ok && check.Decided {
		e.wait = check.Decision.RetryAfter
		if check.Rule != nil && check.Rule.Metered() {
			e.estimate = check.Claim.Cost
		}
	}
	of[ofKey] = keyOf(v)
	l.add(&e, &of)
}

// Counting records the bans of a response, and the cost of a request in units that have a name, as an observer for
// gate.WithCountObserver. The request has passed: what caused a ban is not known any more.
func (l *Log) Counting(c *gate.Counting) {
	l.bans(c.Banned, netip.Addr{}, [texts]string{})
	ended := c.Result >= gate.Settled || c.Estimate > 0 && (c.Result == gate.Returned || c.Result == gate.Lost)
	if !ended || c.Rule.Unit().Name == "" || strings.HasPrefix(c.Key, telemetry.ShadowPrefix) {
		return // a shadow rule only tries its units
	}
	e := entry{at: time.Now(), rule: c.Rule, outcome: cost, reason: uint8(c.Result), estimate: c.Estimate,
		cost: c.Units}
	of := [texts]string{ofKey: c.Key}
	if c.Origin != nil {
		e.client = c.Origin.Client
		of = targetOf(of, c.Origin.RequestID, c.Origin.Method, c.Origin.Path)
	}
	l.add(&e, &of)
}

// targetOf adds the texts of a request.
func targetOf(of [texts]string, id, method, path string) [texts]string {
	of[ofID], of[ofMethod], of[ofPath] = id, method[:min(len(method), maxMethod)], path[:min(len(path), maxPath)]
	return of
}

func (l *Log) bans(list []gate.Ban, client netip.Addr, of [texts]string) {
	for _, b := range list {
		of[ofKey] = b.Key
		l.add(&entry{at: time.Now(), rule: b.Rule, wait: b.Length, outcome: ban, client: client}, &of)
	}
}

// keyOf is the key of the deciding rule. Without one it is the client of a denied request.
func keyOf(v *gate.Verdict) string {
	if check, ok := v.Worst(); ok {
		return check.Claim.Key
	}
	for i := range v.Len() {
		if check := v.At(i); check.Rule == v.Rule {
			return check.Claim.Key
		}
	}
	if v.Client.IsValid() {
		return telemetry.KeyOfClient(v.Client.String())
	}
	return ""
}

// add queues an entry, or counts it as lost. Costs, which requests that pass have, take at most half of the queue.
func (l *Log) add(e *entry, of *[texts]string) {
	size := 0
	for i, text := range of {
		e.sizes[i] = int32(len(text))
		size += len(text)
	}
	s := &l.shards[rand.Uint32()&uint32(len(l.shards)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	share := len(l.shards)
	if e.outcome == cost {
		share *= 2
	}
	if len(s.entries) >= maxQueued/share || len(s.text)+size > maxText/share {
		l.lost.Add(1)
		return
	}
	s.entries = append(s.entries, *e)
	for _, text := range of {
		s.text = append(s.text, text...)
	}
}

// Mark records a change or an incident.
func (l *Log) Mark(m telemetry.Mark) {
	text := strings.TrimPrefix(m.Text+": "+m.Reason, ": ")
	r := Record{At: m.At, Node: l.Node, Outcome: m.Kind, Rule: m.Rule, Key: l.Keys.Redact(m.Key, l.Secret),
		Actor: m.Actor, Text: strings.TrimSuffix(text, ": ")}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marks) == maxMarks {
		l.lost.Add(1)
		return
	}
	l.marks = append(l.marks, r)
}

func (l *Log) run() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.pass()
		case <-l.stop:
			l.pass()
			return
		}
	}
}

// pass hands the queued records to the sinks.
func (l *Log) pass() {
	list := l.take()
	l.sayLost()
	if len(list) == 0 {
		return
	}
	for _, o := range l.outlets {
		o.put(list)
	}
}

// sayLost logs new losses, at most every ten seconds.
func (l *Log) sayLost() {
	lost := l.lost.Load()
	if lost == l.said || time.Since(l.saidAt) < 10*time.Second {
		return
	}
	l.Log.Warn("audit records were lost: the queue was full", "lost", lost-l.said)
	l.said, l.saidAt = lost, time.Now()
}

// take empties the queue, in the order of time.
func (l *Log) take() (list []Record) {
	for i := range l.shards {
		list = l.shards[i].take(l, list)
	}
	l.mu.Lock()
	list = append(list, l.marks...)
	l.marks = l.marks[:0]
	l.mu.Unlock()
	slices.SortStableFunc(list, func(a, b Record) int { return a.At.Compare(b.At) })
	return list
}

func (s *shard) take(l *Log, list []Record) []Record {
	s.mu.Lock()
	entries, text := s.entries, s.text
	s.entries, s.text = s.spare.entries[:0], s.spare.text[:0]
	s.mu.Unlock()
	at := 0
	for i := range entries {
		e := &entries[i]
		var of [texts]string
		for j, size := range e.sizes {
			of[j] = string(text[at : at+int(size)])
			at += int(size)
		}
		list = append(list, l.record(e, &of))
	}
	clear(entries) // drop the rules
	s.spare.entries, s.spare.text = entries, text
	return list
}

func (l *Log) record(e *entry, of *[texts]string) Record {
	r := Record{At: e.at.UTC(), Node: l.Node, Key: l.Keys.Redact(of[ofKey], l.Secret), RequestID: of[ofID],
		Method: strings.ToValidUTF8(of[ofMethod], "\uFFFD"), Path: l.Keys.Redact(of[ofPath], l.Secret), Wait: e.wait}
	if e.client.IsValid() {
		r.Client = l.Keys.Redact(e.client.String(), l.Secret)
	}
	if e.rule != nil {
		r.Rule = e.rule.Name()
	}
	if e.class != nil {
		r.Class = e.class.Name
	}
	if e.wait == weir.Never {
		r.Wait = -1
	}
	if r.Estimate, r.Cost = e.estimate, e.cost; e.estimate > 0 || e.outcome == cost {
		r.Unit = e.rule.Unit().String()
	}
	switch e.outcome {
	case ban:
		r.Outcome = "ban"
	case cost:
		r.Outcome, r.Reason = telemetry.AuditCost, gate.CountResult(e.reason).String()
	default:
		r.Outcome, r.Reason = gate.Outcome(e.outcome).String(), gate.Reason(e.reason).String()
	}
	return r
}

// Counts are the records of one sink since the start. Their sum counts all records, but for queued
// ones.
type Counts struct {
	Sink    string
	Written int64
	Lost    int64 // the queue was full, or the sink failed

	Failures int64 // writes that failed; they are repeated
}

// Counts returns the counts of each sink, in their order.
func (l *Log) Counts() (list []Counts) {
	for _, o := range l.outlets {
		list = append(list, Counts{Sink: o.sink.Name(), Written: o.written.Load(),
			Lost: l.lost.Load() + o.lost.Load(), Failures: o.failures.Load()})
	}
	return list
}

// Close writes queued records, and counts as lost the ones that the sinks do not take within two seconds. Call it when
// no more verdicts come.
func (l *Log) Close() {
	close(l.stop)
	l.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for _, o := range l.outlets {
		o.close(ctx)
	}
}
