// Package history keeps the counts of the nodes of a store in the last 24 hours, and answers for all of them. Each node
// makes a JSON document of each minute, and one of each ten minutes, and shares them through Redis, or keeps them in
// files where counts are in memory.
package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

const (
	kept        = 24 * time.Hour
	keptMinutes = 3 * time.Hour
	interval    = 10 * time.Second // between cuts, writes and descriptions of nodes
	nodeLasts   = 25 * time.Second // of a node's description: two may be missed
	closing     = 2 * time.Second  // for the last write
)

// A Recorder counts what this node decides.
type Recorder interface {
	// Cut returns the counts since the last Cut.
	Cut(at time.Time) *telemetry.Record
	Recent(f telemetry.Filter, most int) []telemetry.Sample
	// Watched are the names of the rules with counted keys.
	Watched() map[string]bool
}

// A Register keeps notes by name, each for a limited time, in a store that several nodes share: see gate.Register.
type Register interface {
	Register(ctx context.Context, register, name, note string, last time.Duration) error
	Registered(ctx context.Context, register string) (notes map[string]string, err error)
}

// A Config has the parts of a server that a History needs.
type Config struct {
	Name, Version string
	Recorder                            // its samples are those of the History
	Rules         func() *rules.Set     // in force
	Describe      func(*telemetry.Node) // completes the description of this node; it must not block
	Alerts        func() []telemetry.Alert
	Ledger        *ledger.Ledger // nil: none
	Redis         string         // URL; "": the history is of this node alone
	Register      Register       // of that Redis
	Dir           string         // of files; "": none
	Log           *slog.Logger
}

// A History is a telemetry.Reader. It is safe for concurrent use.
type History struct {
	Config
	now     func() time.Time
	id      string // of this process: two nodes may have one name, and a restarted one counts anew
	started time.Time
	shared  *shared // nil: none

	mu       sync.Mutex
	own      map[slot][]byte        // documents of this process
	unshared map[slot]bool          // those that Redis does not have
	current  map[time.Duration]*sum // documents that are not over, by their length
	pending  []telemetry.Mark       // since the last cut
	unsaid   int                    // bans beyond maxBans, since then
	cutAt    time.Time

	failing bool          // the last time; of the goroutine that publishes
	poked   chan struct{} // the description of this node has changed
	stop    context.CancelFunc
	ended   sync.WaitGroup

	writes, failures atomic.Int64
}

// Open restores the history of the files, and begins to record.
func Open(c Config) (*History, error) {
	h, err := open(c, time.Now)
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.ended.Go(func() { h.record(ctx) })
	h.ended.Go(func() { h.publish(ctx) })
	return h, nil
}

// open is Open without the goroutines, on another clock.
func open(c Config, now func() time.Time) (*History, error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	c.Name = nodeName(c.Name)
	h := &History{Config: c, now: now, id: c.Name + "/" + hex.EncodeToString(random), started: now(),
		own: make(map[slot][]byte), unshared: make(map[slot]bool),
		current: make(map[time.Duration]*sum), stop: func() {}, poked: make(chan struct{}, 1)}
	if c.Redis != "" {
		h.shared = &shared{url: c.Redis, register: c.Register, now: now, slots: make(map[slot]*others),
			faults: &h.failures}
	}
	if err := h.restore(); err != nil {
		return nil, err
	}
	h.Mark(telemetry.Mark{Kind: "start", Text: "weir " + c.Version + " started"})
	return h, nil
}

// maxName is the maximum length of a node's name, in bytes.
const maxName = 128

// nodeName is a name as it can stand in a list of nodes.
func nodeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// record cuts at multiples of the interval, so that the intervals of all nodes are the same.
func (h *History) record(ctx context.Context) {
	for {
		now := h.now()
		timer := time.NewTimer(now.Truncate(interval).Add(interval).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			h.cut(h.now())
		}
	}
}

// cut takes the counts since the last cut.
func (h *History) cut(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &document{Record: *h.Recorder.Cut(now), Marks: h.pending}
	if h.unsaid > 0 {
		d.Marks = append(d.Marks, telemetry.Mark{At: now.UTC(), Kind: "ban", Node: h.Name,
			Text: fmt.Sprint(h.unsaid, " more bans")})
	}
	h.pending, h.unsaid, h.cutAt = nil, 0, now
	if c := h.current[minute]; c != nil && d.At.Sub(c.from) >= minute {
		h.keepCurrent()
	}
	for _, step := range steps {
		h.add(slotOf(step, d.At), d)
	}
}

// add adds counts to the document of a slot, which begins if the last one is over.
func (h *History) add(s slot, d *document) {
	c := h.current[s.step]
	if c == nil || c.from.Before(s.start()) {
		c = newSum(s.start(), s.step, 0)
		if before, err := unpack(h.own[s]); err == nil { // of the process before this one
			c.add(before)
		}
		h.current[s.step] = c
	}
	c.add(d)
	h.owe(slotOf(s.step, c.from))
}

func (h *History) owe(s slot) {
	if h.shared != nil {
		h.unshared[s] = true
	}
}

