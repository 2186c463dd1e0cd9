//go:build !race

package storetest

const (
	histories = 40     // short ones, as much goes wrong while keys are new
	expiring  = 10_000 // keys of each kind
)
