//go:build unix

package listen

import "syscall"

// narrow sets the mode of a socket before its file exists. Systems without support return an error,
// which is ignored: openUnix changes the mode of the file afterwards.
func narrow(fd uintptr, mode uint32) { _ = syscall.Fchmod(int(fd), mode) }
