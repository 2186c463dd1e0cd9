//go:build race

package coalesce_test

// The race detector takes ten times as long for each.
const (
	histories = 15
	schedules = 300
)
