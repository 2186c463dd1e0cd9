//go:build unix

package redistest

import (
	"strings"
	"testing"
	"time"
)

// Await polls ok, and fails the test after 20 seconds.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: timed out after 20s waiting for: %s", what)
		}
	}
}

// Info returns the fields of a section of INFO.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	return fields(s.Do("INFO", section).(string))
}

// Role is master, slave or sentinel; empty while the server does not answer, as while it changes its role and
// drops its clients.
func (s *Server) Role() string {
	reply, err := s.Try("ROLE")
	if err != nil {
		return ""
	}
	return reply.([]any)[0].(string)
}

// follows reports whether a replica is in sync with its master.
func (s *Server) follows() bool {
	reply, err := s.Try("INFO", "replication")
	return err == nil && fields(reply.(string))["master_link_status"] == "up"
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
