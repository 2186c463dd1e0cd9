package audit

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/telemetry"
)

//go:embed stream.lua
var streamText string

const (
	// maxBatch keeps a write below 0.2 ms of Redis, which decides requests at the same time.
	maxBatch = 64
	// streamTimeout bounds a write, and an attempt to connect.
	streamTimeout = 2 * time.Second
)

// streamsOf are the streams of one log, in one slot of a Cluster: of refusals, of bans, of all else, and of costs. Each
// has its own bound, so that clients, who cause refusals and bans, cannot push out the records of operators.
func streamsOf(stream string) []string {
	return []string{stream, "{" + stream + "}:bans", "{" + stream + "}:events", "{" + stream + "}:costs"}
}

// ofCosts is the index of the stream of costs.
const ofCosts = 3

// streamOf is the stream of a record, as an index.
func streamOf(r *Record) int {
	switch {
	case r.Outcome == telemetry.AuditCost:
		return ofCosts
	case !isFrequent(r):
		return 2
	case r.Outcome == "ban":
		return 1
	}
	return 0
}

// NewStreamSink appends records to the streams of a log in the Redis at a URL. Each keeps about its last most
// records. The sink connects at the first write.
func NewStreamSink(url, stream string, most int) Sink {
	last := fmt.Sprintf("{%s}:%s", stream, rand.Text())
	return &streamSink{url: url, keys: append([]string{last}, streamsOf(stream)...), most: strconv.Itoa(most),
		script: redisconn.ScriptOf(streamText), timeout: streamTimeout}
}

type streamSink struct {
	url, most string
	keys      []string // of the number of the last batch of this writer, and the streams
	script    *redisconn.Script
	conn      redisconn.Conn // nil: not connected
	batch     int64          // that was written last
	args      []string
	timeout   time.Duration
}

func (*streamSink) Name() string { return "redis" }
func (*streamSink) Batch() int   { return maxBatch }

func (s *streamSink) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// Write is one script call. A call is repeated with the same number when its answer was lost, and then has no effect.
func (s *streamSink) Write(ctx context.Context, list []Record) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.conn == nil {
		conn, err := redisconn.Open(ctx, s.url, redisconn.Config{})
		if err != nil {
			return err
		}
		s.conn = conn
	}
	s.args = append(s.args[:0], strconv.FormatInt(s.batch+1, 10), s.most)
	for i := range list {
		r := &list[i]
		place := strconv.Itoa(streamOf(r) + 2) // the first stream is the second key
		s.args = append(s.args, place, r.At.Format(time.RFC3339Nano))
		for _, f := range numberFields {
			s.args = append(s.args, strconv.FormatInt(*f.of(r), 10))
		}
		for _, f := range textFields {
			s.args = append(s.args, *f.of(r))
		}
	}
	if _, err := s.conn.Run(ctx, s.script, s.keys, s.args, nil); err != nil {
		return err
	}
	s.batch++
	return nil
}
