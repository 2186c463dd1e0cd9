package forwardauth_test

import "syscall"

// dieWithParent has the kernel kill a proxy when a test binary dies without its clean-up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
