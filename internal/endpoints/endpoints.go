// Package endpoints chooses the paths that the key component endpoint tells apart where no router chose a route.
// Clients choose paths, so the number of those must have a maximum, and junk must not use it up.
package endpoints

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/bounds"
)

// Other stands for all paths without a place.
const Other = "(other)"

// How long a path keeps its place without a request, while others want one. A path is known to exist once a response
// below 400 was seen. Any other may be junk, also at a service that answers 401 to everything or has responses that are
// not seen; yet it keeps its place for a while, since places that came and went at once would be no bound.
const (
	keptKnown   = time.Hour
	keptUnknown = time.Minute
)

// A Table holds a place for each of at most bounds.Endpoints paths. A path takes a place with its first request that
// passes, and loses it with a response 404, unless it is known to exist. The zero value is ready for concurrent use.
type Table struct {
	mu    sync.RWMutex
	paths map[string]*path
	swept int64 // µs: when it looked for expired places last
}

type path struct {
	last  atomic.Int64 // µs: its last request
	known atomic.Bool  // to exist
}

func (p *path) expired(now int64) bool {
	kept := keptUnknown
	if p.known.Load() {
		kept = keptKnown
	}
	return now-p.last.Load() >= kept.Microseconds()
}

// Of returns the path that counts a request, or Other. It takes no place.
func (t *Table) Of(name string) string {
	if name == "" || len(name) <= bounds.Text && t.has(name) {
		return name
	}
	return Other
}

// has reports whether a path has a place or can take one.
func (t *Table) has(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.paths) < bounds.Endpoints || t.paths[name] != nil
}

// Expire frees the places that expired, if no place is free. It looks once a second.
func (t *Table) Expire(at time.Time) {
	t.mu.RLock()
	free := len(t.paths) < bounds.Endpoints
	t.mu.RUnlock()
	if !free {
		t.sweep(at.UnixMicro(), time.Second)
	}
}

func (t *Table) sweep(now int64, every time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if passed := now - t.swept; passed >= 0 && passed < every.Microseconds() {
		return
	}
	t.swept = now
	for name, p := range t.paths {
		if p.expired(now) {
			delete(t.paths, name)
		}
	}
}

// Request records a request that passed.
func (t *Table) Request(name string, at time.Time) {
	t.mu.RLock()
	p := t.paths[name]
	t.mu.RUnlock()
	if p == nil && len(name) <= bounds.Text {
		p = t.take(name)
	}
	if p != nil {
		p.last.Store(at.UnixMicro())
	}
}

// take gives a path a place, if one is free.
func (t *Table) take(name string) *path {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.paths[name]; p != nil || len(t.paths) >= bounds.Endpoints {
		return p
	}
	return t.put(name)
}

func (t *Table) put(name string) *path {
	if t.paths == nil {
		t.paths = make(map[string]*path)
	}
	p := new(path)
	t.paths[strings.Clone(name)] = p // front ends use the request's buffer again
	return p
}

// Response records the status of a response.
func (t *Table) Response(name string, status int, at time.Time) {
	t.mu.RLock()
	p := t.paths[name]
	t.mu.RUnlock()
	exists := 0 < status && status < http.StatusBadRequest
	switch {
	case exists && p != nil:
		p.known.Store(true)
	case exists && len(name) <= bounds.Text:
		t.replace(name, at.UnixMicro())
	case status == http.StatusNotFound && p != nil && !p.known.Load():
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.paths[name] == p {
			delete(t.paths, name)
		}
	}
}

// replace gives a path that exists a place: if no place is free, the place of the unknown path with the oldest request.
func (t *Table) replace(name string, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.paths[name]
	if p == nil && len(t.paths) >= bounds.Endpoints {
		oldest := t.oldest()
		if oldest == "" {
			return
		}
		delete(t.paths, oldest)
	}
	if p == nil {
		p = t.put(name)
		p.last.Store(now)
	}
	p.known.Store(true)
}

// oldest is the unknown path with the oldest request; "" if all paths are known.
func (t *Table) oldest() (oldest string) {
	for name, p := range t.paths {
		if !p.known.Load() && (oldest == "" || p.last.Load() < t.paths[oldest].last.Load()) {
			oldest = name
		}
	}
	return oldest
}

// Len is the number of places in use.
func (t *Table) Len(at time.Time) int {
	t.sweep(at.UnixMicro(), 0)
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.paths)
}

// Adopt takes over the places of the rules before, so that an edit of rules frees no place for junk. Call it before the
// table is in use.
func (t *Table) Adopt(before *Table) {
	if t == before {
		return
	}
	before.mu.RLock()
	defer before.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paths == nil {
		t.paths = make(map[string]*path, len(before.paths))
	}
	for name, p := range before.paths {
		t.paths[name] = p
	}
}
