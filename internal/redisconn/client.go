package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A Client sends commands to a Redis that has data beside limits, such as rules. It is safe for concurrent use, and
// never sends a command twice. Contexts bound the calls. An error that Redis itself answered is a *ServerError.
type Client interface {
	Do(ctx context.Context, c Command) Reply

	// DoMulti sends commands together, which may concern different slots.
	DoMulti(ctx context.Context, list []Command) []Reply

	// Exec runs a script on the node that holds keys: by EVALSHA, and after NOSCRIPT by EVAL.
	Exec(ctx context.Context, script *Script, keys, args []string) Reply

	// Nodes are the known servers by address, each as a Client of its own; replicas are among them.
	Nodes() map[string]Client

	// Cluster reports whether keys of different slots lie on different nodes.
	Cluster() bool

	// Receive subscribes to a channel. It calls confirmed when Redis has confirmed that, and receive for each message.
	// It returns when ctx ends, when the connection is lost, and where Redis refuses.
	Receive(ctx context.Context, channel string, confirmed func(), receive func(message string)) error

	// Subscribe subscribes to a channel on a connection of its own, until release. It returns when Redis has confirmed
	// that. lost receives one error when the connection is lost. release is never nil.
	Subscribe(ctx context.Context, channel string, receive func(message string)) (lost <-chan error, release func(),
		err error)

	Close()
}

// A Command is a command with its keys, by which a Cluster finds the node: HSET, key, then field and value.
type Command struct {
	Name string
	Sub  string // of a command with subcommands: MEMORY USAGE
	Keys []string
	Args []string
}

// ErrNil is the error of a reply without a value, such as the one of GET for a key that does not exist.
var ErrNil = errors.New("redis: no value")

var errReply = errors.New("redis: the reply has another type than its command gives")

// A Reply is the reply to a command: an error or a value.
type Reply struct {
	value any // int64, string, []any or map[string]any; an element that is an error is one; nil: no value
	err   error
}

// Err is the error of the reply; ErrNil if it has no value.
func (r Reply) Err() error {
	if r.err != nil {
		return r.err
	}
	switch value := r.value.(type) {
	case nil:
		return ErrNil
	case error:
		return value
	}
	return nil
}

// Int is the integer, which may have been sent as text.
func (r Reply) Int() (int64, error) {
	value, err := r.value, r.Err()
	if text, is := value.(string); is {
		return strconv.ParseInt(text, 10, 64)
	}
	return as[int64](value, err)
}

// Text is the string.
func (r Reply) Text() (string, error) { return as[string](r.value, r.Err()) }

// List is the array.
func (r Reply) List() ([]Reply, error) {
	values, err := as[[]any](r.value, r.Err())
	list := make([]Reply, len(values))
	for i, value := range values {
		list[i] = Reply{value: value}
	}
	return list, err
}

// Texts is the array of strings.
func (r Reply) Texts() ([]string, error) {
	list, err := r.List()
	texts := make([]string, len(list))
	for i := 0; i < len(list) && err == nil; i++ {
		texts[i], err = list[i].Text()
	}
	return texts, err
}

// Time is the time of the server, as TIME replies it.
func (r Reply) Time() (time.Time, error) {
	list, err := r.List()
	if err == nil && len(list) != 2 {
		err = errReply
	}
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := list[0].Int()
	micros, errMicros := list[1].Int()
	return time.Unix(seconds, micros*1000), errors.Join(err, errMicros)
}

// Map is the map, or the array of names and values in turn.
func (r Reply) Map() (map[string]string, error) {
	value, err := r.value, r.Err()
	if named, is := value.(map[string]any); is {
		all := make(map[string]string, len(named))
		for name, value := range named {
			if all[name], err = as[string](value, nil); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	pairs, err := as[[]any](value, err)
	if err == nil && len(pairs)%2 != 0 {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, named := pairs[i].(string)
		text, ok := pairs[i+1].(string)
		if !named || !ok {
			return nil, errReply
		}
		all[name] = text
	}
	return all, nil
}

// A Page is the reply to SCAN: some keys, and the cursor of the next page; 0 after the last.
type Page struct {
	Cursor uint64
	Keys   []string
}

// Page is the reply to SCAN.
func (r Reply) Page() (p Page, err error) {
	list, err := r.List()
	if err == nil && len(list) != 2 {
		err = errReply
	}
	if err != nil {
		return p, err
	}
	cursor, err := list[0].Text()
	if err != nil {
		return p, err
	}
	if p.Cursor, err = strconv.ParseUint(cursor, 10, 64); err != nil {
		return p, fmt.Errorf("%w: %w", errReply, err)
	}
	p.Keys, err = list[1].Texts()
	return p, err
}

// as converts a value.
func as[T any](value any, err error) (T, error) {
	converted, ok := value.(T)
	if err == nil && !ok {
		err = errReply
	}
	return converted, err
}
