package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/breaker"
	"github.com/weirproject/weir/layers/ceiling"
	"github.com/weirproject/weir/layers/coalesce"
	"github.com/weirproject/weir/layers/fallback"
	"github.com/weirproject/weir/layers/lease"
	"github.com/weirproject/weir/layers/recall"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// layerWords are those of --without.
var layerWords = []string{"breaker", "coalesce", "recall", "warm"}

// inClusters is how long refusals of a Cluster are believed: one may be for units of another
// slot that were on their way back.
const inClusters = time.Second

// A stack is the layers between the gate and a Redis, and the store that stands in for it.
// From the gate to Redis:
//
//	warm      the local store learns what Redis granted
//	ceiling   of rules with local_ceiling
//	lease     of rules with lease_percent; above recall, which must see what leases give back
//	recall    refusals are remembered
//	coalesce  what waits at the same moment goes together
//	breaker   a Redis that does not answer is not waited for
//	metrics   each call of Redis is timed
type stack struct {
	config     storeConfig
	log        *slog.Logger
	metrics    *observe.Metrics
	top, local weir.Store
	terms      atomic.Pointer[map[string]terms]
}

// terms are what rules say of a limit to the layers.
type terms struct {
	lease   lease.Terms
	ceiling float64 // 0: none
	whole   bool    // it is not divided among nodes
}

