package redistest

import (
	"testing"
	"time"
)

// patience is for a busy machine.
const patience = time.Minute

// Await polls ok, and fails the test after a minute: the machine may be busy.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: timed out after %v waiting for: %s", patience, what)
		}
	}
}
