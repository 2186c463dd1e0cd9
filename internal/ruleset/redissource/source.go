package redissource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

const (
	defaultPrefix  = "rate_limit_config:"
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
)

// An Option changes what New makes.
type Option func(*config)

type config struct {
	prefix, channel string
	refresh         time.Duration
	most            int
	allowEmpty      bool
	tls             *tls.Config
	compiler        *rules.Compiler

	// Of a ledger.
	lastRead *lastRead
	claim    Claim
}

// WithPrefix sets the prefix of the hashes' keys; the default is rate_limit_config:. For a Ledger it
// is the hash tag of its keys.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithChannel sets the channel of announcements; the default is rate_limit_config, and for Sets
// weir:lists.
func WithChannel(channel string) Option { return func(c *config) { c.channel = channel } }

// WithRefresh sets the interval at which all hashes are read without an announcement, with a jitter
// of a tenth, from 100ms to a day; the default is 30s.
func WithRefresh(every time.Duration) Option { return func(c *config) { c.refresh = every } }

// WithMaxRules limits the number of hashes, or of rules of a Ledger, from 1 to MaxRules, which is
// the default. With more, the last good rules stay in force.
func WithMaxRules(most int) Option { return func(c *config) { c.most = most } }

// WithAllowEmpty accepts that no hash, or no ledger, is left. Otherwise the last rules stay in
// force, because a flushed Redis looks the same.
func WithAllowEmpty() Option { return func(c *config) { c.allowEmpty = true } }

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

// WithTLS is the TLS configuration for a rediss:// URL, whose parameters are added to it.
func WithTLS(tls *tls.Config) Option { return func(c *config) { c.tls = tls } }

// WithCompiler shares a compiler with others, such as the ruleset.Keeper, which then need not compile
// the rules again. A Ledger ignores it.
func WithCompiler(compiler *rules.Compiler) Option { return func(c *config) { c.compiler = compiler } }

// A Source reads the hashes of a Redis. It is a ruleset.Source and a ruleset.Reloader. It can
// distinguish disabled rules from a Redis that has lost them, which a ruleset.Keeper cannot: set
// AllowEmpty of its ruleset.Layer.
type Source struct {
	url          string
	config       config
	reloads      chan chan<- outcome
	namesChanged chan struct{} // of Sets: there is more to read

	// Owned by Run.
	state    state
	waiting  []chan<- outcome // for a reading that has not begun
	lastSent string           // the last update, so that none is sent twice
	whole    bool             // all hashes were read and accepted once
}

// An outcome is the result of Reload.
type outcome struct {
	revision string
	err      error
}

// New makes the source; Run connects. The URL is one of redisstore.Open.
func New(url string, opts ...Option) (*Source, error) {
	c := config{prefix: defaultPrefix, channel: defaultChannel, refresh: defaultRefresh, most: MaxRules}
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

// Run implements ruleset.Source. It connects again whenever the connection is lost, and
// returns only when ctx is over or when the URL cannot be used.
func (s *Source) Run(ctx context.Context, updates chan<- ruleset.Update) error {
	return ledger.Expire(ctx, s.run, updates)
}

func (s *Source) run(ctx context.Context, updates chan<- ruleset.Update) error {
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
		if !s.send(ctx, updates, ruleset.Update{Err: err}) || !s.pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

// without sends an empty set with a warning: no option names a ledger, so its absence is not an
// error.
func (s *Source) without(ctx context.Context, updates chan<- ruleset.Update, why error) bool {
	return s.send(ctx, updates, ruleset.Update{File: &rules.File{Name: "no ledger"}, Revision: "none", Warning: why})
}

// pause waits with jitter, so that not all nodes reconnect at once. A Reload ends it.
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

// settle answers the waiters of a reading that will not take place.
func (s *Source) settle(o outcome) {
	for _, w := range s.waiting {
		w <- o
	}
	s.waiting = nil
}

// send sends an update, unless it equals the last one and has no waiters.
func (s *Source) send(ctx context.Context, updates chan<- ruleset.Update, n ruleset.Update) bool {
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

// Reload implements ruleset.Reloader: it has all hashes read now.
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
