//go:build unix

package cli

import (
	"math"
	"syscall"
)

// openFiles is the limit of open files of this process. Go raised it to the hard limit at the
// start.
func openFiles() (files int, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return 0, false
	}
	return int(limit.Cur), true
}
