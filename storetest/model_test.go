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

// keys drops models that are in their initial state.
func (m *modelStore) keys() (live, everlasting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for where, w := range m.models {
		if w.Fresh(m.limits[where], int64(m.clock())) {
			delete(m.models, where)
		}
	}
	return len(m.models), 0
}

func TestModelPassesTheVectors(t *testing.T) { Vectors(t, modelSubject) }

func TestModelPassesTheSuite(t *testing.T) { Run(t, modelSubject) }
