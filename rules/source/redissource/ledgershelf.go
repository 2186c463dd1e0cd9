package redissource

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// holdings are what a ledger holds at one moment.
type holdings struct {
	revision int64             // 0: nothing was ever written
	values   map[string]string // by name
}

var errReply = errors.New("the script's reply is not understood")

func (c *config) readAll(ctx context.Context, client rueidis.Client, script *rueidis.Lua) (*holdings, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	reply, err := script.Exec(ctx, client, c.keys()[:2], []string{strconv.Itoa(c.most), strconv.Itoa(maxLedger)}).ToArray()
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, errReply
	}
	if many, err := reply[1].AsInt64(); err == nil {
		return nil, refuse("too many", "the ledger has over %d rules, or over %d MiB: it has %d", c.most, maxLedger>>20, many)
	}
	h := new(holdings)
	if h.values, err = reply[1].AsStrMap(); err != nil {
		return nil, err
	}
	text, err := reply[0].ToString()
	if err != nil || text == "" {
		return h, err
	}
	h.revision, err = strconv.ParseInt(text, 10, 64)
	return h, err
}

// A ledgerShelf is what is known of a ledger. Messages only say that there is news.
type ledgerShelf struct {
	config   *config
	script   *rueidis.Lua
	revision int64
	entries  map[string]*leaf
}

// A leaf is what is known of one document.
type leaf struct {
	value string      // as it was read last
	good  *rules.Spec // of the last good version; nil: there was none, or it is disabled
	wrong []Problem
	was   bool // there was a good version
}

// A ledgerLook is one reading.
type ledgerLook struct {
	shelf *ledgerShelf
	held  *holdings
}

func newLedgerShelf(c *config) *ledgerShelf {
	return &ledgerShelf{config: c, script: rueidis.NewLuaScript(readText), entries: make(map[string]*leaf)}
}

func (s *ledgerShelf) all(string) bool  { return true }
func (s *ledgerShelf) hear(string) bool { return false }
func (s *ledgerShelf) begin() look      { return &ledgerLook{shelf: s} }

func (l *ledgerLook) run(ctx context.Context, client rueidis.Client) (err error) {
	l.held, err = l.shelf.config.readAll(ctx, client, l.shelf.script)
	return err
}

// take knows a ledger whose rules were all deleted from one that is gone: that has no
// revision.
func (s *ledgerShelf) take(l look) error {
	held := l.(*ledgerLook).held
	if held.revision == 0 && s.revision > 0 && len(held.values) == 0 && !s.config.allowEmpty {
		return refuse("empty", "the ledger %s is gone: %w", quoted(s.config.prefix), source.ErrEmpty)
	}
	s.revision = held.revision
	for name := range s.entries {
		if _, there := held.values[name]; !there {
			delete(s.entries, name)
		}
	}
	for name, value := range held.values {
		s.put(name, value)
	}
	return nil
}

func (s *ledgerShelf) put(name, value string) {
	e := s.entries[name]
	if e == nil {
		e = new(leaf)
		s.entries[name] = e
	} else if e.value == value {
		return
	}
	e.value, e.wrong = value, nil
	c, err := decodeChange(name, value)
	var spec rules.Spec
	if err == nil {
		spec, err = ParseDocument(name, c.YAML)
	}
	if err != nil {
		e.wrong = []Problem{{Where: quoted(name), Message: err.Error()}}
		return
	}
	e.good, e.was = nil, true
	if c.Enabled {
		e.good = &spec
	}
}

func (s *ledgerShelf) law() law {
	file := &rules.File{Name: "redis ledger " + quoted(s.config.prefix)}
	wrong := &Error{}
	for _, name := range sorted(s.entries) {
		e := s.entries[name]
		if e.good != nil {
			file.Rules = append(file.Rules, *e.good)
		}
		for _, p := range e.wrong {
			p.State = absentState
			if e.was {
				p.State = keptState
			}
			wrong.add(p)
		}
	}
	return law{file, strconv.FormatInt(s.revision, 10), wrong.orNil()}
}
