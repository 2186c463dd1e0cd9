package rules

import (
	"strings"
	"sync"

	"github.com/weirproject/weir/internal/bounds"
)

// otherEndpoints stands for all further paths.
const otherEndpoints = "(other)"

// endpoints are the paths that a component has met in requests without a route: the first bounds.Endpoints since
// the rules were compiled. Clients choose paths, so the number of keys must not depend on them. The zero value
// is ready for concurrent use.
type endpoints struct {
	mu   sync.RWMutex
	seen map[string]bool
}

// of is the path, or otherEndpoints.
func (e *endpoints) of(path string) string {
	e.mu.RLock()
	known, full := e.seen[path], len(e.seen) >= bounds.Endpoints
	e.mu.RUnlock()
	switch {
	case known || path == "":
		return path
	case full || len(path) > bounds.Text:
		return otherEndpoints
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = make(map[string]bool)
	}
	if len(e.seen) >= bounds.Endpoints && !e.seen[path] {
		return otherEndpoints
	}
	e.seen[strings.Clone(path)] = true // the request's buffer is used again
	return path
}
