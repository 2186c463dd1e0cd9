//go:build unix

package cli

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open. Go has raised that to the hard
// limit when the process began.
func openFiles() (files int, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return 0, false
	}
	return int(limit.Cur), true
}
