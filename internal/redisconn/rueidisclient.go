//go:build !small

package redisconn

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/respguard"
)

// OpenClient connects with the same URLs, TLS and checks of the server as Open, for data in
// Redis beside limits, such as rules.
//
// The timeout of the Config does not bound its calls, their contexts do; it says for how long (at
// least 100ms) the server may be silent while calls wait for it, before the connection is given up.
func OpenClient(ctx context.Context, url string, config Config) (Client, error) {
	conn, err := openConn(ctx, url, config, respguard.Rules)
	if err != nil {
		return nil, err
	}
	return &client{conn.live.Load().Client, conn.Close}, nil
}

// A client is the Client of a server or of a Cluster.
type client struct {
	rueidis rueidis.Client
	close   func()
}

func (c *client) Close() { c.close() }

func (c *client) build(command Command) rueidis.Completed {
	b := c.rueidis.B().Arbitrary(command.Name)
	if command.Sub != "" {
		b = b.Args(command.Sub)
	}
	return b.Keys(command.Keys...).Args(command.Args...).Build()
}

func (c *client) Do(ctx context.Context, command Command) Reply {
	return replyOf(c.rueidis.Do(ctx, c.build(command)))
}

func (c *client) DoMulti(ctx context.Context, list []Command) []Reply {
	commands := make(rueidis.Commands, len(list))
	for i, one := range list {
		commands[i] = c.build(one)
	}
	replies := make([]Reply, len(list))
	for i, result := range c.rueidis.DoMulti(ctx, commands...) {
		replies[i] = replyOf(result)
	}
	return replies
}

func (c *client) Exec(ctx context.Context, script *Script, keys, args []string) Reply {
	result := c.rueidis.Do(ctx, evalSHA(c.rueidis, script, keys, args))
	if isNoScript(result.Error()) {
		result = c.rueidis.Do(ctx, eval(c.rueidis, script, keys, args))
	}
	return replyOf(result)
}

func (c *client) Nodes() map[string]Client {
	nodes := make(map[string]Client)
	for address, node := range c.rueidis.Nodes() {
		nodes[address] = &client{node, func() {}} // it is the client's to close
	}
	return nodes
}

func (c *client) Cluster() bool { return c.rueidis.Mode() == rueidis.ClientModeCluster }

func (c *client) Receive(ctx context.Context, channel string, confirmed func(), receive func(string)) error {
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			confirmed()
		}
	})
	subscribe := c.rueidis.B().Subscribe().Channel(channel).Build()
	return answered(c.rueidis.Receive(hooked, subscribe, func(m rueidis.PubSubMessage) { receive(m.Message) }))
}

func (c *client) Subscribe(ctx context.Context, channel string, receive func(string)) (
	lost <-chan error, release func(), err error) {
	conn, release := c.rueidis.Dedicate()
	onMessage := func(m rueidis.PubSubMessage) { receive(m.Message) }
	lost = conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: onMessage})
	err = answered(conn.Do(ctx, conn.B().Subscribe().Channel(channel).Build()).Error())
	return lost, release, err
}

// replyOf takes a reply apart.
func replyOf(result rueidis.RedisResult) Reply {
	value, err := result.ToAny()
	if err != nil {
		return Reply{err: answered(err)}
	}
	return Reply{value: answers(value)}
}

// answers converts the errors of Redis in a value to errors of this package.
func answers(value any) any {
	switch value := value.(type) {
	case error:
		return answered(value)
	case []any:
		for i := range value {
			value[i] = answers(value[i])
		}
	}
	return value
}

// answered is an error of rueidis as one of this package.
func answered(err error) error {
	var answer *rueidis.RedisError
	switch {
	case err == nil:
		return nil
	case rueidis.IsRedisNil(err):
		return ErrNil
	case errors.As(err, &answer):
		return &ServerError{Text: answer.Error()}
	}
	return err
}
