package storetest

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func modelSubject(_ testing.TB, clock func() weir.Instant) Handle {
	if clock == nil {
		start := time.Now()
		clock = func() weir.Instant { return weir.Instant(epoch + time.Since(start).Microseconds()) }
	}
	m := newModel(clock)
	return Handle{Store: m, Keys: m.keys}
}

// keys forgets what is as if never used: any word for that law asks the same.
func (m *modelStore) keys() (live, everlasting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for where, w := range m.laws {
		if w.fresh(m.limits[where], int64(m.clock())) {
			delete(m.laws, where)
		}
	}
	return len(m.laws), 0
}

func TestModelPassesTheVectors(t *testing.T) { Vectors(t, modelSubject) }

func TestModelPassesTheSuite(t *testing.T) { Run(t, modelSubject) }
