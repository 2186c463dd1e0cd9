//go:build race

package lease_test

// worlds are few under the race detector, which takes ten times as long for each.
const worlds = 400
