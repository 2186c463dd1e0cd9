package tally

import (
	"sync"
	"testing"
)

// TestInFlightFindsACallThatHangs among calls that return.
func TestInFlightFindsACallThatHangs(t *testing.T) {
	var f InFlight
	work := func() {
		var all sync.WaitGroup
		for lane := range uintptr(8) {
			all.Go(func() {
				for range 1000 {
					f.Begin(lane << 8).Add(-1)
				}
			})
		}
		all.Wait()
	}
	for i := range 5 {
		work()
		if n := f.Tick(); n != 0 {
			t.Fatalf("tick %d: %d, and no call is in progress", i, n)
		}
	}
	hanging := f.Begin(3)
	for i, want := range []int{0, 1, 2, 3} { // the first tick ends the generation in which it began
		work()
		if n := f.Tick(); n != want {
			t.Errorf("tick %d of the call: %d, want %d", i, n, want)
		}
	}
	hanging.Add(-1)
	if n := f.Tick(); n != 0 {
		t.Errorf("after the call: %d", n)
	}
}
