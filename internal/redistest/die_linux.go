package redistest

import "syscall"

// dieWithParent has the kernel kill the server when a test binary dies without its
// clean-up: a panic, a timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
