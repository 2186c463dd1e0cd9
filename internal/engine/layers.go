package engine

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
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/internal/layers/ceiling"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// maxClusterRefusal is the longest time that the refusal cache keeps a refusal of a Redis Cluster: it
// may be due to units that another slot was just giving back.
const maxClusterRefusal = time.Second

// A stack is the layers between the gate and Redis, with the local fallback store.
type stack struct {
	*layers.Stack
	log     *slog.Logger
	metrics *observe.Metrics
	terms   atomic.Pointer[map[string]layers.Terms]
}

// newStack wraps Redis in its layers, and times its calls. If it fails, the caller still owns redis.
func newStack(redis weir.Store, c *Config, m *observe.Metrics) (*stack, error) {
	s := &stack{log: c.Log, metrics: m}
	s.terms.Store(new(map[string]layers.Terms))
	o := layers.Options{
		Local: memstore.New(memstore.WithMaxKeys(c.FallbackKeys), memstore.WithMaxBytes(c.MaxBytes)),
		Nodes: c.Nodes,
		Bounds: memstore.New(memstore.WithMaxKeys(c.MaxKeys), memstore.WithMaxBytes(c.MaxBytes),
			memstore.WithoutOverflow()),
		Terms:    s.of,
		News:     &lateUpdates{config: c},
		Without:  c.Without,
		Breaker:  []breaker.Option{breaker.WithSlow(c.Timeout / 4 * 3), breaker.WithObserver(s.changed)},
		Coalesce: []coalesce.Option{coalesce.WithTimeout(c.Timeout)},
		Recall:   []recall.Option{recall.WithWarn(func(text string) { c.Log.Warn(text) })},
	}
	if c.cluster() {
		o.Coalesce = append(o.Coalesce, coalesce.WithPlaces(redisstore.Places, redisstore.Place))
		o.Recall = append(o.Recall, recall.WithLongest(maxClusterRefusal))
	}
	var err error
	if s.Stack, err = layers.New(m.Store(redis), o); err != nil {
		return nil, err
	}
	s.observe()
	return s, nil
}

// of returns the terms of a limit, by its name.
func (s *stack) of(l *weir.Limit) layers.Terms { return (*s.terms.Load())[l.Name()] }

// follow configures the layers by the rules in force. Limits of overrides have the names of the
// rule's limits, so they need no terms of their own.
func (s *stack) follow(set *rules.Set) {
	all := make(map[string]layers.Terms)
	for _, rule := range set.Rules() {
		local := rule.OnStoreError() == rules.Local
		t := layers.Terms{Lease: LeaseTerms(rule), Ceiling: rule.LocalCeiling(), Local: local}
		if t != (layers.Terms{}) {
			for _, limit := range rule.Limits() {
				all[limit.Name()] = t
			}
		}
		// The limits of a ban count refusals, which nodes do not share like traffic.
		if b := rule.Bans(); b != nil {
			for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
				all[limit.Name()] = layers.Terms{Whole: true, Local: local}
			}
		}
	}
	s.terms.Store(&all)
}

// LeaseTerms are the lease terms of a rule; for nil: no lease.
func LeaseTerms(rule *rules.Rule) lease.Terms {
	if rule == nil {
		return lease.Terms{}
	}
	return lease.Terms{Share: float64(rule.LeasePercent()) / 100}
}

// changed logs the state of the circuit breaker.
func (s *stack) changed(c breaker.Change) {
	switch c.To {
	case breaker.Open:
		if c.From == breaker.Closing {
			return // its closing was not logged
		}
		s.log.Warn("circuit breaker opened: Redis is not responding", "error", c.Cause)
	case breaker.Closed:
		s.log.Info("circuit breaker closed: Redis is responding again")
	}
}

// observe registers the metrics of the enabled layers.
func (s *stack) observe() {
	if b := s.Breaker; b != nil {
		s.observeBreaker(b)
	}
	if c := s.Coalesce; c != nil {
		s.observeCoalesce(c)
	}
	if r := s.Recall; r != nil {
		s.observeRecall(r)
	}
	s.observeLease(s.Lease)
	s.observeCeiling(s.Ceiling)
}

