// Package pause waits for a time that can be cut short.
package pause

import "time"

// For waits for d, and reports whether that time passed before done was ready. It returns true at once where d is not
// above 0.
func For(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
