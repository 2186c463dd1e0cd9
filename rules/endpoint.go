package rules

import (
	"strings"
	"sync"
)

// MaxEndpoints is how many paths a key component endpoint tells apart.
const MaxEndpoints = 1000

// OtherEndpoints is what all further paths are counted as.
const OtherEndpoints = "(other)"

// endpoints are the paths that a component has met where no router chose a route: the first
// MaxEndpoints of them since the rules were compiled. Clients choose paths, and must not choose how
// many keys there are. A zero value is ready for use, by many goroutines.
type endpoints struct {
	mu   sync.RWMutex
	seen map[string]bool
}

// of is the path, or what it is counted as.
func (e *endpoints) of(path string) string {
	e.mu.RLock()
	known, full := e.seen[path], len(e.seen) >= MaxEndpoints
	e.mu.RUnlock()
	switch {
	case known || path == "":
		return path
	case full || len(path) > MaxText:
		return OtherEndpoints
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = make(map[string]bool)
	}
	if len(e.seen) >= MaxEndpoints && !e.seen[path] {
		return OtherEndpoints
	}
	e.seen[strings.Clone(path)] = true // the request's buffer is used again
	return path
}
