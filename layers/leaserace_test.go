//go:build race

package layers

// worlds are few under the race detector, which takes ten times as long for each.
const worlds = 400
