//go:build race

package faulttest_test

// slower is how many times fewer decisions are asked for: the race detector takes as many
// times as long for each, and what cannot be kept up with is a fault of its own.
const slower = 3
