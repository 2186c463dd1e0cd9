package redissource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// A snapshot has the entries of a ledger at one moment.
type snapshot struct {
	ledger.Snapshot
	mark string // time of the change of that revision; "": unknown
	lost int64  // the last revision known to be lost; 0: none
}

var errReply = errors.New("the script's reply is not understood")

func (c *config) readAll(ctx context.Context, client redisconn.Client, script *redisconn.Script) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	args := append(c.known(), strconv.Itoa(c.most), strconv.Itoa(ledger.MaxBytes))
	reply, err := client.Exec(ctx, script, c.keys(), args).List()
	if err != nil {
		return nil, c.foreign(err)
	}
	if len(reply) != 5 {
		return nil, errReply
	}
	if many, err := reply[1].Int(); err == nil {
		return nil, refuse("too many", "the ledger has over %d rules, or over %d MiB: it has %d", c.most,
			ledger.MaxBytes>>20, many)
	}
	h := &snapshot{Snapshot: ledger.Snapshot{Read: time.Now()}}
	if h.Now, err = reply[2].Time(); err != nil {
		return nil, err
	}
	if h.Values, err = reply[1].Map(); err != nil {
		return nil, err
	}
	mark, errMark := reply[3].Text()
	lost, errLost := reply[4].Int()
	text, err := reply[0].Text()
	if err := errors.Join(err, errMark, errLost); err != nil {
		return nil, err
	}
	h.mark, h.lost = mark, lost
	if text != "" {
		h.Revision, err = strconv.ParseInt(text, 10, 64)
	}
	return h, err
}

// A ledgerState is the state of a ledger. Messages only say that it has changed.
type ledgerState struct {
	config *config
	script *redisconn.Script
	view   *ledger.View
	held   *snapshot                   // the last accepted reading
	lost   error                       // non-nil: changes were lost
	revert func(context.Context) error // Ledger.Settle
}

func newLedgerState(c *config, revert func(context.Context) error) *ledgerState {
	return &ledgerState{config: c, script: ledgerScript(readText), revert: revert,
		view: ledger.NewView("redis ledger " + ruleset.Quoted(c.prefix)), held: new(snapshot)}
}

func (s *ledgerState) all(string) bool     { return true }
func (s *ledgerState) receive(string) bool { return false }

// read implements state. It accepts a reading unless the script found that changes are lost: then the rules that were
// read before stay in force. A process accepts its first reading, with a warning. A ledger is not lost if all rules
// were deleted, because each deletion is a change.
func (s *ledgerState) read(ctx context.Context, client redisconn.Client) error {
	held, err := s.config.readAll(ctx, client, s.script)
	if err != nil {
		return err
	}
	s.lost = nil
	if held.lost > 0 {
		s.lost = &ledger.LostError{Ledger: s.config.prefix, Seen: held.lost, Is: held.Revision}
		if s.held.Revision > 0 {
			return refuse(fmt.Sprintf("lost %d", held.lost), "%w", s.lost)
		}
	}
	s.held = held
	s.config.lastRead.accept(held)
	return nil
}

// turns implements state.
func (s *ledgerState) turns() time.Time { return s.view.Ends() }

// settle implements state.
func (s *ledgerState) settle(ctx context.Context) error {
	if !s.view.Reverted() || s.config.claim == Look {
		return nil
	}
	return s.revert(ctx)
}

// contents implements state.
func (s *ledgerState) contents() ruleset.Update {
	n := s.view.Update(&s.held.Snapshot)
	if s.lost != nil && n.Warning != nil {
		n.Warning = errors.Join(s.lost, n.Warning)
	} else if s.lost != nil {
		n.Warning = s.lost
	}
	return n
}
