package engine

import (
	"fmt"
	"time"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/endpoints"
)

// pathsAgain is the shortest time between two log lines about paths beyond the maximum.
const pathsAgain = time.Hour

// paths is the number of paths that keys with the component endpoint count separately.
func (e *Engine) paths() int {
	if places := e.Gate.Rules().Endpoints(); places != nil {
		return places.Len(time.Now())
	}
	return 0
}

// pathsFull says that there are more paths than keys count separately; "" if there are not.
func (e *Engine) pathsFull() string {
	if e.paths() < bounds.Endpoints {
		return ""
	}
	return fmt.Sprintf("rules with endpoint in their key: all %d paths are taken, and further paths are counted "+
		"together as %s, until one had no request for a minute (for an hour, if it was answered)", bounds.Endpoints,
		endpoints.Other)
}

// exportPaths registers the metric.
func (e *Engine) exportPaths() {
	e.Metrics.Gauge("weir_endpoint_paths", "Paths that rules with endpoint in their key count by themselves, where no "+
		"router chose a route. At most 1000: beyond them, paths are counted together.",
		func() int64 { return int64(e.paths()) })
}

// lookForFullPaths logs at most once in pathsAgain that no further path is counted separately. It returns the time of
// the last log line.
func (e *Engine) lookForFullPaths(logged time.Time) time.Time {
	if time.Since(logged) < pathsAgain {
		return logged
	}
	why := e.pathsFull()
	if why == "" {
		return logged
	}
	e.Log.Warn(why)
	return time.Now()
}
