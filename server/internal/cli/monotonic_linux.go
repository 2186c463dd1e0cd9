package cli

import (
	"syscall"
	"time"
	"unsafe"
)

// monotonic is the time of CLOCK_MONOTONIC, which package time does not tell.
func monotonic() time.Duration {
	const clockMonotonic = 1
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}
