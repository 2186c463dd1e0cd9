package storetest

import "flag"

// rounds is n in proportion to the number of draws of rapid: RAPID_CHECKS=20 makes the whole suite five times shorter.
func rounds(n int) int {
	checks := flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int)
	return max(1, n*checks/100)
}

const (
	histories = 40     // short ones, because most faults show while keys are new
	expiring  = 10_000 // keys of each kind
)
