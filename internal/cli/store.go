package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

const (
	memory = "memory"

	// firstAttempt is how long the start waits for Redis; the attempts that follow, in the
	// background, may take as long, retryEvery apart.
	firstAttempt = 2 * time.Second
	retryEvery   = time.Second
)

// A storeConfig says which store, and how it is asked.
type storeConfig struct {
	url      string
	timeout  time.Duration // of a call of Redis
	maxKeys  int           // of a store in memory
	maxBytes int64         // of a store in memory
	nodes    int           // that share it
	without  []string      // layers before Redis that are left out: layers.Names

	fallbackKeys int // that are counted beside Redis, for when it does not answer
}

func (c storeConfig) cluster() bool {
	scheme, _, _ := strings.Cut(c.url, "://")
	return strings.HasSuffix(scheme, "+cluster")
}

// openStore opens the store. A Redis that cannot be reached is no error: what is decided
// meanwhile is what the rules say of a store that does not answer, as it is when Redis goes
// away later. What waiting does not mend, such as a wrong password, is an error.
func openStore(ctx context.Context, c storeConfig, log *slog.Logger) (weir.Store, error) {
	if c.url == memory {
		return memstore.New(memstore.WithMaxKeys(c.maxKeys), memstore.WithMaxBytes(c.maxBytes)), nil
	}
	store, err := openRedis(ctx, c, log)
	if err == nil {
		return store, nil
	}
	if !passes(err) {
		return nil, fmt.Errorf("the store %s: %w", masked(c.url), err)
	}
	log.Warn("Redis does not answer: rules answer by their on_store_error until it does", "store", masked(c.url), "error", err)
	return lateRedis(ctx, c, err, log), nil
}

func openRedis(ctx context.Context, c storeConfig, log *slog.Logger) (*redisstore.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	return redisstore.Open(ctx, c.url, redisstore.WithTimeout(c.timeout),
		redisstore.WithWarn(func(text string) { log.Warn(strings.TrimPrefix(text, "redisstore: ")) }))
}

// passes reports whether a failure to open Redis may be gone with the next attempt.
func passes(err error) bool {
	var answer *redisstore.ServerError
	if errors.As(err, &answer) {
		word, _, _ := strings.Cut(answer.Text, " ")
		return word == "LOADING" || word == "MASTERDOWN" || word == "CLUSTERDOWN" || word == "TRYAGAIN" || word == "BUSY"
	}
	return errors.Is(err, weir.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// masked is a URL without what may be a password: all of what stands before the last @.
func masked(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "***@" + rest[at+1:]
	}
	if query != "" { // sentinel_password
		rest += "?…"
	}
	return scheme + "://" + rest
}

// A lateStore is a Redis that could not be reached yet. Until it can, every call is
// answered weir.ErrUnavailable.
type lateStore struct {
	redis atomic.Pointer[redisstore.Store]
	why   error // of the first attempt
	stop  context.CancelFunc
	done  chan struct{}
}

func lateRedis(ctx context.Context, c storeConfig, why error, log *slog.Logger) *lateStore {
	ctx, cancel := context.WithCancel(ctx)
	l := &lateStore{why: why, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.connect(ctx, c, log)
	}()
	return l
}

// connect tries until it succeeds or the store is closed.
func (l *lateStore) connect(ctx context.Context, c storeConfig, log *slog.Logger) {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for said := l.why.Error(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		store, err := openRedis(ctx, c, log)
		if err == nil {
			l.redis.Store(store)
			log.Info("Redis answers", "store", masked(c.url))
			return
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			log.Warn("Redis does not answer", "store", masked(c.url), "error", err)
			said = text
		}
	}
}

// unreachable is the answer of a call while there is nobody to ask.
func (l *lateStore) unreachable(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	clear(decisions)
	return fmt.Errorf("%w (not executed): it could not be reached yet: %v", weir.ErrUnavailable, l.why)
}

// Decide implements weir.Store.
func (l *lateStore) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if redis := l.redis.Load(); redis != nil {
		return redis.Decide(ctx, claims, times, decisions)
	}
	return 0, l.unreachable(claims, times, decisions)
}

// DecideBatch implements weir.Batcher.
func (l *lateStore) DecideBatch(ctx context.Context, requests []weir.Request) {
	if redis := l.redis.Load(); redis != nil {
		redis.DecideBatch(ctx, requests)
		return
	}
	for i := range requests {
		r := &requests[i]
		clear(r.Decisions)
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			r.Err = l.unreachable(r.Claims, r.Times, nil)
		}
	}
}

// Charge implements weir.Store.
func (l *lateStore) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if redis := l.redis.Load(); redis != nil {
		return redis.Charge(ctx, claims, decisions)
	}
	return l.unreachable(claims, 1, decisions)
}

// Refund implements weir.Store.
func (l *lateStore) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if redis := l.redis.Load(); redis != nil {
		return redis.Refund(ctx, claims, takenAt, decisions)
	}
	return l.unreachable(claims, 1, decisions)
}

// Reset implements weir.Store.
func (l *lateStore) Reset(ctx context.Context, claims []weir.Claim) error {
	if redis := l.redis.Load(); redis != nil {
		return redis.Reset(ctx, claims)
	}
	return l.unreachable(claims, 0, nil)
}

// Register implements gate.Register.
func (l *lateStore) Register(ctx context.Context, register, name, note string, last time.Duration) error {
	if redis := l.redis.Load(); redis != nil {
		return redis.Register(ctx, register, name, note, last)
	}
	return l.unreachable(nil, 0, nil)
}

// Registered implements gate.Register.
func (l *lateStore) Registered(ctx context.Context, register string) (map[string]string, error) {
	if redis := l.redis.Load(); redis != nil {
		return redis.Registered(ctx, register)
	}
	return nil, l.unreachable(nil, 0, nil)
}

// Close implements weir.Store. It waits for the attempt that is under way.
func (l *lateStore) Close() error {
	l.stop()
	<-l.done
	if redis := l.redis.Load(); redis != nil {
		return redis.Close()
	}
	return nil
}
