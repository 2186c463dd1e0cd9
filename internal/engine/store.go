package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

const (
	// firstAttempt is the timeout of an attempt to connect to Redis. The start waits for one
	// attempt; the others follow in the background, retryEvery apart.
	firstAttempt = 2 * time.Second
	retryEvery   = time.Second
)

func (c *Config) cluster() bool {
	scheme, _, _ := strings.Cut(c.Store, "://")
	return strings.HasSuffix(scheme, "+cluster")
}

// openStore opens the store. An unreachable Redis is no error: until it responds, rules apply
// their on_store_error, as they do when Redis fails later. A permanent failure, such as a wrong
// password, is an error.
func openStore(ctx context.Context, c *Config) (weir.Store, error) {
	if c.Store == Memory {
		return memstore.New(memstore.WithMaxKeys(c.MaxKeys), memstore.WithMaxBytes(c.MaxBytes)), nil
	}
	store, err := OpenRedis(ctx, c)
	if err == nil {
		return store, nil
	}
	if !passes(err) {
		return nil, fmt.Errorf("the store %s: %w", Masked(c.Store), err)
	}
	c.Log.Warn("Redis is not responding: rules apply their on_store_error until it does", "store", Masked(c.Store),
		"error", err)
	return lateRedis(ctx, c, err), nil
}

// OpenRedis connects to the Redis of c.
func OpenRedis(ctx context.Context, c *Config) (*redisstore.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	return redisstore.Open(ctx, c.Store, redisstore.WithTimeout(c.Timeout),
		redisstore.WithWarn(func(text string) { c.Log.Warn(strings.TrimPrefix(text, "redisstore: ")) }))
}

// passes reports whether a failure to open Redis may be temporary.
func passes(err error) bool {
	var answer *redisconn.ServerError
	if errors.As(err, &answer) {
		word, _, _ := strings.Cut(answer.Text, " ")
		return word == "LOADING" || word == "MASTERDOWN" || word == "CLUSTERDOWN" || word == "TRYAGAIN" ||
			word == "BUSY"
	}
	return errors.Is(err, weir.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// Masked is a URL without everything before the last @, which may be a password.
func Masked(url string) string {
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

// A lateStore is a Redis that was unreachable at the start. Until it responds, every call returns
// weir.ErrUnavailable.
type lateStore struct {
	redis atomic.Pointer[redisstore.Store]
	why   error // of the first attempt
	stop  context.CancelFunc
	done  chan struct{}
}

func lateRedis(ctx context.Context, c *Config, why error) *lateStore {
	ctx, cancel := context.WithCancel(ctx)
	l := &lateStore{why: why, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.connect(ctx, c)
	}()
	return l
}

// connect tries until it succeeds or the store is closed.
func (l *lateStore) connect(ctx context.Context, c *Config) {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for said := l.why.Error(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		store, err := OpenRedis(ctx, c)
		if err == nil {
			l.redis.Store(store)
			c.Log.Info("connected to Redis", "store", Masked(c.Store))
			return
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			c.Log.Warn("Redis is not responding", "store", Masked(c.Store), "error", err)
			said = text
		}
	}
}

// unreachable is the error of a call before the first connection.
func (l *lateStore) unreachable(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	clear(decisions)
	return fmt.Errorf("%w (not executed): not connected yet: %v", weir.ErrUnavailable, l.why)
}

// Decide implements weir.Store.
func (l *lateStore) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64,
	error) {
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
func (l *lateStore) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
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

// Close implements weir.Store. It waits for the current attempt to connect.
func (l *lateStore) Close() error {
	l.stop()
	<-l.done
	if redis := l.redis.Load(); redis != nil {
		return redis.Close()
	}
	return nil
}
