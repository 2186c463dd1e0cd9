package redisstore

import "time"

// Timeout is what bounds each call of the store: see WithTimeout. Layers over it derive theirs
// from it.
func (s *Store) Timeout() time.Duration { return s.bound.timeout }
