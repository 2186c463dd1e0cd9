//go:build race

package faulttest_test

import "time"

// The race detector takes several times as long for each decision, and what cannot be kept
// up with is a fault of its own.
const (
	budget   = 250 * time.Millisecond
	slower   = 3   // times fewer decisions
	together = "2" // trials at the same time
	bare     = 1   // stacks left out: those of the others go through the store alone, too
)
