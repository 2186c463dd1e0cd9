//go:build race

package layers

// The race detector takes ten times as long for each.
const schedules = 300
