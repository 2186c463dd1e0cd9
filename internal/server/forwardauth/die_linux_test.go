package forwardauth_test

import "syscall"

// dieWithParent makes the kernel kill a proxy whose test binary dies without cleaning up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
