package redissource

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

const (
	defaultChannel = "rate_limit_config"
	defaultRefresh = 30 * time.Second

	dialTimeout  = 10 * time.Second
	replyTimeout = 5 * time.Second
	// The time from the start of one reading of all hashes to the start of the next is this many
	// times the duration of the first, within these bounds, however many messages request one.
	restFactor = 5
	minGap     = 10 * time.Millisecond
	maxGap     = 500 * time.Millisecond
	// firstPause is the pause after the first failure; it doubles up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
	// reportGap is the least time between two reports that have only invalid messages.
	reportGap = time.Second
)

// An Option changes what New makes.
type Option func(*config)

type config struct {
	prefix, channel string
	refresh         time.Duration
	most            int
	allowEmpty      bool
	withoutUsers    string
	tls             *tls.Config
	compiler        *rules.Compiler

	// Of a ledger.
	lastRead *lastRead
	claim    Claim
}

// WithPrefix sets the prefix of the hashes' keys; the default is rate_limit_config:. For a Ledger it
// is the hash tag of its keys.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithChannel sets the channel of announcements; the default is rate_limit_config.
func WithChannel(channel string) Option { return func(c *config) { c.channel = channel } }

// WithRefresh sets the interval at which all hashes are read without an announcement, with a jitter
// of a tenth, from 100ms to a day; the default is 30s.
func WithRefresh(every time.Duration) Option { return func(c *config) { c.refresh = every } }

// WithAllowEmpty accepts that no hash, or no ledger, is left. Otherwise the last rules stay in
// force, because a flushed Redis looks the same.
func WithAllowEmpty() Option { return func(c *config) { c.allowEmpty = true } }

// WithoutUsers refuses rules of users, which no request would meet, and says why; "": requests have users.
func WithoutUsers(why string) Option { return func(c *config) { c.withoutUsers = why } }

// A Claim is a requirement on the mark of a Ledger. A server that has its ledger where it counts
// marks it as that store's own; ledgers made for something else have no mark.
type Claim string

// The claims.
const (
	Anyones Claim = ""     // no requirement: an option names the ledger
	Own     Claim = "own"  // the ledger must be marked, or empty, and is then marked; any other is ErrForeign
	Look    Claim = "look" // as Own, but nothing is written
	Take    Claim = "take" // no requirement; the ledger is marked
)

// WithClaim sets the requirement on the mark of a Ledger, instead of Anyones.
func WithClaim(claim Claim) Option { return func(c *config) { c.claim = claim } }

// WithCompiler shares a compiler with others, such as the ruleset.Manager, which then need not compile
// the rules again. A Ledger ignores it.
func WithCompiler(compiler *rules.Compiler) Option { return func(c *config) { c.compiler = compiler } }

// A Source reads the hashes of a Redis. It is a ruleset.Source. It can distinguish disabled rules
// from a Redis that has lost them, which a ruleset.Manager cannot: set AllowEmpty of its
// ruleset.Layer.
type Source struct {
	url    string
	config config
	state  state
	inbox  *inbox

	client  redisconn.Client // nil: not connected
	release func()           // ends the subscription
	lost    <-chan error     // receives the end of the connection
	broken  error            // received from it

	full     bool          // everything is to be read
	whole    bool          // everything was read and accepted once
	earliest time.Time     // of the next reading
	due      time.Time     // of the next Load without a sign of a change
	pause    time.Duration // after the last failure
	reported time.Time     // the last report of nothing but invalid messages
	last     ruleset.Update
}

// A state is a layout of rules in Redis, and the rules that were read from it.
type state interface {
	// all reports whether a message requires a reading of everything. The connection's reader calls
	// it, concurrently with the other methods.
	all(message string) bool
	// receive applies any other message, and reports whether it changed anything. Mistakes in the
	// message are in the next contents.
	receive(message string) bool
	// read reads everything. It returns errors of the connection, or a *refusal: then the contents
	// are as before.
	read(ctx context.Context, client redisconn.Client) error
	// contents returns the current rules. It reports mistakes of messages once.
	contents() ruleset.Update
	// turns is when the contents change without a reading, because a change reverts; zero: never.
	turns() time.Time
	// settle writes to Redis the changes that happened without a reading.
	settle(ctx context.Context) error
}

// lasting is the part of a state that stays the same until the next reading.
type lasting struct{}

func (lasting) turns() time.Time             { return time.Time{} }
func (lasting) settle(context.Context) error { return nil }

// A refusal is the reason for not accepting a reading over a good connection.
type refusal struct {
	revision string // of the refused contents
	err      error
}

func refuse(revision, format string, args ...any) *refusal {
	return &refusal{revision, fmt.Errorf(format, args...)}
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// New makes the source; Load connects. The URL is one of redisstore.Open.
func New(url string, opts ...Option) (*Source, error) {
	c := config{prefix: DefaultPrefix, channel: defaultChannel, refresh: defaultRefresh, most: MaxRules}
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case c.prefix == "":
		return nil, &weir.InputError{Field: "prefix", Given: "",
			Allowed: "what the keys of the hashes begin with, such as rate_limit_config:"}
	case c.channel == "":
		return nil, &weir.InputError{Field: "channel", Given: "", Allowed: "a name, such as rate_limit_config"}
	case c.refresh < 100*time.Millisecond || c.refresh > 24*time.Hour:
		return nil, &weir.InputError{Field: "refresh", Given: c.refresh, Allowed: "100ms to 24h"}
	}
	table := newTable(c.prefix, c.most)
	table.allowEmpty, table.withoutUsers = c.allowEmpty, c.withoutUsers
	if c.compiler != nil {
		table.compiler = c.compiler
	}
	return newSource(url, c, table), nil
}

