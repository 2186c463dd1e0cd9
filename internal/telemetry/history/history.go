// Package history keeps what the nodes of a store counted in the last 24 hours, and answers for all of them: each node
// packs one record a minute, and shares it through Redis, or keeps it in files where counts are in memory.
package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
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
	kept      = 24 * time.Hour
	interval  = 10 * time.Second // between cuts, writes and descriptions of nodes
	fineSteps = 90               // intervals that are kept: 15 minutes
	nodeLasts = 25 * time.Second // of a node's description: two may be missed
	closing   = 2 * time.Second  // for the last write
)

// A Recorder counts what this node decides.
type Recorder interface {
	// Cut returns what was counted since the last Cut.
	Cut(at time.Time) *telemetry.Record
	Recent(f telemetry.Filter, most int) []telemetry.Sample
	Watch(ctx context.Context, f telemetry.Filter, each func(telemetry.Sample) error) error
	// Watched are the names of the rules whose keys are counted.
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
	Recorder      Recorder
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
	files   *files  // nil: none

	mu      sync.Mutex
	fine    [][]byte         // packed intervals of this node, the oldest first
	latest  *sum             // interval, which may not be over
	current *sum             // this minute
	minutes map[int64][]byte // packed minutes of this node, by the minutes since 1970
	coarse  int64            // minutes before this one are in the first of each blockMinutes
	blocks  blocks
	pending []telemetry.Mark // since the last cut
	unsaid  int              // bans beyond mostBans, since then
	cutAt   time.Time

	sums    cache
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
		minutes: make(map[int64][]byte), blocks: make(blocks), stop: func() {}, poked: make(chan struct{}, 1)}
	if c.Redis != "" {
		h.shared = &shared{url: c.Redis, register: c.Register, now: now, others: make(map[string]*other),
			faults: &h.failures, late: h.forgetBlocks}
	}
	if c.Dir != "" {
		var err error
		if h.files, err = openFiles(c.Dir, h.started, h.restore); err != nil {
			return nil, err
		}
	}
	h.Mark(telemetry.Mark{Kind: "start", Text: "weir " + c.Version + " started"})
	return h, nil
}

// mostName is the maximum length of a node's name, in bytes.
const mostName = 128

// nodeName is a name as it can stand in a key: braces would change the slot of a Cluster.
func nodeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '{' || r == '}' || unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), mostName)], "")
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

// cut takes what was counted since the last cut.
func (h *History) cut(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &slice{Record: *h.Recorder.Cut(now), Marks: h.pending}
	if h.unsaid > 0 {
		s.Marks = append(s.Marks, telemetry.Mark{At: now.UTC(), Kind: "ban", Node: h.Name,
			Text: fmt.Sprint(h.unsaid, " more bans")})
	}
	h.pending, h.unsaid, h.cutAt = nil, 0, now
	at := s.At.Truncate(interval)
	if h.latest != nil && h.latest.from.Before(at) {
		h.fine = append(h.fine, pack(h.latest.slice(), keysPerFine))
		h.fine = h.fine[max(0, len(h.fine)-fineSteps+1):]
		h.latest = nil
	}
	if h.latest == nil {
		h.latest = newSum(at, interval, 0)
	}
	h.latest.add(s)
	h.addToMinute(s)
}

