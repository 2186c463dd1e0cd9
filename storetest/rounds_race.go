//go:build race

package storetest

// The race detector takes ten times as long for each, and what it looks for is there in the
// first as in the last.
const (
	histories = 8
	expiring  = 1_000
)
