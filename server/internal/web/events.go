package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds of streams of events.
const (
	mostStreams   = 64 // at once; each costs two goroutines and a connection
	mostPerSecond = 50 // events of a stream; the others are dropped and counted
	streamFor     = 10 * time.Minute
	streamWrite   = 10 * time.Second // timeout of a write: a reader that does not read ends its stream
	aliveEvery    = 15               // seconds between events, else a comment keeps the connection open
)

// Streams are the streams of server-sent events of a server (the media type text/event-stream). It is safe for
// concurrent use.
type Streams struct {
	Stopping <-chan struct{} // closed when the server stops: streams end, since a shutdown waits for them; nil: never
	open     atomic.Int64
}

// A Watch calls each with values until ctx is done or each returns an error.
type Watch func(ctx context.Context, each func(value any) error) error

// Serve sends the values of watch as JSON in events of the name sample, until the client leaves, the server stops or
// streamFor has passed. The event state counts dropped values, and the event end announces the end; an EventSource
// then connects again. The error is a *Problem, and the response is unwritten then.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, watch Watch) error {
	if s.open.Add(1) > mostStreams {
		s.open.Add(-1)
		return Refuse(http.StatusServiceUnavailable,
			"%d streams of events are open on this server, which is its maximum; close one", mostStreams)
	}
	defer s.open.Add(-1)
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	e := &events{to: w, control: http.NewResponseController(w)}
	if e.begin(); r.Method == http.MethodHead {
		return nil
	}
	values := make(chan any, mostPerSecond)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = watch(ctx, func(value any) error {
			if ctx.Err() != nil {
				return ctx.Err() // or the value could still be sent, before pump notices the end
			}
			select {
			case values <- value:
			default: // a slow reader never holds up the watcher
				e.dropped.Add(1)
			}
			return nil
		})
	}()
	e.pump(ctx, values, s.Stopping, ended)
	cancel()
	<-ended
	return nil
}

// events is one stream. Only dropped is for concurrent use.
type events struct {
	to      http.ResponseWriter
	control *http.ResponseController
	dropped atomic.Int64 // values, since the last state event
	shown   int          // values in this second
	quiet   int          // seconds without an event
	err     error        // of a write: the client is gone
}

// begin sends the header. The deadlines of the server are for answers that end.
func (e *events) begin() {
	h := e.to.Header()
	h.Set("Content-Type", "text/event-stream")
	h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	_ = e.control.SetReadDeadline(time.Time{})
	e.send("retry: 2000\n\n")
}

// pump sends values until something ends.
func (e *events) pump(ctx context.Context, values <-chan any, stopping, ended <-chan struct{}) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for e.err == nil {
		select {
		case value := <-values:
			e.value(value)
			continue
		case <-second.C:
			e.second()
			continue
		case <-stopping:
		case <-ended:
		case <-ctx.Done():
		}
		e.send("event: end\ndata: {}\n\n")
		return
	}
}

// value sends a value, up to mostPerSecond.
func (e *events) value(value any) {
	text, err := json.Marshal(value)
	if err != nil || e.shown == mostPerSecond { // JSON has no NaN
		e.dropped.Add(1)
		return
	}
	e.shown++
	e.send("event: sample\ndata: " + string(text) + "\n\n")
}

// second reports the values dropped in the last second, and keeps a quiet connection open.
func (e *events) second() {
	if n := e.dropped.Swap(0); n > 0 {
		e.send(fmt.Sprintf("event: state\ndata: {\"shown\":%d,\"dropped\":%d}\n\n", e.shown, n))
	}
	e.shown = 0
	if e.quiet++; e.quiet >= aliveEvery {
		e.send(": alive\n\n")
	}
}

// send writes at once.
func (e *events) send(text string) {
	if e.err != nil {
		return
	}
	err := e.control.SetWriteDeadline(time.Now().Add(streamWrite))
	if err == nil || errors.Is(err, http.ErrNotSupported) { // of a writer in a test
		_, err = e.to.Write([]byte(text))
	}
	if err == nil {
		err = e.control.Flush()
	}
	e.quiet, e.err = 0, err
}
