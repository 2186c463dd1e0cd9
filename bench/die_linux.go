package main

import "syscall"

// dieWithParent ends the server when this process ends without ending it: a panic, a kill.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
