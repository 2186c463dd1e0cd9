package engine

import (
	"context"
	"strings"
	"time"
)

// policyEvery is the time between two looks at the eviction policy of Redis, which anybody may set while it runs.
const policyEvery = time.Minute

// watchPolicy looks at the eviction policy until ctx ends.
func (e *Engine) watchPolicy(ctx context.Context) {
	if e.conn == nil {
		return
	}
	e.lookAtPolicy(ctx)
	minute := time.NewTicker(policyEvery)
	defer minute.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-minute.C:
			e.lookAtPolicy(ctx)
		}
	}
}

// lookAtPolicy remembers and logs a policy that evicts limits, and its end. The first look does not log: a wrong policy
// at the start was logged when the store was opened. Other checks report an outage.
func (e *Engine) lookAtPolicy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	var now string
	warn := func(text string) {
		if strings.Contains(text, "maxmemory-policy") {
			now = text
		}
	}
	if err := e.conn.Inspect(ctx, warn); err != nil {
		return
	}
	before := e.policy.Swap(&now)
	switch {
	case before == nil || *before == now:
	case now != "":
		e.Log.Warn(now)
	default:
		e.Log.Info("the eviction policy of Redis forgets no limits any more")
	}
}

// evicts says that Redis may forget limits.
func (e *Engine) evicts() []string {
	if now := e.policy.Load(); now != nil && *now != "" {
		return []string{strings.TrimPrefix(*now, "redisstore: ")}
	}
	return nil
}
