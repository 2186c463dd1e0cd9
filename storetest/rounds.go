//go:build !race

package storetest

const (
	histories = 40     // short ones, because most faults show while keys are new
	expiring  = 10_000 // keys of each kind
)
