//go:build race

package storetest

// The race detector makes each round ten times as slow, and races show in the first rounds.
const (
	histories = 8
	expiring  = 1_000
)
