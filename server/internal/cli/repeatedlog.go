package cli

import (
	"log/slog"
	"sync"
	"time"
)

// repeatEvery is the least time between two log lines of one kind.
const repeatEvery = time.Minute

// A repeatedLog logs warnings that every request may cause: at most one of a kind per minute,
// with the number of suppressed lines.
type repeatedLog struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*unlogged // few: texts of this package
}

type unlogged struct {
	until time.Time
	lines int
}

// warn logs a text; lines with the same text are of one kind.
func (s *repeatedLog) warn(text string, args ...any) {
	if lines, due := s.due(text, time.Now()); due {
		s.log.Warn(text, append(args, "unlogged", lines)...)
	}
}

func (s *repeatedLog) due(kind string, now time.Time) (lines int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = make(map[string]*unlogged)
	}
	k := s.kinds[kind]
	if k == nil {
		k = new(unlogged)
		s.kinds[kind] = k
	}
	if now.Before(k.until) {
		k.lines++
		return 0, false
	}
	lines, k.lines, k.until = k.lines, 0, now.Add(repeatEvery)
	return lines, true
}
