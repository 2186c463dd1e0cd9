package engine

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// probeLimit is the limit of the decisions for health checks, which only look at it.
var probeLimit = weir.MustLimit("weir.health", weir.PerSecond(1))

// probe returns a decision for health checks. It has no charge and makes no state. Its keys differ, so in time all
// parts of a store are asked.
func (e *Engine) probe(ctx context.Context) func() error {
	var n atomic.Uint64
	return func() error {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if e.Store != Memory {
			bounded, cancel = context.WithTimeout(ctx, e.StoreTimeout)
		}
		defer cancel()
		claim := weir.Claim{Key: strconv.FormatUint(n.Add(1), 10), Limit: probeLimit, Cost: 1}
		_, err := e.Counts.Decide(bounded, []weir.Claim{claim}, 0, nil)
		return err
	}
}

// lookForTrouble logs when a call of an embedded store does not return, and when paths are counted together.
func (e *Engine) lookForTrouble(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var paths time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-second.C:
		}
		paths = e.lookForFullPaths(paths)
		switch stuck, changed := e.Metrics.LookForStuck(); {
		case stuck && changed:
			e.Log.Error("a call of the store in memory does not return: /livez and /readyz answer 503 until it does, " +
				"or until a restart. This is a bug: please report it with the stacks that SIGQUIT prints")
		case changed:
			e.Log.Warn("the call of the store in memory returned: /livez and /readyz are as before")
		}
	}
}
