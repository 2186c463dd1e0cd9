package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
)

// subscribeTime is how long Redis may take to confirm a subscription.
const subscribeTime = 5 * time.Second

// News carries messages between the programs that share a prefix in one Redis, by publish and
// subscribe, on the channel PREFIXnews: weir:news. Databases share their channels. A Redis user
// that may not use all channels needs &weir:news and the commands publish and subscribe.
//
// A program that is not connected when a message is sent misses it. In a Cluster every node
// forwards it. News is safe for concurrent use.
type News struct {
	client  rueidis.Client
	channel string
}

// OpenNews connects as Open does, with the same URLs and options: the store's prefix is the
// one to give. The connection is its own, for both directions.
func OpenNews(ctx context.Context, url string, opts ...Option) (*News, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	client, err := Client(ctx, url, opts...)
	if err != nil {
		return nil, err
	}
	return &News{client: client, channel: cfg.prefix + "news"}, nil
}

// Tell publishes a message, and returns when Redis has taken it. Listen of the same program receives it too.
func (n *News) Tell(ctx context.Context, message []byte) error {
	publish := n.client.B().Publish().Channel(n.channel).Message(rueidis.BinaryString(message)).Build()
	if err := n.client.Do(ctx, publish).Error(); err != nil {
		return n.explain(ctx, err)
	}
	return nil
}

// Listen subscribes, calls missed when Redis has confirmed it, and receive for each message. It
// returns when ctx ends, when the connection is lost (a silent one within some seconds), and
// where Redis refuses. The bytes are valid only during the call of receive.
func (n *News) Listen(ctx context.Context, receive func(message []byte), missed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(subscribeTime, func() { cancel(errors.New("the subscription is not confirmed")) })
	defer late.Stop()
	confirmed := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" && late.Stop() {
			missed()
		}
	})
	subscribe := n.client.B().Subscribe().Channel(n.channel).Build()
	err := n.client.Receive(confirmed, subscribe, func(m rueidis.PubSubMessage) { receive([]byte(m.Message)) })
	if err == nil {
		err = errors.New("the subscription has ended")
	}
	return n.explain(ctx, err)
}

func (n *News) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: channel %s: %w", weir.ErrUnavailable, n.channel, err)
}

// Close closes the connection; Listen returns.
func (n *News) Close() error {
	n.client.Close()
	return nil
}
