//go:build unix

package redistest

import (
	"strings"
	"testing"
	"time"
)

// Await asks until ok, and fails the test when that takes more than 20 seconds.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: waited 20s in vain for: %s", what)
		}
	}
}

// Info is the fields of a section of INFO.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	return fields(s.Do("INFO", section).(string))
}

func fields(text string) map[string]string {
	found := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found
}
