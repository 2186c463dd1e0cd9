package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// A snapshot has the entries of a ledger at one moment.
type snapshot struct {
	revision int64             // 0: nothing was ever written
	values   map[string]string // by name
	now      time.Time         // by Redis' clock
	read     time.Time         // by this process'
	mark     string            // time of the change of that revision; "": unknown
	lost     int64             // the last revision known to be lost; 0: none
}

var errReply = errors.New("the script's reply is not understood")

func (c *config) readAll(ctx context.Context, client rueidis.Client, script *rueidis.Lua) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	args := append(c.known(), strconv.Itoa(c.most), strconv.Itoa(ledger.MaxBytes))
	reply, err := script.Exec(ctx, client, c.keys(), args).ToArray()
	if err != nil {
		return nil, c.foreign(err)
	}
	if len(reply) != 5 {
		return nil, errReply
	}
	if many, err := reply[1].AsInt64(); err == nil {
		return nil, refuse("too many", "the ledger has over %d rules, or over %d MiB: it has %d", c.most,
			ledger.MaxBytes>>20, many)
	}
	h := &snapshot{read: time.Now()}
	if h.now, err = momentOf(reply[2]); err != nil {
		return nil, err
	}
	if h.values, err = reply[1].AsStrMap(); err != nil {
		return nil, err
	}
	mark, errMark := reply[3].ToString()
	lost, errLost := reply[4].AsInt64()
	text, err := reply[0].ToString()
	if err := errors.Join(err, errMark, errLost); err != nil {
		return nil, err
	}
	h.mark, h.lost = mark, lost
	if text != "" {
		h.revision, err = strconv.ParseInt(text, 10, 64)
	}
	return h, err
}

// momentOf parses the reply to TIME.
func momentOf(reply rueidis.RedisMessage) (time.Time, error) {
	parts, err := reply.AsStrSlice()
	if err != nil || len(parts) != 2 {
		return time.Time{}, errReply
	}
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	micros, errMicros := strconv.ParseInt(parts[1], 10, 64)
	return time.Unix(seconds, micros*1000), errors.Join(err, errMicros)
}

// A ledgerState is the state of a ledger. Messages only say that it has changed.
type ledgerState struct {
	config   *config
	script   *rueidis.Lua
	revision int64
	entries  map[string]*ledgerEntry
	now      time.Time    // of the last reading, by Redis' clock
	read     time.Time    // of the last reading, by this process'
	rules    []rules.Spec // of the last contents; nil: one of them has changed since
	lost     error        // non-nil: changes were lost
}

// A ledgerEntry is the state of one document.
type ledgerEntry struct {
	value string      // as read last
	good  *rules.Spec // the last good version; nil: there was none, or it is disabled
	wrong []Problem
	was   bool // there was a good version
	off   bool // the rule is disabled

	exception *ledger.Change // the last good version, if it is an exception
}

// A ledgerFetch is one reading.
type ledgerFetch struct {
	state *ledgerState
	held  *snapshot
}

func newLedgerState(c *config) *ledgerState {
	return &ledgerState{config: c, script: ledgerScript(readText), entries: make(map[string]*ledgerEntry)}
}

func (s *ledgerState) all(string) bool     { return true }
func (s *ledgerState) receive(string) bool { return false }
func (s *ledgerState) begin() fetch        { return &ledgerFetch{state: s} }

func (l *ledgerFetch) run(ctx context.Context, client rueidis.Client) (err error) {
	l.held, err = l.state.config.readAll(ctx, client, l.state.script)
	return err
}

// take accepts a reading, unless the script found that changes are lost: then the rules that were
// read before stay in force. A process that has read nothing before accepts what there is, with a
// warning. A ledger whose rules were all deleted is not lost, because each deletion is a change.
func (s *ledgerState) take(f fetch) error {
	held := f.(*ledgerFetch).held
	s.lost = nil
	if held.lost > 0 {
		s.lost = &ledger.LostError{Ledger: s.config.prefix, Seen: held.lost, Is: held.revision}
		if s.revision > 0 {
			return refuse(fmt.Sprintf("lost %d", held.lost), "%w", s.lost)
		}
	}
	s.revision, s.now, s.read = held.revision, held.now, held.read
	s.config.lastRead.accept(held)
	for name, e := range s.entries {
		if _, there := held.values[name]; !there {
			s.changed(e)
			delete(s.entries, name)
		}
	}
	for name, value := range held.values {
		s.put(name, value)
	}
	return nil
}

func (s *ledgerState) put(name, value string) {
	e := s.entries[name]
	if e == nil {
		e = new(ledgerEntry)
		s.entries[name] = e
	} else if e.value == value {
		return
	}
	e.value, e.wrong = value, nil
	c, err := ledger.Decode(name, value)
	var spec rules.Spec
	if err == nil && c.Exception == nil && c.YAML != "" {
		spec, err = ParseDocument(name, c.YAML)
	}
	if err != nil {
		e.wrong = []Problem{{Where: quoted(name), Message: err.Error()}}
		return
	}
	s.changed(e)
	e.good, e.exception, e.was, e.off = nil, nil, true, c.Exception == nil && !c.Enabled
	switch {
	case c.Exception != nil:
		e.exception = &c
	case c.Enabled:
		e.good, s.rules = &spec, nil
	}
}

// changed records that an entry has changed. While no rule changes, the slice of rules stays in the
// same memory, by which the Keeper knows that it need not compile.
func (s *ledgerState) changed(e *ledgerEntry) {
	if e.good != nil {
		s.rules = nil
	}
}

func (s *ledgerState) contents() contents {
	file := &rules.File{Name: "redis ledger " + quoted(s.config.prefix)}
	wrong := &Error{}
	var exceptions []ledger.Change
	fresh, leftOut := s.rules == nil, 0
	for _, name := range sorted(s.entries) {
		e := s.entries[name]
		if e.good != nil && fresh {
			s.rules = append(s.rules, *e.good)
		}
		if e.off {
			file.Disabled = append(file.Disabled, name)
		}
		if e.exception != nil {
			exceptions = append(exceptions, *e.exception)
		}
		leftOut += min(1, len(e.wrong))
		for _, p := range e.wrong {
			p.State = absentState
			if e.was {
				p.State = keptState
			}
			wrong.add(p)
		}
	}
	file.Rules = slices.Clip(s.rules)
	file.Exceptions = ledger.ExceptionsOf(exceptions, s.now, s.read)
	return contents{file, ledger.Ended(strconv.FormatInt(s.revision, 10), file.Exceptions, s.read),
		joined(s.lost, wrong.orNil()), leftOut}
}
