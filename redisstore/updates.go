package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// subscribeTime is how long Redis may take to confirm a subscription.
const subscribeTime = 5 * time.Second

// Updates carry messages between the programs that share a prefix in one Redis, by publish and
// subscribe, on the channel PREFIXnews: weir:news. Databases share their channels. A Redis user
// that may not use all channels needs &weir:news and the commands publish and subscribe.
//
// A program that is not connected when a message is sent misses it. In a Cluster every node
// forwards it. Updates are safe for concurrent use.
type Updates struct {
	client  rueidis.Client
	channel string
}

// OpenUpdates connects as Open does, with the same URLs and options: the store's prefix is the
// one to give. The connection is its own, for both directions.
func OpenUpdates(ctx context.Context, url string, opts ...Option) (*Updates, error) {
	config, err := newConfig(append(opts[:len(opts):len(opts)], WithWarn(nil)))
	if err != nil {
		return nil, err
	}
	client, err := redisconn.OpenClient(ctx, url, config.connection())
	if err != nil {
		return nil, err
	}
	return &Updates{client: client, channel: config.prefix + "news"}, nil
}

// Publish sends a message, and returns when Redis has taken it. Subscribe of the same program receives it too.
func (u *Updates) Publish(ctx context.Context, message []byte) error {
	publish := u.client.B().Publish().Channel(u.channel).Message(rueidis.BinaryString(message)).Build()
	if err := u.client.Do(ctx, publish).Error(); err != nil {
		return u.explain(ctx, err)
	}
	return nil
}

// Subscribe calls missed when Redis has confirmed the subscription, and receive for each message. It
// returns when ctx ends, when the connection is lost (a silent one within some seconds), and
// where Redis refuses. The bytes are valid only during the call of receive.
func (u *Updates) Subscribe(ctx context.Context, receive func(message []byte), missed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(subscribeTime, func() { cancel(errors.New("the subscription is not confirmed")) })
	defer late.Stop()
	confirmed := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" && late.Stop() {
			missed()
		}
	})
	subscribe := u.client.B().Subscribe().Channel(u.channel).Build()
	err := u.client.Receive(confirmed, subscribe, func(m rueidis.PubSubMessage) { receive([]byte(m.Message)) })
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
	u.client.Close()
	return nil
}