func newSource(url string, c config, state state) *Source {
	return &Source{url: url, config: c, state: state, inbox: newInbox(state.all)}
}

// Load implements ruleset.Source. It connects if there is no connection, and then reads everything;
// later it applies messages, and reads everything when one requires it, and at each refresh.
func (s *Source) Load(ctx context.Context, reload bool) ruleset.Update {
	n, err := s.load(ctx, reload)
	if err = s.config.foreign(err); err != nil {
		n = s.failed(err)
		if s.turned() { // without Redis too; the next Load has the error
			n = s.state.contents()
		}
	} else {
		s.pause = 0
	}
	s.last = n
	return n
}

// turned reports whether the contents have changed without a reading.
func (s *Source) turned() bool {
	at := s.state.turns()
	return !at.IsZero() && !time.Now().Before(at)
}

func (s *Source) load(ctx context.Context, reload bool) (n ruleset.Update, err error) {
	if s.broken != nil {
		return n, s.broken
	}
	if s.client == nil {
		if err := s.subscribe(ctx); err != nil {
			return n, err
		}
		s.inbox.refetch() // supersedes all messages so far, also those of a connection that was lost
	}
	superseded, messages, all := s.inbox.take()
	changed := s.receive(superseded)
	s.full = s.full || all || reload || !time.Now().Before(s.due)
	if reload {
		pause.For(time.Until(s.earliest), ctx.Done())
	}
	if s.full && !time.Now().Before(s.earliest) {
		var not *refusal
		switch err := s.read(ctx); {
		case errors.As(err, &not):
			return ruleset.Update{Revision: not.revision,
				Err: fmt.Errorf("redissource: %w; the last rules stay in force", not)}, nil
		case errors.Is(err, ledger.ErrForeign):
			return without(err), nil
		case err != nil:
			return n, err
		}
		changed, s.whole = true, true
	}
	changed = s.receive(messages) || s.turned() || changed
	if !s.whole { // the first set must be complete
		return s.last, nil
	}
	if !changed {
		if len(superseded)+len(messages) == 0 || time.Since(s.reported) < reportGap { // the next update reports it
			return s.last, nil
		}
		s.reported = time.Now()
	}
	n = s.state.contents()
	if err := s.state.settle(ctx); err != nil {
		n.Warning = errors.Join(n.Warning, err)
	}
	return n, nil
}

// receive applies messages, and reports whether one changed anything.
func (s *Source) receive(messages []string) (changed bool) {
	for _, text := range messages {
		changed = s.state.receive(text) || changed
	}
	return changed
}

// read reads everything, and schedules the next reading.
func (s *Source) read(ctx context.Context) error {
	began := time.Now()
	s.full = false
	err := s.state.read(ctx, s.client)
	s.earliest = began.Add(min(max(minGap, restFactor*time.Since(began)), maxGap))
	every := s.config.refresh
	s.due = time.Now().Add(every - every/10 + rand.N(every/5))
	return err
}

// failed ends the connection, and schedules the next attempt, with jitter, so that not all nodes
// reconnect at once.
func (s *Source) failed(err error) ruleset.Update {
	s.Close()
	s.pause = min(max(firstPause, 2*s.pause), maxPause)
	var input *weir.InputError
	foreign := errors.Is(err, ledger.ErrForeign)
	if foreign || errors.As(err, &input) {
		s.pause = maxPause
	}
	s.due = time.Now().Add(s.pause/2 + rand.N(s.pause/2))
	if foreign {
		return without(err)
	}
	return ruleset.Update{Err: fmt.Errorf("redissource: %w; the last rules stay in force", err)}
}

// without is an empty set with a warning: no option names a ledger, so its absence is not an error.
func without(why error) ruleset.Update {
	return ruleset.Update{File: &rules.File{Name: "no ledger"}, Revision: "none", Warning: why}
}

// Wait implements ruleset.Source.
func (s *Source) Wait(ctx context.Context) {
	next := s.due
	if s.full && s.client != nil {
		next = s.earliest
	}
	if at := s.state.turns(); !at.IsZero() && at.Before(next) {
		next = at
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.inbox.wake:
	case err := <-s.lost:
		s.broken = cmp.Or(err, errEnded)
	}
}

var errEnded = errors.New("the subscription has ended")

// connect makes a client.
func (s *Source) connect(ctx context.Context) (redisconn.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return redisconn.OpenClient(ctx, s.url, redisconn.Config{Timeout: replyTimeout, TLS: s.config.tls})
}

// subscribe connects and subscribes. Everything is read afterwards, so that no announcement during
// the reading is lost.
func (s *Source) subscribe(ctx context.Context) (err error) {
	if s.client, err = s.connect(ctx); err != nil {
		s.client = nil
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	s.lost, s.release, err = s.client.Subscribe(ctx, s.config.channel, s.inbox.put)
	return err
}

// Close implements ruleset.Source.
func (s *Source) Close() {
	if s.client != nil {
		s.release()
		s.client.Close()
	}
	s.client, s.lost, s.broken = nil, nil, nil
}
