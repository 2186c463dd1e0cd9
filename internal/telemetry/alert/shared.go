package alert

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/telemetry"
)

var (
	//go:embed shared.lua
	sharedText string
	//go:embed counts.lua
	countsText string
)

const (
	// hold is how long the alerts of a node that was killed still fire. A restarted one has found them again by then.
	hold = 2 * time.Minute
	// counted is how long the counts of a node are part of the sum, and how long the node that adds them up does so
	// without a call.
	counted = 3 * every
	// syncTimeout bounds a call.
	syncTimeout = time.Second
)

// A Shared is what the nodes of a Redis know of each other's alerts.
type Shared struct {
	url, key, node string
	script, counts *redisconn.Script
	conn           redisconn.Conn // nil: not connected
}

// NewShared uses a hash in the Redis at a URL. It connects at the first call.
func NewShared(url, key string) *Shared {
	return &Shared{url: url, key: key, node: rand.Text(), script: redisconn.ScriptOf(sharedText),
		counts: redisconn.ScriptOf(countsText)}
}

func (s *Shared) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// connect connects, if there is no connection.
func (s *Shared) connect(ctx context.Context) (err error) {
	if s.conn == nil {
		if s.conn, err = redisconn.Open(ctx, s.url, redisconn.Config{Timeout: syncTimeout}); err != nil {
			s.conn = nil
		}
	}
	return err
}

// count tells what this node counted. One of the nodes learns what the others did; it is nil on these.
func (s *Shared) count(ctx context.Context, own map[string]Sum) (others map[string]map[string]Sum, err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	args := []string{s.node, strconv.FormatInt(counted.Milliseconds(), 10), string(text)}
	reply, err := s.conn.Run(ctx, s.counts, []string{s.key + ":counts"}, args, nil)
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	others = make(map[string]map[string]Sum)
	for i := 2; i+1 < len(reply); i += 2 {
		var counts map[string]Sum
		if json.Unmarshal([]byte(reply[i+1].Text), &counts) == nil { // otherwise another version wrote it
			others[reply[i].Text] = counts
		}
	}
	return others, nil
}

// sync tells what fires on this node. It returns what fires on all, what this node is the first to raise, and what
// no node has any more, of which it is the first to know.
func (s *Shared) sync(ctx context.Context, own []telemetry.Alert) (all, raised, resolved []telemetry.Alert, err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err = s.connect(ctx); err != nil {
		return nil, nil, nil, err
	}
	args := []string{s.node, strconv.FormatInt(hold.Milliseconds(), 10)}
	for i := range own {
		text, err := json.Marshal(&own[i])
		if err != nil {
			return nil, nil, nil, err
		}
		args = append(args, url.QueryEscape(ID(&own[i])), string(text))
	}
	reply, err := s.conn.Run(ctx, s.script, []string{s.key}, args, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	for i := 0; i+1 < len(reply); i += 2 {
		var a telemetry.Alert
		word := reply[i].Text
		if err := json.Unmarshal([]byte(reply[i+1].Text), &a); err != nil || word == "" {
			return nil, nil, nil, redisconn.Malformed("alert %.80q", word)
		}
		list := map[byte]*[]telemetry.Alert{'+': &raised, '-': &resolved, '=': &all}[word[0]]
		if list == nil {
			return nil, nil, nil, redisconn.Malformed("alert %.80q", word)
		}
		*list = append(*list, a)
	}
	return all, raised, resolved, nil
}
