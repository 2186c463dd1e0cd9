//go:build !small

package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
)

var errShut = errors.New("the server does not keep up: it has left many calls unanswered")

// detours is how often a call is sent to another node because its node cannot be reached, or does not know who serves
// the slot. It is sent to a node of the Cluster, which is picked at random and may be the same one.
const detours = 3

// rueidisConn is the Conn that Open makes. One connection for each node carries all calls, pipelined.
type rueidisConn struct {
	live    atomic.Pointer[library] // nil while it is replaced
	options rueidis.ClientOption
	dialer  *dialer
	timeout time.Duration
	shape   topology
	cluster bool
	closed  atomic.Bool
	loads   loads
	valve   valve
}

func (c *rueidisConn) Run(ctx context.Context, script *Script, keys, args []string, reply []Value) ([]Value, error) {
	if err := ctx.Err(); err != nil {
		return reply, unavailable(ctx, NotExecuted, err)
	}
	elements, err := c.call(ctx, evalSHA, script, keys, args)
	if isNoScript(err) {
		if err = c.load(ctx, script, keys); err == nil {
			elements, err = c.call(ctx, evalSHA, script, keys, args)
		}
	}
	if isNoScript(err) { // the call was redirected, the load was not: a node redirects only what has keys
		elements, err = c.call(ctx, eval, script, keys, args)
	}
	if err != nil {
		return reply, c.explain(ctx, err)
	}
	return appendValues(reply, elements)
}

// A command is one that runs a script.
type command func(client rueidis.Client, script *Script, keys, args []string) rueidis.Completed