// addToMinute adds a slice to the minute of its beginning.
func (h *History) addToMinute(s *slice) {
	at := s.At.Truncate(time.Minute).UTC()
	if h.current != nil && h.current.from.Before(at) {
		done := minuteOf(h.current.from)
		h.minutes[done] = pack(h.current.slice(), keysPerSlice)
		if err := h.files.write(done, h.minutes[done]); err != nil {
			h.failed("the history could not be written to a file", err)
		}
		h.current = nil
		for minute := range h.minutes {
			if minute < done-int64(kept/time.Minute) {
				delete(h.minutes, minute)
			}
		}
		h.thin()
	}
	if h.current == nil {
		h.current = newSum(at, time.Minute, 0)
	}
	h.current.add(s)
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// restore adds a minute that a file has. Two processes may have had parts of it.
func (h *History) restore(s *slice) {
	minute := minuteOf(s.At)
	if before, err := unpack(h.minutes[minute]); err == nil {
		both := newSum(before.At, time.Minute, 0)
		both.add(before)
		both.add(s)
		s = both.slice()
	}
	h.minutes[minute] = pack(s, keysPerSlice)
}

// failed counts and logs a failure.
func (h *History) failed(what string, err error) {
	h.failures.Add(1)
	h.Log.Warn("telemetry: "+what, "error", err)
}

// mostBans is the maximum number of bans between two cuts that are marks of their own, and mostPending that of all
// marks: an attack bans thousands of keys.
const (
	mostBans    = 20
	mostPending = 100
)

// Mark records a change or an incident of this node.
func (h *History) Mark(m telemetry.Mark) {
	if m.At.IsZero() {
		m.At = h.now()
	}
	m.At, m.Node = m.At.UTC(), h.Name
	h.mu.Lock()
	defer h.mu.Unlock()
	bans := 0
	for i := range h.pending {
		if h.pending[i].Kind == "ban" {
			bans++
		}
	}
	switch {
	case m.Kind == "ban" && bans >= mostBans:
		h.unsaid++
	case len(h.pending) < mostPending:
		h.pending = append(h.pending, m)
	}
}

// publish shares what was recorded, and the description of this node. It has a goroutine of its own, because Redis may
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

// share writes the minutes that Redis does not have yet, and the current one as it is now. A failure is repeated with
// the next interval, and logged once.
func (h *History) share(ctx context.Context) {
	self := h.self()
	failed := h.shared.announce(ctx, h.id, &self)
	n, err := h.shared.write(ctx, h.id, h.unshared())
	h.writes.Add(int64(n))
	failed = errors.Join(failed, err)
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

// A packed minute is one to be written.
type packedMinute struct {
	minute int64
	text   []byte
}

// unshared returns the minutes that Redis does not have, the oldest first, and then the current one.
func (h *History) unshared() (list []packedMinute) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return nil
	}
	now := minuteOf(h.current.from)
	for minute := max(h.shared.next, now-int64(kept/time.Minute)); minute < now; minute++ {
		if text := h.minutes[minute]; text != nil {
			list = append(list, packedMinute{minute, text})
		}
	}
	return append(list, packedMinute{now, pack(h.current.slice(), keysPerSlice)})
}

// Close records and writes what is left, and says to the other nodes that this one is gone.
func (h *History) Close() error {
	h.stop()
	h.ended.Wait()
	h.cut(h.now())
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if h.shared != nil {
		_, err := h.shared.write(ctx, h.id, h.unshared())
		if err != nil {
			h.failed("the history could not be written to Redis at the end", err)
		}
		h.shared.leave(ctx, h.id)
	}
	if h.files == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.files.close(minuteOf(h.current.from), pack(h.current.slice(), keysPerSlice))
}

// Writes is how many records were written to Redis.
func (h *History) Writes() int64 { return h.writes.Load() }

// Failures is how often Redis or a file failed.
func (h *History) Failures() int64 { return h.failures.Load() }

// Bytes is the memory of the packed records, those of other nodes included.
func (h *History) Bytes() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.shared.bytes() + bytesOf(h.fine)
	for _, list := range []map[int64][]byte{h.minutes, h.blocks} {
		for _, text := range list {
			n += int64(len(text))
		}
	}
	return n
}

func bytesOf(list [][]byte) (n int64) {
	for _, text := range list {
		n += int64(len(text))
	}
	return n
}

// Recent implements telemetry.Reader.
func (h *History) Recent(f telemetry.Filter, most int) []telemetry.Sample {
	return h.Recorder.Recent(f, most)
}

// Watch implements telemetry.Reader.
func (h *History) Watch(ctx context.Context, f telemetry.Filter, each func(telemetry.Sample) error) error {
	return h.Recorder.Watch(ctx, f, each)
}
