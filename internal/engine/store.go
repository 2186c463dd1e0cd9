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
func openStore(ctx context.Context, c *Config) (weir.Store, redisconn.Conn, error) {
	if c.Store == Memory {
		return memstore.New(memstore.WithMaxKeys(c.MaxKeys), memstore.WithMaxBytes(c.MaxBytes),
			memstore.WithWarn(c.warn)), nil, nil
	}
	conn, err := connect(ctx, c)
	if err != nil && !passes(err) {
		return nil, nil, fmt.Errorf("the store %s: %w", Masked(c.Store), err)
	}
	if err != nil {
		c.Log.Warn("Redis is not responding: rules apply their on_store_error until it does", "store", Masked(c.Store),
			"error", err)
		conn = connectLater(ctx, c, err)
	}
	store, err := redisstore.New(conn, c.storeOptions()...)
	if err != nil {
		return nil, nil, err
	}
	return store, conn, nil
}

func (c *Config) storeOptions() []redisstore.Option {
	opts := []redisstore.Option{redisstore.WithTimeout(c.StoreTimeout), redisstore.WithWarn(c.warn)}
	if c.StorePrefix != "" {
		opts = append(opts, redisstore.WithPrefix(c.StorePrefix))
	}
	return opts
}

// OpenRedis connects to the Redis of c.
func OpenRedis(ctx context.Context, c *Config) (weir.Store, error) {
	conn, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	return redisstore.New(conn, c.storeOptions()...)
}

func connect(ctx context.Context, c *Config) (redisconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	return redisconn.Open(ctx, c.Store, redisconn.Config{Timeout: c.StoreTimeout, Warn: c.warn})
}

func (c *Config) warn(text string) {
	c.Log.Warn(strings.TrimPrefix(strings.TrimPrefix(text, "redisstore: "), "memstore: "))
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

// A lateConn is the connection to a Redis that was unreachable at the start. Until it responds, every call returns
// weir.ErrUnavailable.
type lateConn struct {
	config *Config
	conn   atomic.Pointer[redisconn.Conn]
	why    error // of the first attempt
	stop   context.CancelFunc
	done   chan struct{}
}

func connectLater(ctx context.Context, c *Config, why error) *lateConn {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lateConn{config: c, why: why, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.connect(ctx)
	}()
	return l
}

// connect tries until it succeeds or the store is closed.
func (l *lateConn) connect(ctx context.Context) {
	log := l.config.Log.With("store", Masked(l.config.Store))
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for said := l.why.Error(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		conn, err := connect(ctx, l.config)
		if err == nil {
			l.conn.Store(&conn)
			log.Info("connected to Redis")
			return
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			log.Warn("Redis is not responding", "error", err)
			said = text
		}
	}
}

func (l *lateConn) connected() (redisconn.Conn, error) {
	if conn := l.conn.Load(); conn != nil {
		return *conn, nil
	}
	return nil, fmt.Errorf("%w (%w): not connected yet: %v", weir.ErrUnavailable, weir.ErrNotExecuted, l.why)
}

// Run implements redisstore.Conn.
func (l *lateConn) Run(ctx context.Context, script *redisconn.Script, keys, args []string,
	reply []redisconn.Value) ([]redisconn.Value, error) {
	conn, err := l.connected()
	if err != nil {
		return reply, err
	}
	return conn.Run(ctx, script, keys, args, reply)
}

// Delete implements redisstore.Conn.
func (l *lateConn) Delete(ctx context.Context, keys []string) error {
	conn, err := l.connected()
	if err != nil {
		return err
	}
	return conn.Delete(ctx, keys)
}

// An inspector looks at the servers of a connection, and warns of their settings.
type inspector interface {
	Inspect(ctx context.Context, warn func(string)) error
}

// Inspect implements inspector.
func (l *lateConn) Inspect(ctx context.Context, warn func(string)) error {
	conn, err := l.connected()
	if err != nil {
		return err
	}
	return conn.(inspector).Inspect(ctx, warn)
}

// Scan lists keys, as redisstore.Store.Scan needs it.
func (l *lateConn) Scan(ctx context.Context, cursor, match string, look int64) ([]string, string, error) {
	conn, err := l.connected()
	if err != nil {
		return nil, "", err
	}
	return conn.(interface {
		Scan(context.Context, string, string, int64) ([]string, string, error)
	}).Scan(ctx, cursor, match, look)
}

// Cluster implements redisstore.Conn.
func (l *lateConn) Cluster() bool { return l.config.cluster() }

// Close implements redisstore.Conn. It waits for the current attempt to connect.
func (l *lateConn) Close() {
	l.stop()
	<-l.done
	if conn, err := l.connected(); err == nil {
		conn.Close()
	}
}
