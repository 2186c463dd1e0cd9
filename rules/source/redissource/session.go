package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
)

// complainGap is how often at most it is told of messages that are wrong and nothing else.
const complainGap = time.Second

// queued is how many messages may wait. Where more come, all hashes are read instead.
const queued = 256

// An inbox is filled by the connection's reader, which must not be held up.
type inbox struct {
	all    func(string) bool // the shelf's
	rules  chan string
	reload chan struct{} // one RELOAD_ALL stands for any number
}

func newInbox(all func(string) bool) *inbox {
	return &inbox{all: all, rules: make(chan string, queued), reload: make(chan struct{}, 1)}
}

func (b *inbox) put(text string) {
	if !b.all(text) {
		if len(text) > MaxMessage { // what is left of it is no JSON, and is told of as such
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
	client rueidis.Client
	inbox  *inbox
	news   chan<- source.News
	timer  *time.Timer

	look   look             // under way, or nil
	looked chan error       // what came of it
	began  time.Time        // of the last look
	gap    time.Duration    // to the next one
	wished bool             // another one, after that under way
	served []chan<- outcome // who waits for it
	up     bool             // a look has come back

	complained time.Time // of messages that changed nothing
}

// session connects, subscribes, reads all hashes, and goes on until the connection is lost.
// wasUp is whether it came as far as to know the rules. It subscribes first: what is
// announced while the hashes are read is not lost.
func (s *Source) session(ctx context.Context, news chan<- source.News) (wasUp bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := s.connect(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	one := &session{Source: s, client: client, inbox: newInbox(s.shelf.all), news: news, timer: time.NewTimer(0), looked: make(chan error, 1)}
	defer one.end(cancel)
	conn, release := client.Dedicate()
	defer release()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { one.inbox.put(m.Message) }})
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

// end leaves nothing behind.
func (s *session) end(cancel func()) {
	cancel()
	s.timer.Stop()
	if s.look != nil {
		<-s.looked
	}
	s.client.Close()
	s.waiting = append(s.waiting, s.served...)
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
			err = s.hear(ctx, text)
		case <-s.inbox.reload:
			s.wish()
		case <-s.woken:
			s.wish()
		case w := <-s.reloads:
			s.waiting = append(s.waiting, w)
			s.wish()
		case <-s.timer.C:
			s.begin(ctx)
		case err = <-s.looked:
			err = s.finish(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

// hear applies this message and all others that wait, and tells of them at once.
func (s *session) hear(ctx context.Context, text string) error {
	changed := s.shelf.hear(text)
	for range len(s.inbox.rules) { // those that have come by now: there may be no end of them
		changed = s.shelf.hear(<-s.inbox.rules) || changed
	}
	if !changed {
		if time.Since(s.complained) < complainGap { // it is told with what comes next
			return nil
		}
		s.complained = time.Now()
	}
	if !s.up || !s.whole { // the first set is to be whole
		return nil
	}
	return s.tell(ctx, nil)
}

// wish has all hashes read soon: after the scan under way, and not too often.
func (s *session) wish() {
	s.wished = true
	if s.look == nil {
		s.timer.Reset(time.Until(s.began.Add(s.gap)))
	}
}

func (s *session) begin(ctx context.Context) {
	if s.look != nil {
		return
	}
	s.began, s.wished = time.Now(), false
	s.served, s.waiting = append(s.served, s.waiting...), nil
	s.look = s.shelf.begin()
	go func(look look) { s.looked <- look.run(ctx, s.client) }(s.look)
}

// finish takes what was read, and sets the time of the next reading.
func (s *session) finish(ctx context.Context, err error) error {
	if err == nil {
		err = s.shelf.take(s.look)
	}
	s.look, s.gap = nil, min(max(leastGap, restFactor*time.Since(s.began)), mostGap)
	every := s.config.refresh
	s.timer.Reset(every - every/10 + rand.N(every/5))
	if s.wished {
		s.wish()
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
	served := s.served
	s.served = nil
	return s.tell(ctx, served)
}

// foreign says that the ledger is somebody else's.
func (s *session) foreign(ctx context.Context, err error) error {
	for _, w := range s.served {
		w <- outcome{err: err}
	}
	s.served, s.up = nil, true
	if !s.without(ctx, s.news, err) {
		return ctx.Err()
	}
	return nil
}

// refuse says why what was read is not believed.
func (s *session) refuse(ctx context.Context, not *refusal) error {
	err := fmt.Errorf("redissource: %w; the last rules stay in force", not)
	for _, w := range s.served {
		w <- outcome{err: err}
	}
	s.served = nil
	if !s.send(ctx, s.news, source.News{Err: err, Revision: not.revision}) {
		return ctx.Err()
	}
	return nil
}

// tell says what the rules are now.
func (s *session) tell(ctx context.Context, served []chan<- outcome) error {
	law := s.shelf.law()
	n := source.News{File: law.file, Warning: law.warning, Revision: law.revision, LeftOut: law.leftOut}
	if len(served) > 0 {
		n.Done = func(err error) {
			for _, w := range served {
				w <- outcome{n.Revision, err}
			}
		}
	}
	if !s.send(ctx, s.news, n) {
		for _, w := range served {
			w <- outcome{err: ctx.Err()}
		}
		return ctx.Err()
	}
	return nil
}
