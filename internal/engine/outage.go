package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/telemetry"
)

// A store that answers for so long without a failure has recovered. The time doubles each time that the
// store fails again within a minute of its recovery, up to a minute: an unsteady store must not fill the log
// and the history.
const (
	recoveredAfter = time.Second
	maxRecovery    = time.Minute
)

// An outage logs when the store stops responding, and when it responds again.
type outage struct {
	log  *slog.Logger
	mark func(telemetry.Mark)
	down atomic.Bool

	mu     sync.Mutex
	last   time.Time     // of a failure
	failed int           // since the store went down
	up     time.Time     // of the last recovery
	wait   time.Duration // until the store has recovered
	alien  time.Time     // when foreign data was logged last
}

// verdict is the gate's observer.
func (o *outage) verdict(v *gate.Verdict) {
	switch {
	case v.Degraded() && errors.Is(v.Err, weir.ErrForeignState):
		o.foreign(v.Err)
	case v.Degraded():
		o.fail(v.Err)
	case o.down.Load() && answered(v):
		o.recover()
	}
}

// answered reports whether the store itself decided, not the local fallback.
func answered(v *gate.Verdict) bool {
	if v.Len() == 0 {
		return false
	}
	check := v.At(0)
	return check.Decided && !check.Local
}

func (o *outage) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = time.Now()
	o.failed++
	if o.down.CompareAndSwap(false, true) {
		if o.wait = min(2*o.wait, maxRecovery); time.Since(o.up) >= maxRecovery {
			o.wait = recoveredAfter
		}
		o.log.Warn("store is not responding: rules apply their on_store_error", "error", err)
		o.mark(telemetry.Mark{Kind: "degraded", Text: "store is not responding: " + err.Error()})
	}
}

// foreign logs once a minute that a key has data of another program: the store is there.
func (o *outage) foreign(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.alien) < time.Minute {
		return
	}
	o.alien = time.Now()
	o.log.Warn("a key of the store has data that is not weir's: rules apply their on_store_error", "error", err)
}

func (o *outage) recover() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.last) < o.wait || !o.down.CompareAndSwap(true, false) {
		return
	}
	o.log.Info("store is responding again", "decisions_without_it", o.failed)
	o.mark(telemetry.Mark{Kind: "recovered",
		Text: fmt.Sprintf("store is responding again, after %d decisions without it", o.failed)})
	o.failed, o.up = 0, time.Now()
}

// looked is a limit that is only looked at.
var looked = []weir.Claim{{Key: "key", Limit: weir.MustLimit("weir.probe", weir.PerSecond(1)), Cost: 1}}

// isBack reads a limit in the store that failed last, as a request would. Otherwise a store that recovered would be
// reported as down until the next request. The read also closes the circuit breaker.
func (e *Engine) isBack() bool {
	ctx, cancel := context.WithTimeout(context.Background(), firstAttempt)
	defer cancel()
	_, err := e.Counts.Decide(ctx, looked, 0, make([]weir.Decision, 1))
	return err == nil && e.Metrics.StoreUp()
}
