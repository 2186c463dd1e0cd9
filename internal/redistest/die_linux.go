package redistest

import "syscall"

// dieWithParent lets the kernel kill the server when a test binary dies without clean-up: a panic, a timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
