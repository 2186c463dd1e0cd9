package engine

import (
	"testing"
	"time"
)

// TestStepOfTheClockIsAProblemForAnHour from when it was seen.
func TestStepOfTheClockIsAProblemForAnHour(t *testing.T) {
	w, now := new(watcher), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := w.clockStepped(0, now); got != nil {
		t.Error(got)
	}
	for after, want := range map[time.Duration]int{0: 1, time.Hour: 1, time.Hour + 1: 0} {
		var one watcher
		one.clockStepped(1, now)
		if got := one.clockStepped(1, now.Add(after)); len(got) != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
}
