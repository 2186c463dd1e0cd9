package memstore

import (
	"bytes"
	"time"

	"github.com/weirproject/weir"
)

// LoadLines loads the lines of a snapshot without its head and foot, for the fuzzer, which
// would not get past a checksum.
func LoadLines(s *Store, text string) error {
	r := snapshotReader{now: s.now()}
	for one := range bytes.Lines([]byte(text)) {
		if err := r.line(bytes.TrimSuffix(one, []byte("\n"))); err != nil {
			return err
		}
	}
	for i := range r.keys {
		s.adopt(&r.keys[i])
	}
	return nil
}

// Expiries is how many expiries the store keeps.
func Expiries(s *Store) (n int) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].soonest)
		s.shards[i].mu.Unlock()
	}
	return n
}

// Examined is how many keys were looked at so far in search of room.
func Examined(s *Store) int64 { return s.examined.Load() }

// SetWall makes the store take the wall clock of a reading from a function.
func SetWall(s *Store, micros func(time.Time) int64) { s.wall.micros = micros }

// HasKind reports whether an algorithm is decided here.
func HasKind(a weir.Algorithm) bool { return int(a) < len(kinds) && kinds[a].decider != nil }
