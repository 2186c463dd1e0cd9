//go:build race

package layers

// The race detector takes ten times as long for each.
const (
	histories = 15
	schedules = 300
)
