package rules

import (
	"strings"
	"sync"
)

// MaxEndpoints is the number of paths that a key component endpoint distinguishes.
const MaxEndpoints = 1000

// OtherEndpoints stands for all further paths.
const OtherEndpoints = "(other)"

// endpoints are the paths that a component has met in requests without a route: the first MaxEndpoints since
// the rules were compiled. Clients choose paths, so the number of keys must not depend on them. The zero value
// is ready for concurrent use.
type endpoints struct {
	mu   sync.RWMutex
	seen map[string]bool
}

// of is the path, or OtherEndpoints.
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