func (s *stack) observeBreaker(b *breaker.Breaker) {
	s.metrics.Gauge("weir_breaker_state", "Circuit breaker state: 0 closed, 1 half-open, 2 open.",
		func() int64 { return int64(b.State()) })
	s.metrics.Count("weir_breaker_opened_total", "How often the circuit breaker opened.",
		func() int64 { return b.Stats().Opened })
	s.metrics.Count("weir_breaker_turned_away_total",
		"Decisions without a store call, because the circuit breaker was open.",
		func() int64 { return b.Stats().TurnedAway })
}

func (s *stack) observeCoalesce(c *coalesce.Store) {
	s.metrics.Count("weir_coalesce_decisions_total",
		"Decisions that reached the coalescing layer, including those that the circuit breaker turned away.",
		func() int64 { return c.Stats().Decisions })
	s.metrics.Count("weir_coalesce_requests_total", "Store requests after merging equal concurrent decisions.",
		func() int64 { return c.Stats().Requests })
	s.metrics.Count("weir_coalesce_trips_total", "Store calls (round trips) of these requests.",
		func() int64 { return c.Stats().Trips })
}

func (s *stack) observeRecall(r *recall.Store) {
	s.metrics.Count("weir_recalled_total", "Refusals answered from the refusal cache.",
		func() int64 { return r.Stats().Recalled })
	s.metrics.Count("weir_recall_evicted_total", "Unexpired refusals evicted from the full refusal cache.",
		func() int64 { return r.Stats().Evicted })
	s.metrics.Gauge("weir_recall_listening", "1 while the refusal cache receives refunds and resets of other nodes.",
		func() int64 {
			if r.Stats().Listening {
				return 1
			}
			return 0
		})
}

func (s *stack) observeLease(l *lease.Store) {
	s.metrics.Gauge("weir_leases", "Keys with prefetched units.",
		func() int64 { return l.Stats().Leases })
	s.metrics.Count("weir_lease_taken_total", "Prefetched units, in requests.",
		func() int64 { return l.Stats().Taken })
	s.metrics.Count("weir_lease_returned_total", "Prefetched units that were not used and were refunded, in requests.",
		func() int64 { return l.Stats().Returned })
	s.metrics.Count("weir_lease_lost_total",
		"Prefetched units that were not used and could not be refunded, in requests.",
		func() int64 { return l.Stats().Lost })
}

func (s *stack) observeCeiling(c *ceiling.Ceiling) {
	s.metrics.Count("weir_ceiling_refused_total", "Decisions refused by the local_ceiling of a rule.",
		func() int64 { return c.Refused() })
	s.metrics.Count("weir_ceiling_uncounted_total",
		"Grants not counted by a local_ceiling, because its table was full.",
		func() int64 { return c.Uncounted() })
}

// lateUpdates opens the pub/sub connection for updates of other nodes when it is first needed, and
// again until that succeeds: Redis may start later than this process.
type lateUpdates struct {
	config *Config
	mu     sync.Mutex
	news   *redisstore.News
	closed bool
}

func (n *lateUpdates) open(ctx context.Context) (*redisstore.News, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, errUpdatesClosed
	case n.news != nil:
		return n.news, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	news, err := redisstore.OpenNews(ctx, n.config.Store, redisstore.WithTimeout(n.config.Timeout))
	if err != nil {
		return nil, err
	}
	n.news = news
	return news, nil
}

var errUpdatesClosed = errors.New("the subscription to other nodes is closed")

// Tell implements recall.News.
func (n *lateUpdates) Tell(ctx context.Context, message []byte) error {
	news, err := n.open(ctx)
	if err != nil {
		return err
	}
	return news.Tell(ctx, message)
}

// Listen implements recall.News.
func (n *lateUpdates) Listen(ctx context.Context, hear func([]byte), missed func()) error {
	news, err := n.open(ctx)
	if err != nil {
		return err
	}
	return news.Listen(ctx, hear, missed)
}

// Close implements io.Closer.
func (n *lateUpdates) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed = true; n.news != nil {
		n.news.Close()
	}
	return nil
}

func (l *Setup) checkWithout() error {
	for _, word := range l.Without {
		if !slices.Contains(layers.Names, word) {
			return wrong("%s is %.80q; allowed, with commas: %s", l.field("Without"), word, strings.Join(layers.Names, ", "))
		}
	}
	return nil
}
