package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

const (
	// connectTime is how long an attempt to connect may take.
	connectTime = 2 * time.Second
	// subscribeTime is how long Redis may take to confirm a subscription.
	subscribeTime = 5 * time.Second
)

// Updates carry messages between the programs that share a prefix in one Redis, by publish and subscribe, on the
// channel PREFIXnews: weir:news. Databases share their channels. A Redis user that may not use all channels needs
// &weir:news and the commands publish and subscribe.
//
// The connection is their own, for both directions. It is made when it is first needed: Redis may start later than the
// program. A program that is not connected when a message is sent misses it. In a Cluster every node forwards it.
// Updates are safe for concurrent use.
type Updates struct {
	url     string
	config  redisconn.Config
	channel string

	mu     sync.Mutex
	client redisconn.Client // nil: not connected yet
	closed bool
}

// NewUpdates makes the Updates of the URL and options that Open takes; the store's prefix is the one to give. It
// checks the URL, and does not connect.
func NewUpdates(url string, opts ...Option) (*Updates, error) {
	config, err := newConfig(append(opts[:len(opts):len(opts)], WithWarn(nil)))
	if err != nil {
		return nil, err
	}
	if err := redisconn.CheckURL(url); err != nil {
		return nil, err
	}
	return &Updates{url: url, config: config.connection(), channel: config.prefix + "news"}, nil
}

// connect returns the connection, and makes it first if necessary.
func (u *Updates) connect(ctx context.Context) (redisconn.Client, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, weir.ErrClosed
	case u.client != nil:
		return u.client, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	client, err := redisconn.OpenClient(ctx, u.url, u.config)
	if err == nil {
		u.client = client
	}
	return client, err
}

// Publish sends a message, and returns when Redis has taken it. Subscribe of the same program receives it too.
func (u *Updates) Publish(ctx context.Context, message []byte) error {
	client, err := u.connect(ctx)
	if err != nil {
		return u.explain(ctx, err)
	}
	publish := redisconn.Command{Name: "PUBLISH", Args: []string{u.channel, string(message)}}
	if err := client.Do(ctx, publish).Err(); err != nil {
		return u.explain(ctx, err)
	}
	return nil
}

// Subscribe calls missed when Redis has confirmed the subscription, and receive for each message. It
// returns when ctx ends, when the connection is lost (a silent one within some seconds), and
// where Redis refuses. The bytes are valid only during the call of receive.
func (u *Updates) Subscribe(ctx context.Context, receive func(message []byte), missed func()) error {
	client, err := u.connect(ctx)
	if err != nil {
		return u.explain(ctx, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(subscribeTime, func() { cancel(errors.New("the subscription is not confirmed")) })
	defer late.Stop()
	confirmed := func() {
		if late.Stop() {
			missed()
		}
	}
	err = client.Receive(ctx, u.channel, confirmed, func(message string) { receive([]byte(message)) })
	if err == nil {
		err = errors.New("the subscription has ended")
	}
	return u.explain(ctx, err)
}

func (u *Updates) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: channel %s: %w", weir.ErrUnavailable, u.channel, err)
}

// Close closes the connection; Subscribe returns.
func (u *Updates) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed = true; u.client != nil {
		u.client.Close()
	}
	return nil
}
