package audit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

// A Sink writes records. One goroutine calls its methods.
type Sink interface {
	// Name is the sink in metrics and logs.
	Name() string
	// Batch is the most records of one Write.
	Batch() int
	// Write writes records. After an error the same records are written again; then no record may be twice in the
	// sink.
	Write(ctx context.Context, list []Record) error
	Close()
}

// An outlet is the queue of one sink, and the goroutine that writes to it.
type outlet struct {
	sink          Sink
	log           *slog.Logger
	written, lost atomic.Int64
	failures      atomic.Int64 // attempts

	mu      sync.Mutex
	backlog []Record
	trying  int           // records of the attempt that failed
	wake    chan struct{} // has room for one
	ended   chan struct{}
	cancel  context.CancelFunc
	closing atomic.Bool

	// Used by run alone.
	failing bool      // a failure was logged, and not its end
	told    time.Time // when a failure was logged last
}

// maxBacklog bounds the records that wait for a sink that is slower, or down. A change or an incident may wait in
// the last part of it, which a flood of refusals cannot fill, and a refusal in the half that costs cannot fill.
const (
	maxBacklog = 50_000
	forMarks   = 1_000
)

// room is the most records that may wait before a record.
func room(r *Record) int {
	switch {
	case r.Outcome == telemetry.AuditCost:
		return maxBacklog / 2
	case isFrequent(r):
		return maxBacklog - forMarks
	}
	return maxBacklog
}

func newOutlet(sink Sink, log *slog.Logger) *outlet {
	ctx, cancel := context.WithCancel(context.Background())
	o := &outlet{sink: sink, log: log, wake: make(chan struct{}, 1), ended: make(chan struct{}), cancel: cancel}
	go o.run(ctx)
	return o
}

func (o *outlet) put(list []Record) {
	o.mu.Lock()
	for i := range list {
		if len(o.backlog) >= room(&list[i]) {
			o.lost.Add(1)
			continue
		}
		o.backlog = append(o.backlog, list[i])
	}
	o.mu.Unlock()
	o.signal()
}

func (o *outlet) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes until close. Records that a sink did not take are tried again, later and later.
func (o *outlet) run(ctx context.Context) {
	defer close(o.ended)
	var wait time.Duration
	for ctx.Err() == nil {
		err := o.write(ctx)
		if wait = o.retry(wait, err); wait > 0 {
			pause(ctx, wait)
			continue
		}
		if o.closing.Load() {
			return
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
		}
	}
}

// The wait of a sink that failed.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 5 * time.Second
)

// tellEvery is the shortest time between two lines about failures of a sink, which an unsteady connection repeats.
const tellEvery = time.Minute

// retry logs the begin and the end of a failure, and returns how long to wait for the next attempt; 0: no record
// waits. A failure begins with the second attempt in a row that fails: the first one may be a connection that the other
// side has closed.
func (o *outlet) retry(wait time.Duration, err error) time.Duration {
	if err == nil {
		if o.failing {
			o.failing = false
			o.log.Info("audit records are written again", "sink", o.sink.Name(), "lost", o.lost.Load())
		}
		return 0
	}
	o.failures.Add(1)
	if wait > 0 && !o.failing && (o.told.IsZero() || time.Since(o.told) >= tellEvery) {
		o.failing, o.told = true, time.Now()
		o.log.Warn("audit records cannot be written: they wait, and what exceeds the queue is lost", "sink",
			o.sink.Name(), "error", err)
	}
	return min(max(2*wait, firstWait), maxWait)
}

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// write hands the backlog to the sink, until it is empty or the sink fails. An attempt that failed is repeated with
// the same records.
func (o *outlet) write(ctx context.Context) error {
	for {
		list := o.next()
		if len(list) == 0 {
			return nil
		}
		if err := o.sink.Write(ctx, list); err != nil {
			return err
		}
		o.written.Add(int64(len(list)))
		o.done(list)
	}
}

func (o *outlet) next() []Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trying == 0 {
		o.trying = min(len(o.backlog), o.sink.Batch())
	}
	return o.backlog[:o.trying]
}

// done drops written records, which are the first of the backlog.
func (o *outlet) done(list []Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(list)
	o.backlog, o.trying = o.backlog[len(list):], 0
}

// close writes the backlog until ctx is done; the rest is lost.
func (o *outlet) close(ctx context.Context) {
	o.closing.Store(true)
	o.signal()
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
	o.cancel()
	<-o.ended
	if rest := len(o.backlog); rest > 0 {
		o.lost.Add(int64(rest))
		o.log.Warn("audit records were lost: the sink did not take them before the end", "sink", o.sink.Name(), "lost",
			rest)
	}
	o.sink.Close()
}
