//go:build !race

package faulttest_test

import "time"

const (
	budget   = 50 * time.Millisecond // the store's timeout: its default
	slower   = 1
	together = "4" // trials at the same time: they wait for servers, not for processors
	bare     = 0
)
