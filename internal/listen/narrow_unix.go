//go:build unix

package listen

import "syscall"

// narrow gives a socket a mode before it has a name. Systems that cannot do it say so,
// which nobody can help.
func narrow(fd uintptr, mode uint32) { _ = syscall.Fchmod(int(fd), mode) }
