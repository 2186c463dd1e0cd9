//go:build !race

package resp

import (
	"strings"
	"testing"
)

// The race detector drops what a sync.Pool keeps, so allocations are not counted under it.

// TestSteadyStateAllocatesNothing: a decision from the bytes read to the bytes written.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, command := range steady {
		c, wire := ready(t, strings.Repeat(command, 16))
		if !c.read() || !c.answer() || wire.took < 16*5 {
			t.Fatalf("%s: it does not work", name)
		}
		if got := testing.AllocsPerRun(200, func() { _ = c.read() && c.answer() }); got != 0 {
			t.Errorf("%s: %v allocations for 16 of them", name, got)
		}
	}
}
