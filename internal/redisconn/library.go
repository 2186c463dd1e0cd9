//go:build !small

package redisconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

var errReplaced = errors.New("the client library has failed, and is being replaced")

// library is a client of rueidis. After a panic in one of its calls no later call of it succeeds: it is replaced.
type library struct{ rueidis.Client }

// closing is how long Close waits for the library, which waits for its calls.
const closing = time.Second

// end closes the library, and does not wait for it longer than closing.
func (l *library) end() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }() // it has failed before
		l.Close()
	}()
	select {
	case <-done:
	case <-time.After(closing):
	}
}

// do sends a command.
func (c *rueidisConn) do(ctx context.Context, l *library, command rueidis.Completed) (result rueidis.RedisResult) {
	defer func() {
		if failure := recover(); failure != nil {
			c.replace(l)
			result = rueidis.NewErrorResult(fmt.Errorf("the client library failed: %v", failure))
		}
	}()
	return l.Do(ctx, command)
}

// replace makes a new library in place of one that has failed.
func (c *rueidisConn) replace(failed *library) {
	if !c.live.CompareAndSwap(failed, nil) {
		return // it has been, or failed is a node's
	}
	go failed.end()
	go func() {
		for !c.closed.Load() {
			if client, err := rueidis.NewClient(c.options); err == nil {
				c.live.Store(&library{client})
				break
			}
			time.Sleep(dialPause)
		}
		if made := c.live.Load(); made != nil && c.closed.Load() {
			made.end()
		}
	}()
}