// keepCurrent keeps the current documents in memory and in their files, and drops documents that are too old.
func (h *History) keepCurrent() {
	for step, c := range h.current {
		s := slotOf(step, c.from)
		h.own[s] = c.document().pack()
		if err := h.write(s); err != nil {
			h.failed("the history could not be written to a file", err)
		}
	}
	now := h.now()
	maps.DeleteFunc(h.own, func(s slot, _ []byte) bool { return now.Sub(s.end()) > s.keeps() })
	maps.DeleteFunc(h.unshared, func(s slot, _ bool) bool { return h.own[s] == nil })
	if _, err := h.sweep(); err != nil {
		h.failed("old files of the history could not be deleted", err)
	}
}

// failed counts and logs a failure.
func (h *History) failed(what string, err error) {
	h.failures.Add(1)
	h.Log.Warn("telemetry: "+what, "error", err)
}

// maxBans is the maximum number of bans between two cuts that are separate marks, and maxPending the maximum of all
// marks: an attack bans thousands of keys.
const (
	maxBans    = 20
	maxPending = 100
)

// Mark records a change or an incident of this node.
func (h *History) Mark(m telemetry.Mark) {
	if m.At.IsZero() {
		m.At = h.now()
	}
	m.At, m.Node = m.At.UTC(), h.Name
	m.Text = strings.ToValidUTF8(m.Text[:min(len(m.Text), maxWord)], "\uFFFD")
	h.mu.Lock()
	defer h.mu.Unlock()
	bans := 0
	for i := range h.pending {
		if h.pending[i].Kind == "ban" {
			bans++
		}
	}
	switch {
	case m.Kind == "ban" && bans >= maxBans:
		h.unsaid++
	case len(h.pending) < maxPending:
		h.pending = append(h.pending, m)
	}
}

// publish shares the records, and the description of this node. It has a separate goroutine, because Redis may
// be slow.
func (h *History) publish(ctx context.Context) {
	if h.shared == nil {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		h.share(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-h.poked:
		}
	}
}

// Announce describes this node to the others at once.
func (h *History) Announce() {
	select {
	case h.poked <- struct{}{}:
	default: // it is about to
	}
}

// share writes the documents that Redis does not have yet, and the current one as it is now. A failure is repeated with
// the next interval, and logged once.
func (h *History) share(ctx context.Context) {
	self := h.self()
	failed := errors.Join(h.shared.announce(ctx, h.id, &self), h.shareDocuments(ctx))
	switch {
	case ctx.Err() != nil:
	case failed == nil && h.failing:
		h.Log.Info("telemetry: the history is shared in Redis again")
	case failed != nil && h.failing:
		h.failures.Add(1)
	case failed != nil:
		h.failed("the history could not be written to Redis; it is repeated every 10s", failed)
	}
	h.failing = failed != nil
}

// shareDocuments writes what Redis does not have. Documents that could not be written are tried again the next time; if
// Redis has lost the one that was written last, all are.
func (h *History) shareDocuments(ctx context.Context) error {
	h.mu.Lock()
	texts := make(map[slot][]byte, len(h.unshared))
	for s := range h.unshared {
		texts[s] = h.ownText(s)
	}
	texts[h.shared.last] = h.ownText(h.shared.last) // to see that it is there
	clear(h.unshared)
	h.mu.Unlock()
	maps.DeleteFunc(texts, func(_ slot, text []byte) bool { return text == nil })
	n, lost, err := h.shared.write(ctx, h.id, texts)
	h.writes.Add(int64(n))
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range texts { // those that were written are no longer there
		h.unshared[s] = true
	}
	if lost {
		for s := range h.own {
			h.unshared[s] = true
		}
	}
	return err
}

// Close records and writes the rest, and says to the other nodes that this one is gone.
func (h *History) Close() error {
	h.stop()
	h.ended.Wait()
	h.cut(h.now())
	h.mu.Lock()
	before := h.failures.Load()
	h.keepCurrent()
	lost := h.failures.Load() > before
	h.mu.Unlock()
	if h.shared != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		if err := h.shareDocuments(ctx); err != nil {
			h.failed("the history could not be written to Redis at the end", err)
		}
		h.shared.leave(ctx, h.id)
	}
	if lost {
		return errors.New("the history of the last minute is lost: its file could not be written")
	}
	return nil
}

// Writes is how many documents were written to Redis.
func (h *History) Writes() int64 { return h.writes.Load() }

// Failures is how often Redis or a file failed.
func (h *History) Failures() int64 { return h.failures.Load() }

// Bytes is the memory of the documents, other nodes' included.
func (h *History) Bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.shared.bytes()
	for _, text := range h.own {
		n += int64(len(text))
	}
	return n
}

// ownText is a document of this process as it is now; nil: no document. Its caller holds h.mu.
func (h *History) ownText(s slot) []byte {
	if c := h.currentOf(s); c != nil {
		return c.document().pack()
	}
	return h.own[s]
}

// currentOf is the document of a slot that is not over; nil: it is, or has not begun.
func (h *History) currentOf(s slot) *sum {
	if c := h.current[s.step]; c != nil && s == slotOf(s.step, c.from) {
		return c
	}
	return nil
}
