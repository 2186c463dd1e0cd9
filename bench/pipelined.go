package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/redisstore"
)

// pipelinedRow sends the calls of several one-limit decisions in one pipeline: weir's own
// scripts, keys and arguments, but not its way of deciding them together.
func pipelinedRow(s *server, name string, specs []func(Quota) weir.Spec) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		client, err := rueidisClient(s)
		if err != nil {
			return nil, err
		}
		if _, err := newPipeline(client, nil, q, specs); err != nil {
			client.Close()
			return nil, err
		}
		learned := new(sync.Map)
		ask := func() Asker {
			// It was made once already: the same again cannot fail.
			p, _ := newPipeline(client, learned, q, specs)
			return p.ask
		}
		return peer{ask, client.Close}, nil
	}}
}

// A pipeline asks for one goroutine. Its limiters stand on a splice, which first hears what
// they would send and then tells them what Redis answered.
type pipeline struct {
	client   rueidis.Client
	learned  *sync.Map // key → []call, of all goroutines
	splice   *splice
	limiters []*weir.Limiter
	commands []rueidis.Completed
}

func newPipeline(client rueidis.Client, learned *sync.Map, q Quota, specs []func(Quota) weir.Spec) (*pipeline, error) {
	p := &pipeline{client: client, learned: learned, splice: &splice{}}
	store, err := redisstore.New(p.splice, redisstore.WithPrefix("sep:"))
	if err != nil {
		return nil, err
	}
	p.limiters, err = apart(store, q, specs)
	return p, err
}

func (p *pipeline) ask(key string) (bool, error) {
	ctx := context.Background()
	calls, err := p.calls(ctx, key)
	if err != nil {
		return false, err
	}
	p.commands = p.commands[:0]
	for _, c := range calls {
		p.commands = append(p.commands, p.client.B().Evalsha().Sha1(c.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build())
	}
	p.splice.replies = p.splice.replies[:0]
	for _, result := range p.client.DoMulti(ctx, p.commands...) {
		reply, err := values(result)
		if err != nil {
			return false, err
		}
		p.splice.replies = append(p.splice.replies, reply)
	}
	return p.granted(ctx, key)
}

// granted lets the limiters read the replies.
func (p *pipeline) granted(ctx context.Context, key string) (bool, error) {
	all := true
	for _, limiter := range p.limiters {
		answer, err := limiter.Allow(ctx, key)
		if err != nil {
			return false, err
		}
		all = all && answer.Allowed
	}
	return all, nil
}

// calls are what the limiters send for a key. Each key is learned once.
func (p *pipeline) calls(ctx context.Context, key string) ([]call, error) {
	if calls, ok := p.learned.Load(key); ok {
		return calls.([]call), nil
	}
	p.splice.heard, p.splice.replies = nil, nil
	for _, limiter := range p.limiters {
		if _, err := limiter.Allow(ctx, key); !errors.Is(err, errHeard) {
			return nil, err
		}
	}
	for _, c := range p.splice.heard {
		if err := p.client.Do(ctx, p.client.B().ScriptLoad().Script(c.text).Build()).Error(); err != nil {
			return nil, err
		}
	}
	p.learned.Store(key, p.splice.heard)
	return p.splice.heard, nil
}

// values are the elements of an array reply, as a Conn hands them to the store.
func values(result rueidis.RedisResult) ([]redisconn.Value, error) {
	elements, err := result.ToArray()
	if err != nil {
		return nil, err
	}
	reply := make([]redisconn.Value, len(elements))
	for i := range elements {
		if elements[i].IsInt64() {
			reply[i].Int, err = elements[i].AsInt64()
		} else {
			reply[i].Text, err = elements[i].ToString()
		}
		if err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// A call is one EVALSHA.
type call struct {
	text, sha  string
	keys, args []string
}

// A splice is a redisstore.Conn without a Redis: it answers with the replies that it was
// given, one a call; without any it remembers the call and fails.
type splice struct {
	replies [][]redisconn.Value
	heard   []call
}

var errHeard = errors.New("the call was heard, not sent")

// Run implements redisstore.Conn.
func (s *splice) Run(_ context.Context, script *redisconn.Script, keys, args []string, reply []redisconn.Value) ([]redisconn.Value, error) {
	if len(s.replies) == 0 {
		s.heard = append(s.heard, call{script.Text, script.SHA, slices.Clone(keys), slices.Clone(args)})
		return nil, errHeard
	}
	reply = append(reply, s.replies[0]...)
	s.replies = s.replies[1:]
	return reply, nil
}

// Delete implements redisstore.Conn.
func (s *splice) Delete(context.Context, []string) error { return errHeard }

// Cluster implements redisstore.Conn.
func (s *splice) Cluster() bool { return false }

// Close implements redisstore.Conn.
func (s *splice) Close() {}
