// Package goredisconn lets a program that has a go-redis client open its store on that
// client instead of on connections of the store's own:
//
//	client := redis.NewClient(&redis.Options{Addr: "…", MaxRetries: -1, ContextTimeoutEnabled: true})
//	conn, err := goredisconn.New(client)
//	...
//	store, err := redisstore.New(conn)
//
// It costs about half of the decisions per second that redisstore.Open reaches, as
// go-redis does not pipeline by itself.
package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/respguard"
	"github.com/weirproject/weir/redisstore"
)

// New makes a Conn of a *redis.Client (of Sentinel's too) or a *redis.ClusterClient, which must have been made with
// MaxRetries -1 and ContextTimeoutEnabled: by default go-redis sends a call up to four times while the server stalls,
// each of which is charged, and looks at no context. Closing the Conn leaves the client open.
func New(client redis.UniversalClient) (redisstore.Conn, error) {
	c := &conn{client: client}
	var err error
	switch client := client.(type) {
	case *redis.Client:
		options := client.Options()
		// -1 reads 0 here, and 0 reads 3.
		err = check(options.MaxRetries == 0, options.MaxRetries, options.ContextTimeoutEnabled)
	case *redis.ClusterClient:
		options := client.Options()
		// Here 0 reads -1. A Cluster client's repetitions are called redirects; see once.
		err = check(options.MaxRetries == -1, options.MaxRetries, options.ContextTimeoutEnabled)
		c.cluster = client
	case *redis.Ring:
		const allowed = "a *redis.Client or *redis.ClusterClient: a Ring loses counts when a server leaves it"
		err = bad("client", "*redis.Ring", allowed)
	default:
		err = bad("client", fmt.Sprintf("%T", client), "a *redis.Client or *redis.ClusterClient")
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Guard makes a dialer for go-redis' Options, by which a connection ends where the server announces a text or an
// array larger than any that Redis has for rules or decisions (64 MiB, 2^21 elements). go-redis itself allocates any
// announced length: one reply of 2^31 elements ends the program. dial makes connections; nil is a net.Dialer.
func Guard(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return respguard.Bound(conn, respguard.Rules), nil
	}
}

func check(once bool, retries int, timeouts bool) error {
	if !once {
		return bad("MaxRetries", retries, "-1 when the client is made: a repeated call is charged again")
	}
	if !timeouts {
		return bad("ContextTimeoutEnabled", timeouts, "true when the client is made: or nothing bounds a call")
	}
	return nil
}

func bad(option string, given any, allowed string) error {
	return &weir.InputError{Field: "go-redis " + option, Given: given, Allowed: allowed}
}

type conn struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil for a single server
}

// once is a command that go-redis itself never sends twice. A ClusterClient with
// MaxRetries -1 would: after a network error or a timeout it sends a command up to
// MaxRedirects times more, whether it was executed or not. MOVED and ASK are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Run implements redisstore.Conn.
func (c *conn) Run(
	ctx context.Context, script *redisconn.Script, keys, args []string, reply []redisconn.Value,
) (_ []redisconn.Value, err error) {
	defer func() { // go-redis panics at some replies
		if failure := recover(); failure != nil {
			err = fmt.Errorf("%w (%s): go-redis failed: %v", weir.ErrUnavailable, redisconn.ErrPerhapsExecuted, failure)
		}
	}()
	elements, err := c.call(ctx, "evalsha", script.SHA, keys, args)
	if isNoScript(err) {
		if err = c.load(ctx, script, keys); err == nil {
			elements, err = c.call(ctx, "evalsha", script.SHA, keys, args)
		}
	}
	if isNoScript(err) { // the call was redirected, the load was not: EVAL carries the script
		elements, err = c.call(ctx, "eval", script.Text, keys, args)
	}
	if err != nil {
		return reply, explain(ctx, err)
	}
	return appendValues(reply, elements)
}

func (c *conn) call(ctx context.Context, name, script string, keys, args []string) ([]any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, name, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		words = append(words, arg)
	}
	command := redis.NewCmd(ctx, words...)
	if len(keys) > 0 {
		command.SetFirstKeyPos(3)
	}
	if err := c.client.Process(ctx, once{command}); err != nil {
		return nil, err
	}
	elements, ok := command.Val().([]any)
	if !ok {
		return nil, redisconn.Malformed("it is no array but %T", command.Val())
	}
	return elements, nil
}

func appendValues(reply []redisconn.Value, elements []any) ([]redisconn.Value, error) {
	for i, element := range elements {
		switch v := element.(type) {
		case int64:
			reply = append(reply, redisconn.Value{Int: v})
		case string:
			reply = append(reply, redisconn.Value{Text: v, IsText: true})
		default:
			return reply, redisconn.Malformed("element %d is neither an integer nor a string", i+1)
		}
	}
	return reply, nil
}

func isNoScript(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

// load loads a script on the node that holds keys, as far as go-redis knows.
func (c *conn) load(ctx context.Context, script *redisconn.Script, keys []string) error {
	if c.cluster == nil || len(keys) == 0 {
		return c.client.ScriptLoad(ctx, script.Text).Err()
	}
	node, err := c.cluster.MasterForKey(ctx, keys[0])
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, script.Text).Err()
}

// Delete implements redisstore.Conn. To delete twice does no harm.
func (c *conn) Delete(ctx context.Context, keys []string) error {
	var err error
	if c.cluster == nil && len(keys) > 0 {
		err = c.client.Unlink(ctx, keys...).Err()
	}
	for i := 0; c.cluster != nil && err == nil && i < len(keys); i++ {
		err = c.client.Unlink(ctx, keys[i]).Err()
	}
	if err != nil {
		return explain(ctx, err)
	}
	return nil
}

// Cluster implements redisstore.Conn.
func (c *conn) Cluster() bool { return c.cluster != nil }

// Close implements redisstore.Conn; the client is its maker's to close.
func (c *conn) Close() {}

// explain turns an error of go-redis into one of Conn's.
func explain(ctx context.Context, err error) error {
	var answer redis.Error
	var network *net.OpError
	switch {
	case errors.Is(err, weir.ErrUnavailable): // malformed
		return err
	case errors.Is(err, redis.Nil):
		return redisconn.Malformed("it is nil")
	case errors.As(err, &answer):
		return &redisconn.ServerError{Text: strings.TrimPrefix(answer.Error(), "ERR ")}
	case errors.As(err, &network) && network.Op == "dial",
		errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout):
		return unavailable(ctx, redisconn.NotExecuted, err)
	}
	return unavailable(ctx, redisconn.ErrPerhapsExecuted, err)
}

// unavailable makes the context's end visible to errors.Is also where go-redis reports
// it as a timeout of the network.
func unavailable(ctx context.Context, executed, err error) error {
	own := ctx.Err()
	var network net.Error
	if own == nil && errors.As(err, &network) && network.Timeout() {
		own = context.DeadlineExceeded
	}
	if own != nil && !errors.Is(err, own) {
		return fmt.Errorf("%w (%w): %w: %v", weir.ErrUnavailable, executed, own, err)
	}
	return fmt.Errorf("%w (%w): %w", weir.ErrUnavailable, executed, err)
}