func evalSHA(client rueidis.Client, script *Script, keys, args []string) rueidis.Completed {
	return client.B().Evalsha().Sha1(script.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// eval carries the script to the node that executes it, whatever redirects it. SCRIPT LOAD goes before: a script that
// was EVALed first may be evicted.
func eval(client rueidis.Client, script *Script, keys, args []string) rueidis.Completed {
	return client.B().Eval().Script(script.Text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *rueidisConn) call(
	ctx context.Context, build command, script *Script, keys, args []string,
) ([]rueidis.RedisMessage, error) {
	library := c.live.Load()
	if library == nil {
		return nil, errReplaced
	}
	if !c.valve.enter() {
		return nil, errShut
	}
	result := c.do(ctx, library, build(library, script, keys, args))
	for again := 0; again < detours && c.cluster && isLost(result) && ctx.Err() == nil; again++ {
		result = c.do(ctx, library, anywhere(library, script, keys, args))
	}
	if err := result.NonRedisError(); err == nil {
		c.valve.answered()
	} else if isTimeout(ctx, err) {
		c.valve.gaveUp()
	}
	return result.ToArray()
}

// isLost reports whether a call was not executed and another node may know where to: a node that hears that a master
// has become a replica before it hears of the new master answers that no node serves the slots.
func isLost(result rueidis.RedisResult) bool {
	answer, ok := rueidis.IsRedisErr(result.Error())
	return ok && answer.Error() == "CLUSTERDOWN Hash slot not served" || isUnreachable(result.NonRedisError())
}

// anywhere is a call for any node of a Cluster: a node that does not hold the keys redirects to
// the one that does. So the replica of a dead master is found as soon as it is promoted; rueidis
// updates the topology at a random moment within a second. The replica lacks the script, and may
// not be among the nodes that rueidis knows: EVAL carries the script.
func anywhere(client rueidis.Client, script *Script, keys, args []string) rueidis.Completed {
	return client.B().Arbitrary("EVAL", script.Text, strconv.Itoa(len(keys))).Args(keys...).Args(args...).Build()
}

// isNoScript looks at the first word only: the rest differs between versions.
func isNoScript(err error) bool {
	answer, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

func appendValues(reply []Value, elements []rueidis.RedisMessage) ([]Value, error) {
	for i := range elements {
		element := &elements[i]
		switch {
		case element.IsInt64():
			n, _ := element.ToInt64()
			reply = append(reply, Value{Int: n})
		case element.IsString():
			text, _ := element.ToString()
			reply = append(reply, Value{Text: text, IsText: true})
		default:
			return reply, Malformed("element %d is neither an integer nor a string", i+1)
		}
	}
	return reply, nil
}

// load loads a script on the node that holds keys, as far as rueidis knows.
func (c *rueidisConn) load(ctx context.Context, script *Script, keys []string) error {
	what, key := loading{sha: script.SHA, slot: -1}, ""
	if len(keys) > 0 {
		key = keys[0] // the slice is the caller's again when it gives up; loading goes on
	}
	library := c.live.Load()
	if library == nil {
		return errReplaced
	}
	if c.cluster && key != "" {
		what.slot = int(redisslot.Of(key))
	}
	return c.loads.do(ctx, c.timeout, what, func(ctx context.Context) error {
		command := library.B().ScriptLoad().Script(script.Text).Build()
		if key != "" {
			command = command.SetSlot(key)
		}
		return c.do(ctx, library, command).Error()
	})
}

func (c *rueidisConn) Delete(ctx context.Context, keys []string) error {
	library := c.live.Load()
	if library == nil {
		return unavailable(ctx, NotExecuted, errReplaced)
	}
	each := max(1, len(keys)) // keys of one command
	if c.cluster {
		each = 1
	}
	for some := range slices.Chunk(keys, each) {
		if err := c.do(ctx, library, library.B().Unlink().Key(some...).Build()).Error(); err != nil {
			return c.explain(ctx, err)
		}
	}
	return nil
}

func (c *rueidisConn) Cluster() bool { return c.cluster }

func (c *rueidisConn) Close() {
	c.closed.Store(true)
	if library := c.live.Load(); library != nil {
		library.end()
	}
	c.dialer.close()
}

// explain turns an error of rueidis into one of Conn's.
func (c *rueidisConn) explain(ctx context.Context, err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return &ServerError{Text: answer.Error()}
	}
	switch {
	case c.closed.Load():
		return weir.ErrClosed
	case rueidis.IsRedisNil(err) || rueidis.IsParseErr(err):
		return Malformed("it is not an array: %v", err)
	case isUnreachable(err) || err == errShut || err == errReplaced:
		return unavailable(ctx, NotExecuted, err)
	}
	return unavailable(ctx, ErrPerhapsExecuted, err)
}

// unavailable wraps a context's error only if it is the error of this call: the attempt to connect
// that failed may have been another call's.
func unavailable(ctx context.Context, executed, err error) error {
	if isTimeout(ctx, err) {
		return fmt.Errorf("%w (%w): %w", weir.ErrUnavailable, executed, err)
	}
	return fmt.Errorf("%w (%w): %v", weir.ErrUnavailable, executed, err)
}

// isTimeout reports whether the call failed because its own context has ended. The
// connection has the same deadline and may be a little faster than the context.
func isTimeout(ctx context.Context, err error) bool {
	own := ctx.Err()
	if end, ok := ctx.Deadline(); own == nil && ok && !time.Now().Before(end) {
		own = context.DeadlineExceeded
	}
	return own != nil && errors.Is(err, own)
}

// loads lets calls that miss a script at once wait for one SCRIPT LOAD.
type loads struct {
	mu       sync.Mutex
	underway map[loading]*loaded
}

type loading struct {
	sha  string
	slot int // -1: the only node, or any
}

type loaded struct {
	done chan struct{}
	err  error // set before done is closed
}

// do does not run load in ctx: others wait for it too.
func (l *loads) do(ctx context.Context, timeout time.Duration, what loading, load func(context.Context) error) error {
	l.mu.Lock()
	one := l.underway[what]
	if one == nil {
		one = &loaded{done: make(chan struct{})}
		l.underway[what] = one
		go l.run(timeout, what, one, load)
	}
	l.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *loads) run(timeout time.Duration, what loading, one *loaded, load func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	one.err = load(ctx)
	l.mu.Lock()
	delete(l.underway, what)
	l.mu.Unlock()
	close(one.done)
}
