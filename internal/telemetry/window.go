package telemetry

import (
	"time"

	"github.com/weirproject/weir/rules"
)

// A window is the time in which the use of a rule's first limit is measured, and what the limit grants in it. A
// bucket is measured in the time in which it fills. So use is that of a fixed window of this length, which is an
// approximation for the other algorithms.
type window struct {
	seconds int64   // 0: there is none, as for a concurrency limit
	grant   float64 // units in a window
}

func windowOf(rule *rules.Rule) window {
	limit := rule.Limits()[0]
	if limit.Leases() {
		return window{}
	}
	rate := float64(limit.Units()) / (time.Duration(limit.Length()) * time.Microsecond).Seconds()
	seconds := max(1, int64(float64(limit.Most())/rate+0.5))
	return window{seconds: seconds, grant: rate * float64(seconds)}
}
