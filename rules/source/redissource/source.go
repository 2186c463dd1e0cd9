package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
)

const (
	defaultPrefix  = "rate_limit_config:"
	defaultChannel = "rate_limit_config"
	defaultRefresh = 30 * time.Second

	dialTimeout  = 10 * time.Second
	replyTimeout = 5 * time.Second
	// From the start of one reading of all hashes to that of the next passes this many
	// times as long as it took, however many messages ask for one, but within these bounds.
	restFactor = 5
	minGap     = 10 * time.Millisecond
	maxGap     = 500 * time.Millisecond
	// firstPause is how long to wait after the first failure; it doubles up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// An Option changes what New makes.
type Option func(*config)

type config struct {
	prefix, channel string
	refresh         time.Duration
	most            int
	allowEmpty      bool
	redis           []redisstore.Option
	compiler        *rules.Compiler

	// Of a ledger.
	lastRead *lastRead
	claim    Claim
}

// WithPrefix is what the keys of the hashes begin with; the default is rate_limit_config:.
// For a Ledger it is the hash tag of its keys.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithChannel is where changes are announced; the default is rate_limit_config, and for Sets
// weir:lists.
func WithChannel(channel string) Option { return func(c *config) { c.channel = channel } }

// WithRefresh is after how long all hashes are read again although nobody lastSent so, give or
// take a tenth, so that not all nodes ask at once; the default is 30s. It is from 100ms to
// a day.
func WithRefresh(every time.Duration) Option { return func(c *config) { c.refresh = every } }

// WithMaxRules is how many hashes, or rules of a Ledger, there may be, from 1 to MaxRules,
// which is the default. Where there are more, the last good rules stay in force.
func WithMaxRules(most int) Option { return func(c *config) { c.most = most } }

// WithAllowEmpty believes a Redis in which no hash, or no ledger, is left. Otherwise the last rules stay
// in force, for one that was flushed looks alike.
func WithAllowEmpty() Option { return func(c *config) { c.allowEmpty = true } }

// A Claim says whose a Ledger must be. A ledger is marked as the store's own by servers that keep
// theirs where they count, and unmarked where it was made for something else.
type Claim string

// The claims.
const (
	Anyones Claim = ""     // it may be anybody's: it was asked for by name
	Own     Claim = "own"  // it must be marked, or empty, and is marked then; any other is ErrForeign
	Look    Claim = "look" // as Own, but nothing is written
	Take    Claim = "take" // it may be anybody's, and is marked
)

// WithClaim says whose a Ledger must be, instead of Anyones.
func WithClaim(claim Claim) Option { return func(c *config) { c.claim = claim } }

// WithRedis says how Redis is reached, such as redisstore.WithTLS.
func WithRedis(opts ...redisstore.Option) Option {
	return func(c *config) { c.redis = append(c.redis, opts...) }
}

// WithCompiler has hashes checked by a compiler that others use too, such as the
// source.Keeper: what was compiled here need not be compiled there. A Ledger does without.
func WithCompiler(compiler *rules.Compiler) Option { return func(c *config) { c.compiler = compiler } }

// A Source is the hashes of a Redis as a source.Source and a source.Reloader. Its own
// guard against a Redis that has lost all rules knows more than that of a source.Keeper,
// for which the last rule that was disabled and a flushed database look alike: set
// AllowEmpty of its source.Layer.
type Source struct {
	url          string
	config       config
	reloads      chan chan<- outcome
	namesChanged chan struct{} // of Sets: there is more to read

	// These are Run's.
	state    state
	waiting  []chan<- outcome // for a reading that has not begun
	lastSent string           // the last updates, so that none is sent twice
	whole    bool             // all was read once, and believed
}

// An outcome is what Reload returns.
type outcome struct {
	revision string
	err      error
}

// New makes the source; it connects when it is run. The URL is one of redisstore.Open.
func New(url string, opts ...Option) (*Source, error) {
	c := config{prefix: defaultPrefix, channel: defaultChannel, refresh: defaultRefresh, most: MaxRules}
	for _, opt := range opts {
		opt(&c)
	}
	switch {
	case c.prefix == "":
		return nil, &weir.InputError{Field: "prefix", Given: "", Allowed: "what the keys of the hashes begin with, such as rate_limit_config:"}
	case c.channel == "":
		return nil, &weir.InputError{Field: "channel", Given: "", Allowed: "a name, such as rate_limit_config"}
	case c.refresh < 100*time.Millisecond || c.refresh > 24*time.Hour:
		return nil, &weir.InputError{Field: "refresh", Given: c.refresh, Allowed: "100ms to 24h"}
	case c.most < 1 || c.most > MaxRules:
		return nil, &weir.InputError{Field: "most rules", Given: c.most, Allowed: fmt.Sprint("1 to ", MaxRules)}
	}
	table := newTable(c.prefix, c.most)
	table.allowEmpty = c.allowEmpty
	if c.compiler != nil {
		table.compiler = c.compiler
	}
	return newSource(url, c, table), nil
}

func newSource(url string, c config, state state) *Source {
	return &Source{url: url, config: c, reloads: make(chan chan<- outcome), state: state}
}

// Run implements source.Source. It connects again whenever the connection is lost, and
// returns only when ctx is over or when the URL cannot be used.
func (s *Source) Run(ctx context.Context, updates chan<- source.Update) error {
	return ledger.Expire(ctx, s.run, updates)
}

func (s *Source) run(ctx context.Context, updates chan<- source.Update) error {
	s.lastSent = ""
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		wasUp, err := s.session(ctx, updates)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		s.settle(outcome{err: err})
		if err = s.config.foreign(err); errors.Is(err, ledger.ErrForeign) {
			if !s.without(ctx, updates, err) || !s.pause(ctx, maxPause) {
				return ctx.Err()
			}
			continue
		}
		var input *weir.InputError
		if ctx.Err() != nil || errors.As(err, &input) {
			return err
		}
		if wasUp {
			pause = firstPause
		}
		err = fmt.Errorf("redissource: %w; the last rules stay in force", err)
		if !s.send(ctx, updates, source.Update{Err: err}) || !s.pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

// without says that there is no ledger to use, which is no fault: nobody has asked for it by name.
func (s *Source) without(ctx context.Context, updates chan<- source.Update, why error) bool {
	return s.send(ctx, updates, source.Update{File: &rules.File{Name: "no ledger"}, Revision: "none", Warning: why})
}

// pause waits, with some chance so that not all nodes come back at once. A Reload ends it.
func (s *Source) pause(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case w := <-s.reloads:
		s.waiting = append(s.waiting, w)
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// settle answers those who wait for a reading that will not be.
func (s *Source) settle(o outcome) {
	for _, w := range s.waiting {
		w <- o
	}
	s.waiting = nil
}

// send tells updates, unless they are what was announcedBefore last and nobody waits for them.
func (s *Source) send(ctx context.Context, updates chan<- source.Update, n source.Update) bool {
	lastSent := fmt.Sprint(n.Revision, "\n", n.Err, "\n", n.Warning)
	if lastSent == s.lastSent && n.Done == nil {
		return ctx.Err() == nil
	}
	select {
	case updates <- n:
		s.lastSent = lastSent
		return true
	case <-ctx.Done():
		return false
	}
}

// Reload implements source.Reloader: it has all hashes read now.
func (s *Source) Reload(ctx context.Context) (revision string, err error) {
	answer := make(chan outcome, 1)
	select {
	case s.reloads <- answer:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case o := <-answer:
		return o.revision, o.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
