package telemetry

import (
	"time"

	"github.com/weirproject/weir/rules"
)

// A window is the time for measuring the use of a rule's first limit, with the limit's grants in that time. For a
// bucket it is the time to fill. So use is the use of a fixed window of this length, which is an
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
