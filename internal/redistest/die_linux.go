package redistest

import "syscall"

// DieWithParent lets the kernel kill a process when a test binary dies without clean-up: a panic, a timeout.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