// newStack puts the layers round a Redis. Where it fails the store stays the caller's.
func newStack(redis weir.Store, c storeConfig, m *observe.Metrics, log *slog.Logger) (*stack, error) {
	s := &stack{config: c, log: log, metrics: m, top: m.Store(redis)}
	s.terms.Store(new(map[string]terms))
	local, err := fallback.NewLocal(c.nodes, memstore.New(memstore.WithMaxKeys(c.maxKeys)),
		fallback.WithWhole(func(l *weir.Limit) bool { return s.of(l).whole }))
	if err != nil {
		return nil, err
	}
	s.local = local
	for _, layer := range []struct {
		word string // of --without; "": it does nothing unless rules ask for it
		add  func() error
	}{
		{"breaker", s.addBreaker}, {"coalesce", s.addCoalesce}, {"recall", s.addRecall}, {"", s.addLease}, {"", s.addCeiling},
		{"warm", func() error { s.top = local.Warm(s.top); return nil }},
	} {
		if slices.Contains(c.without, layer.word) {
			continue
		}
		if err := layer.add(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// of are the terms of a limit, by its name.
func (s *stack) of(l *weir.Limit) terms { return (*s.terms.Load())[l.Name()] }

// follow has the layers do what the rules in force say. Overrides have the names of the
// rule's limits.
func (s *stack) follow(set *rules.Set) {
	all := make(map[string]terms)
	for _, rule := range set.Rules() {
		t := terms{lease: leaseTerms(rule), ceiling: rule.LocalCeiling()}
		if t != (terms{}) {
			for _, limit := range rule.Limits() {
				all[limit.Name()] = t
			}
		}
		// How often and how long somebody is banned is no traffic that nodes share.
		if b := rule.Bans(); b != nil {
			for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
				all[limit.Name()] = terms{whole: true}
			}
		}
	}
	s.terms.Store(&all)
}

// leaseTerms are those of a rule; of none: no lease.
func leaseTerms(rule *rules.Rule) lease.Terms {
	if rule == nil {
		return lease.Terms{}
	}
	return lease.Terms{Share: float64(rule.LeasePercent()) / 100}
}

func (s *stack) addBreaker() error {
	slow := breaker.WithSlow(s.config.timeout / 2)
	b, err := breaker.New(s.top, slow, breaker.WithObserver(s.changed))
	if err != nil {
		return err
	}
	s.top = b.Store()
	s.metrics.Gauge("weir_breaker_state", "0: the store is asked; 1: it is asked again, little by little; 2: it is not asked.", func() int64 { return int64(b.State()) })
	s.metrics.Count("weir_breaker_opened_total", "How often the store was given up.", func() int64 { return b.Stats().Opened })
	s.metrics.Count("weir_breaker_turned_away_total", "Decisions for which the store was not asked, because it had been given up.", func() int64 { return b.Stats().TurnedAway })
	return nil
}

// changed tells the log what the breaker does.
func (s *stack) changed(c breaker.Change) {
	switch c.To {
	case breaker.Open:
		if c.From == breaker.Closing {
			return // nobody was told that it answers
		}
		s.log.Info("Redis is not waited for until it answers again", "error", c.Cause)
	case breaker.Closed:
		s.log.Info("Redis is asked again")
	}
}

func (s *stack) addCoalesce() error {
	options := []coalesce.Option{coalesce.WithTimeout(s.config.timeout)}
	if s.config.cluster() {
		options = append(options, coalesce.WithPlaces(redisstore.Places, redisstore.Place))
	}
	c, err := coalesce.New(s.top, options...)
	if err != nil {
		return err
	}
	s.top = c
	s.metrics.Count("weir_coalesce_decisions_total", "Decisions that were to go to the store, by themselves or with others, also while the breaker turned them away.", func() int64 { return c.Stats().Decisions })
	s.metrics.Count("weir_coalesce_requests_total", "Requests that they became: of those who ask the same, one.", func() int64 { return c.Stats().Requests })
	s.metrics.Count("weir_coalesce_trips_total", "Calls that these requests took.", func() int64 { return c.Stats().Trips })
	return nil
}

func (s *stack) addRecall() error {
	news := &lateNews{config: s.config}
	longest := recall.DefaultLongest
	if s.config.cluster() {
		longest = inClusters
	}
	r, err := recall.New(s.top, recall.WithNews(news), recall.WithLongest(longest), recall.WithWarn(func(text string) { s.log.Warn(text) }))
	if err != nil {
		return err
	}
	s.top = closing{r, news.close}
	s.metrics.Count("weir_recalled_total", "Refusals that were answered from memory.", func() int64 { return r.Stats().Recalled })
	s.metrics.Count("weir_recall_evicted_total", "Refusals that still held and made room for others.", func() int64 { return r.Stats().Evicted })
	s.metrics.Gauge("weir_recall_listening", "1 if what other nodes give back is heard.", func() int64 {
		if r.Stats().Listening {
			return 1
		}
		return 0
	})
	return nil
}

func (s *stack) addLease() error {
	l, err := lease.New(s.top, func(l *weir.Limit) lease.Terms { return s.of(l).lease })
	if err != nil {
		return err
	}
	s.top = l
	s.metrics.Gauge("weir_leases", "Keys of which units are taken ahead of need.", func() int64 { return l.Stats().Leases })
	s.metrics.Count("weir_lease_taken_total", "Requests that were paid for ahead of need.", func() int64 { return l.Stats().Taken })
	s.metrics.Count("weir_lease_returned_total", "Requests that were paid for ahead of need, were not needed, and went back.", func() int64 { return l.Stats().Returned })
	s.metrics.Count("weir_lease_lost_total", "Requests that were paid for ahead of need, were not needed, and stay charged because their way back failed.", func() int64 { return l.Stats().Lost })
	return nil
}

func (s *stack) addCeiling() error {
	c, err := ceiling.New(s.top, memstore.New(memstore.WithMaxKeys(s.config.maxKeys), memstore.WithoutOverflow()), func(l *weir.Limit) (float64, bool) {
		t := s.of(l)
		return t.ceiling, t.ceiling > 0
	})
	if err != nil {
		return err
	}
	s.top = c.Store()
	s.metrics.Count("weir_ceiling_refused_total", "Decisions that a rule's local_ceiling refused.", func() int64 { return c.Refused() })
	return nil
}

// A closing store closes something else with it.
type closing struct {
	weir.Store
	after func()
}

// Close implements weir.Store.
func (c closing) Close() error {
	err := c.Store.Close()
	c.after()
	return err
}

// lateNews opens the connection for news when it is first needed, and again until that
// succeeds: Redis may come later than this process.
type lateNews struct {
	config storeConfig
	mu     sync.Mutex
	news   *redisstore.News
	closed bool
}

func (n *lateNews) open(ctx context.Context) (*redisstore.News, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, errNewsClosed
	case n.news != nil:
		return n.news, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	news, err := redisstore.OpenNews(ctx, n.config.url, redisstore.WithTimeout(n.config.timeout))
	if err != nil {
		return nil, err
	}
	n.news = news
	return news, nil
}

var errNewsClosed = errors.New("the news of other nodes are closed")

// Tell implements recall.News.
func (n *lateNews) Tell(ctx context.Context, message []byte) error {
	news, err := n.open(ctx)
	if err != nil {
		return err
	}
	return news.Tell(ctx, message)
}

// Listen implements recall.News.
func (n *lateNews) Listen(ctx context.Context, hear func([]byte), missed func()) error {
	news, err := n.open(ctx)
	if err != nil {
		return err
	}
	return news.Listen(ctx, hear, missed)
}

func (n *lateNews) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed = true; n.news != nil {
		n.news.Close()
	}
}

// checkWithout says which words of --without are none.
func checkWithout(words []string) error {
	for _, word := range words {
		if !slices.Contains(layerWords, word) {
			return usagef("--without is %.80q; allowed, with commas: %s", word, strings.Join(layerWords, ", "))
		}
	}
	return nil
}
