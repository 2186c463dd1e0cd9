package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// reportGap is the least time between two reports of nothing but invalid messages.
const reportGap = time.Second

// queued is the number of messages that may wait. With more, all hashes are read instead.
const queued = 256

// An inbox is filled by the connection's reader, which must not block.
type inbox struct {
	all    func(string) bool // the state's
	rules  chan string
	reload chan struct{} // one RELOAD_ALL stands for any number
}

func newInbox(all func(string) bool) *inbox {
	return &inbox{all: all, rules: make(chan string, queued), reload: make(chan struct{}, 1)}
}

func (b *inbox) put(text string) {
	if !b.all(text) {
		if len(text) > MaxMessage { // a truncated message is invalid JSON, and is reported as such
			text = fmt.Sprintf("%.40s… (%d bytes; at most %d)", text, len(text), MaxMessage)
		}
		select {
		case b.rules <- text:
			return
		default:
		}
	}
	select {
	case b.reload <- struct{}{}:
	default:
	}
}

// A session is one connection, from its subscription to its end.
type session struct {
	*Source
	client  rueidis.Client
	inbox   *inbox
	updates chan<- ruleset.Update
	timer   *time.Timer

	fetch      fetch            // under way, or nil
	fetched    chan error       // its result
	began      time.Time        // of the last fetch
	gap        time.Duration    // least time to the next one
	refetchDue bool             // another fetch follows the one under way
	waiters    []chan<- outcome // of the fetch under way
	up         bool             // a fetch has succeeded

	reportedAt time.Time // the last report of invalid messages
}

// session connects, subscribes, reads all hashes, and runs until the connection is lost. It
// subscribes first, so that no announcement during the reading is lost. wasUp reports whether the
// rules were read.
func (s *Source) session(ctx context.Context, updates chan<- ruleset.Update) (wasUp bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := s.connect(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	one := &session{Source: s, client: client, inbox: newInbox(s.state.all), updates: updates,
		timer: time.NewTimer(0), fetched: make(chan error, 1)}
	defer one.end(cancel)
	conn, release := client.Dedicate()
	defer release()
	onMessage := func(m rueidis.PubSubMessage) { one.inbox.put(m.Message) }
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: onMessage})
	if err := subscribe(ctx, conn, s.config.channel); err != nil {
		return false, err
	}
	err = one.loop(ctx, lost)
	return one.up, err
}

func subscribe(ctx context.Context, conn rueidis.DedicatedClient, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	return conn.Do(ctx, conn.B().Subscribe().Channel(channel).Build()).Error()
}

// end releases everything.
func (s *session) end(cancel func()) {
	cancel()
	s.timer.Stop()
	if s.fetch != nil {
		<-s.fetched
	}
	s.client.Close()
	s.waiting = append(s.waiting, s.waiters...)
}

func (s *session) loop(ctx context.Context, lost <-chan error) error {
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err = <-lost:
			if err == nil {
				err = errors.New("the subscription has ended")
			}
		case text := <-s.inbox.rules:
			err = s.receive(ctx, text)
		case <-s.inbox.reload:
			s.refetch()
		case <-s.namesChanged:
			s.refetch()
		case w := <-s.reloads:
			s.waiting = append(s.waiting, w)
			s.refetch()
		case <-s.timer.C:
			s.begin(ctx)
		case err = <-s.fetched:
			err = s.finish(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

// receive applies this message and all others that wait, and sends the result once.
func (s *session) receive(ctx context.Context, text string) error {
	changed := s.state.receive(text)
	for range len(s.inbox.rules) { // only those that have come by now: there may be no end of them
		changed = s.state.receive(<-s.inbox.rules) || changed
	}
	if !changed {
		if time.Since(s.reportedAt) < reportGap { // the next update reports it
			return nil
		}
		s.reportedAt = time.Now()
	}
	if !s.up || !s.whole { // the first set must be complete
		return nil
	}
	return s.sendContents(ctx, nil)
}

// refetch schedules a reading of all hashes: after the one under way, and not too often.
func (s *session) refetch() {
	s.refetchDue = true
	if s.fetch == nil {
		s.timer.Reset(time.Until(s.began.Add(s.gap)))
	}
}

func (s *session) begin(ctx context.Context) {
	if s.fetch != nil {
		return
	}
	s.began, s.refetchDue = time.Now(), false
	s.waiters, s.waiting = append(s.waiters, s.waiting...), nil
	s.fetch = s.state.begin()
	go func(f fetch) { s.fetched <- f.run(ctx, s.client) }(s.fetch)
}

// finish accepts what was read, and schedules the next reading.
func (s *session) finish(ctx context.Context, err error) error {
	if err == nil {
		err = s.state.take(s.fetch)
	}
	s.fetch, s.gap = nil, min(max(minGap, restFactor*time.Since(s.began)), maxGap)
	every := s.config.refresh
	s.timer.Reset(every - every/10 + rand.N(every/5))
	if s.refetchDue {
		s.refetch()
	}
	var not *refusal
	if errors.As(err, &not) {
		s.up = true
		return s.refuse(ctx, not)
	}
	if errors.Is(err, ledger.ErrForeign) {
		return s.foreign(ctx, err)
	}
	if err != nil {
		return err
	}
	s.up, s.whole = true, true
	waiters := s.waiters
	s.waiters = nil
	return s.sendContents(ctx, waiters)
}

// foreign reports that the ledger belongs to another program.
func (s *session) foreign(ctx context.Context, err error) error {
	for _, w := range s.waiters {
		w <- outcome{err: err}
	}
	s.waiters, s.up = nil, true
	if !s.without(ctx, s.updates, err) {
		return ctx.Err()
	}
	return nil
}

// refuse reports the reason for not accepting what was read.
func (s *session) refuse(ctx context.Context, not *refusal) error {
	err := fmt.Errorf("redissource: %w; the last rules stay in force", not)
	waiters := s.waiters
	s.waiters = nil
	return s.deliver(ctx, ruleset.Update{Err: err, Revision: not.revision}, waiters)
}

// sendContents sends the current rules.
func (s *session) sendContents(ctx context.Context, waiters []chan<- outcome) error {
	c := s.state.contents()
	u := ruleset.Update{File: c.file, Warning: c.warning, Revision: c.revision, LeftOut: c.leftOut}
	return s.deliver(ctx, u, waiters)
}

// deliver sends an update that answers waiters. They are answered when the Keeper's status has the
// result, also if it is an error.
func (s *session) deliver(ctx context.Context, u ruleset.Update, waiters []chan<- outcome) error {
	revision := u.Revision
	if u.Err != nil {
		revision = ""
	}
	if len(waiters) > 0 {
		u.Done = func(err error) {
			for _, w := range waiters {
				w <- outcome{revision, err}
			}
		}
	}
	if s.send(ctx, s.updates, u) {
		return nil
	}
	for _, w := range waiters {
		w <- outcome{err: ctx.Err()}
	}
	return ctx.Err()
}
