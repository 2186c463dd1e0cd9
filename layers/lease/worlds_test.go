//go:build !race

package lease_test

// worlds is how many schedules are played.
const worlds = 10_000
